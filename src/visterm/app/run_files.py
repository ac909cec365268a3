"""The files of a run: how the parts of a tagger are written into a folder and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visterm.app.learned_images import LearnedImages
from visterm.app.relations import WordRelations
from visterm.app.word_places import WordPlaces
from visterm.core.errors import CorruptFileError
from visterm.core.jsonlines import read_skipped, write_skipped
from visterm.core.persist import (
    HOW_TO_MEND,
    load_arrays,
    load_csr,
    load_estimator,
    read_json,
    save_arrays,
    save_csr,
    save_estimator,
    write_json,
)
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.data.reference_texts import Reference
from visterm.models.calibration import Calibration

GIVEN = "given.safetensors"
"""In a run of images known by number: the tags that it learned from."""

LEARNED_IMAGES = "learned_images.safetensors"
REFERENCE = "reference.json"
CALIBRATION = "calibration.safetensors"


def write_run(tagger: Any, folder: Path) -> None:
    """Write the parts of a `Tagger` into a folder that is being made."""
    save_estimator(tagger.encoder, ENCODERS, folder, "encoder")
    save_estimator(tagger.model, MODELS, folder, "model")
    write_json(folder / "vocabulary.json", tagger.vocabulary.to_json())
    write_json(folder / "facts.json", tagger.facts)
    write_skipped(folder / "skipped.jsonl", tagger.skipped)
    tagger.learned_images.save(folder / LEARNED_IMAGES)
    tagger.relations.save(folder)
    tagger.words.save(folder)
    if tagger.given is not None:
        save_csr(folder / GIVEN, tagger.given)
    if tagger.reference is not None:
        write_json(folder / REFERENCE, tagger.reference.to_json())
    if tagger.calibration is not None:
        save_arrays(folder / CALIBRATION, tagger.calibration.arrays())


def read_run(kind: Any, folder: Path, n_jobs: int | None) -> Any:
    """Make a tagger of the class `kind` from a folder whose checksums hold, to use it with `n_jobs` threads."""
    tagger = kind.from_parts(
        load_estimator(ENCODERS, folder, "encoder"),
        load_estimator(MODELS, folder, "model"),
        Vocabulary.from_json(read_json(folder / "vocabulary.json")),
        read_json(folder / "facts.json"),
    )
    n_known = getattr(tagger.model, "n_tags_", None)
    if n_known != len(tagger.vocabulary):
        raise CorruptFileError(
            f"{folder}: the model knows {n_known} tags, and there are {len(tagger.vocabulary)} in vocabulary.json. "
            f"{HOW_TO_MEND}"
        )
    for part in (tagger.encoder, tagger.model):
        if "n_jobs" in part.get_params(deep=False):
            part.set_params(n_jobs=n_jobs)
    tagger.skipped = read_skipped(folder / "skipped.jsonl")
    tagger.learned_images = LearnedImages.load(folder / LEARNED_IMAGES)
    tagger.relations = WordRelations.load(folder)
    tagger.words = WordPlaces.load(folder)
    if (folder / GIVEN).exists():
        tagger.given = load_csr(folder / GIVEN)
    if (folder / REFERENCE).exists():
        tagger.reference = Reference.from_json(read_json(folder / REFERENCE))
    if (folder / CALIBRATION).exists():
        tagger.calibration = Calibration.of_arrays(load_arrays(folder / CALIBRATION))
    return tagger
