"""The files of a run: how the parts of a tagger are written into a folder and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visterm.core.errors import CorruptFileError
from visterm.core.jsonlines import write_skipped
from visterm.core.persist import (
    HOW_TO_MEND,
    load_estimator,
    refusing,
    save_arrays,
    save_csr,
    save_estimator,
    write_json,
)
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.data.reference_texts import Reference
from visterm.features.learned_images import LearnedImages
from visterm.models.confidence.calibration import Calibration
from visterm.tagging.relations import WordRelations
from visterm.tagging.run_checks import (
    FACTS,
    REFERENCE_KIND,
    VOCABULARY,
    check_added_rows,
    check_encoder,
    read_calibration,
    read_given,
    read_part,
    read_skips,
)
from visterm.tagging.word_places import WordPlaces

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
    encoder, model = load_estimator(ENCODERS, folder, "encoder"), load_estimator(MODELS, folder, "model")
    with refusing(folder / "model.json"):
        check_encoder(encoder, model)
    vocabulary = read_part(folder / "vocabulary.json", Vocabulary.from_json, VOCABULARY)
    facts = read_part(folder / "facts.json", dict, FACTS)
    tagger = kind.from_parts(encoder, model, vocabulary, facts)
    n_known = getattr(tagger.model, "n_tags_", None)
    if n_known != len(tagger.vocabulary):
        raise CorruptFileError(
            f"{folder}: the model knows {n_known} tags, and there are {len(tagger.vocabulary)} in vocabulary.json. "
            f"{HOW_TO_MEND}"
        )
    for part in (tagger.encoder, tagger.model):
        if "n_jobs" in part.get_params(deep=False):
            part.set_params(n_jobs=n_jobs)
    tagger.skipped = read_part(folder / "skipped.jsonl", read_skips)
    tagger.learned_images = read_part(folder / LEARNED_IMAGES, LearnedImages.load)
    with refusing(folder):
        tagger.relations = WordRelations.load(folder)
        tagger.words = WordPlaces.load(folder)
        check_added_rows(tagger.words, model)
    if (folder / GIVEN).exists():
        tagger.given = read_part(folder / GIVEN, lambda file: read_given(file, model, encoder))
    if (folder / REFERENCE).exists():
        tagger.reference = read_part(folder / REFERENCE, Reference.from_json, REFERENCE_KIND, model)
    if (folder / CALIBRATION).exists():
        arrays = read_part(folder / CALIBRATION, lambda file: read_calibration(file, model))
        tagger.calibration = Calibration.of_arrays(arrays)
    return tagger
