"""The files of a run: how its parts are written into a folder, and read and checked again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp

from visterm.core import persist
from visterm.core.errors import CorruptFileError, DataError, StorageError
from visterm.core.jsonlines import write_skipped
from visterm.core.learned import Array, Csr, DenseOrCsr, Kind, Listed, Record, Sizes, Text, Whole
from visterm.core.packing import csr_of_parts
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.types import Matrix, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.data.tag_tree import TREE
from visterm.data.text_files import Reference
from visterm.encoders.contract import AnyEncoder
from visterm.models.base import Annotator
from visterm.models.confidence.calibration import Calibration
from visterm.tagging.word_places import WORDS, WordPlaces

T = TypeVar("T")

FINGERPRINT = "fingerprint"  # The key of the manifest for what `Run.fingerprint` was when the run was saved
GIVEN = "given.safetensors"  # In a run of images known by number: the tags that it learned from
LEARNED_IMAGES, SKIPPED = "learned_images.safetensors", "skipped.jsonl"
REFERENCE = "reference.json"
CALIBRATION = "calibration.safetensors"

FACTS_KIND = Record({"images": Whole(required=False)})
REFERENCE_KIND = Record({"counts": Listed(Whole(), "n_tags_"), "texts": Whole(least=1)})
SKIPPED_KIND = Record({"image": Text(), "reason": Text()})
GIVEN_KIND = Csr("float32", ("n_images", "n_tags_"), least=-1, most=1)
MODEL_KIND = Record({"tag_rows_": DenseOrCsr("float32", ("n_tags_", None), canonical=False)})


class Unread(NamedTuple):
    """A run on disk, of which most is read when it is first used: no search by words needs it.

    Attributes
    ----------
    folder : Path
    n_jobs : int or None
        The threads of the model and the encoder.
    has_tree : bool
        Whether there is a tree among the relations.
    tag_rows : array or CSR of float32, shape (n_tags, width), or None
        V of the model; None where V is the identity.
    fingerprint : str or None
        That of the encoder and the model; None where the manifest has none.
    """

    folder: Path
    n_jobs: int | None
    has_tree: bool
    tag_rows: Matrix | None
    fingerprint: str | None


def write_run(tagger: Any, folder: Path) -> None:
    """Write the parts of a `Tagger` into a folder that is being made."""
    persist.save_estimator(tagger.encoder, ENCODERS, folder, "encoder")
    persist.save_estimator(tagger.model, MODELS, folder, "model")
    persist.write_json(folder / "vocabulary.json", tagger.vocabulary.to_json())
    persist.write_json(folder / "facts.json", tagger.facts)
    write_skipped(folder / SKIPPED, tagger.skipped)
    tagger.learned_images.save(folder / LEARNED_IMAGES)
    tagger.relations.save(folder)
    tagger.words.save(folder)
    if tagger.given is not None:
        persist.save_csr(folder / GIVEN, tagger.given)
    if tagger.reference is not None:
        persist.write_json(folder / REFERENCE, tagger.reference.to_json())
    if tagger.calibration is not None:
        persist.save_arrays(folder / CALIBRATION, tagger.calibration.arrays())


def open_run(kind: type[T], path: str | os.PathLike[str], n_jobs: int | None, *, whole: bool = False) -> T:
    """Make a tagger of the class `kind` from a run, once its checksums hold, to use it with `n_jobs` threads.

    Unless it is read as a whole, what no search by words needs is read when it is first used (`Run.unread`).
    """
    folder = persist.open_folder(path, "run")
    tagger: Any = kind.__new__(kind)
    tagger._begin(
        None,
        read_part(folder / "vocabulary.json", lambda file: Vocabulary.from_json(persist.read_json(file))),
        read_part(folder / "facts.json", dict, FACTS_KIND),
    )
    n_tags = len(tagger.vocabulary.tags)
    fingerprint = persist.read_json(folder / persist.MANIFEST).get(FINGERPRINT)
    V = read_tag_rows(folder, n_tags)
    tagger.unread = Unread(
        folder, n_jobs, (folder / TREE).exists(), V, fingerprint if isinstance(fingerprint, str) else None
    )
    for part in ("model", "encoder", "skipped", "learned_images", "relations") if whole else ():
        getattr(tagger, part)
    if (folder / WORDS).exists():
        with persist.refusing(folder):
            words = tagger.words = WordPlaces.load(folder, lambda: tagger.encoder)
            if words.added:
                width = n_tags if V is None else V.shape[1]
                Array("float32", (len(words.added), width)).check(words.rows, Sizes())
    if (folder / GIVEN).exists():
        tagger.given = read_part(folder / GIVEN, partial(read_given, n_tags=n_tags, encoder=tagger.encoder))
    if (folder / REFERENCE).exists():
        tagger.reference = read_part(folder / REFERENCE, Reference.from_json, REFERENCE_KIND, n_tags)
    if (folder / CALIBRATION).exists():
        tagger.calibration = read_part(
            folder / CALIBRATION, lambda file: Calibration.of_arrays(persist.load_arrays(file), n_tags)
        )
    found: T = tagger
    return found


def check_opens(kind: type, folder: Path, example: Any = None) -> None:
    """Open a run as a tagger of a class, and tag an image; without one, or if it can't be read, a row that is made up.

    Raises StorageError if either fails: such a run is of no use, and may not take the place of another.
    """
    try:
        run: Any = open_run(kind, folder, None, whole=True)
        X: Matrix = sp.csr_array((np.ones(1, np.float32), [0], [0, 1]), shape=(1, run.model.n_features_in_))
        if example is not None and len((encoded := run.encoder.encode([example])).kept):
            X = encoded.rows
        run.model.annotate(X, 1)
        run.best_tags(X, 1)  # by the tree, with confidences
    except Exception as error:
        reason = str(error).replace(f"{folder}{os.sep}", "").removesuffix(persist.HOW_TO_MEND).strip(" .")
        raise StorageError(
            f"The run cannot be opened again ({reason or type(error).__name__}), so it is not used, and what was there "
            "before stays. Try another model, and please report this: it is a fault of visterm."
        ) from error


def read_tag_rows(folder: Path, n_tags: int) -> Matrix | None:
    """Read what searches by words need of a run's model: V, shape (n_tags, width); None where that is the identity.

    Raises CorruptFileError if the file is damaged, or the model knows another number of tags than the vocabulary has.
    """
    with persist.refusing(folder / "model.json"):
        n_known = persist.read_json(folder / "model.json")["values"]["n_tags_"]["value"]
        if n_known != n_tags:
            raise CorruptFileError(
                f"{folder}: the model knows {n_known} tags, and there are {n_tags} in vocabulary.json. "
                f"{persist.HOW_TO_MEND}"
            )
    file, name = folder / "model.safetensors", "tag_rows_"
    arrays = persist.load_arrays(file, name)
    if not arrays:
        return None
    with persist.refusing(file):
        V: Matrix = arrays[name] if name in arrays else csr_of_parts(name, arrays)
        MODEL_KIND.check({name: V}, Sizes({"n_tags_": n_tags}))
    return V


def read_encoder(folder: Path, model: Annotator, n_jobs: int | None) -> AnyEncoder:
    """Read the encoder of a run."""
    encoder: AnyEncoder = persist.load_estimator(ENCODERS, folder, "encoder")
    with persist.refusing(folder / "model.json"):
        check_encoder(encoder, model)
    if hasattr(encoder, "n_jobs"):
        encoder.n_jobs = n_jobs
    return encoder


def read_part(file: Path, read: Callable[[Any], T], kind: Kind | None = None, n_tags: int = 0) -> T:
    """Read a file of a run, check it, and make of it what `read` makes.

    With a `kind` the file is JSON, whose value is checked and given to `read`; without one `read` takes the file. The
    word "n_tags_" in shapes stands for `n_tags`. Raises CorruptFileError if the file is damaged, or not of this run.
    """
    with persist.refusing(file):
        value = file if kind is None else persist.read_json(file)
        if kind is not None:
            kind.check(value, Sizes({"n_tags_": n_tags}))
        return read(value)


def read_skips(file: Path) -> list[Skipped]:
    """Read the list of images that were left out, and refuse lines of another form."""
    with file.open(encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    for entry in found:
        SKIPPED_KIND.check(entry, Sizes())
    return [Skipped(**entry) for entry in found]


def check_encoder(encoder: AnyEncoder, model: Annotator) -> None:
    """Refuse an encoder whose rows the model cannot take, or that names fewer images than the model knows by number."""
    width, expected = encoder.width, getattr(model, "n_features_in_", None)
    if width is not None and expected is not None and width != expected:
        raise DataError(f"the encoder gives rows of {width} features, but the model takes {expected}")
    n_named = len(getattr(encoder, "names_", ()))
    if getattr(model, "by_number_", False) and expected is not None and expected > n_named:
        raise DataError(f"the model knows {expected} images by number, but the encoder names {n_named}")


def read_given(file: Path, n_tags: int, encoder: AnyEncoder) -> Any:
    """Read the tags that images known by number were learned with, and refuse those of other images or tags."""
    given = persist.load_csr(file)
    GIVEN_KIND.check(given, Sizes({"n_tags_": n_tags}))
    if encoder.width not in (None, given.shape[0]):
        raise DataError(f"there are tags of {given.shape[0]} images, but the encoder knows {encoder.width}")
    return given
