"""A tagger learns from a features folder that does not fit in memory: tags joined, rows surveyed, then streamed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from visterm.core.errors import UserError, VistermError
from visterm.core.packing import json_params
from visterm.core.persist import file_hash, save_arrays
from visterm.core.progress import SILENT, Progress
from visterm.core.tables import MODELS
from visterm.core.writing import whole_file
from visterm.data.tag_files import check_in_file
from visterm.features.learned_images import LearnedImages
from visterm.features.streaming.joining import BYTES_A_WORD, NO_SPLIT, PAIRS, VALID, JoinedTags
from visterm.features.streaming.memory import WINDOWS, Plan
from visterm.features.streaming.shards import Shards
from visterm.features.streaming.windows import RowCopy, ShardWindows, Survey, draw_positions, survey
from visterm.features.training_rows import NONE_HELD_OUT, TrainingRows
from visterm.models.abilities import FitsStreams
from visterm.models.base import Annotator
from visterm.models.ranking.streamed_fit import Checkpoint
from visterm.tagging.run import Run

MOST_COUNTED = 20_000  # Images in whose tags the calibration counts how frequent tags are
VALID_SHARE = 0.1
EVERY = 20.0  # Seconds between checkpoints, at least, and 20 times as long as one takes
CHECKPOINT = "checkpoint.safetensors"
OF, FACTS = "of", "facts"


def check_streams(model: Annotator, n_folders: int = 1) -> None:
    """Refuse a model that cannot learn from windows of rows, as features larger than memory or of several folders do.

    Raises UserError if so; it names those that can.
    """
    if isinstance(model, FitsStreams):
        return
    able = [entry.name for entry in MODELS if not entry.extra and issubclass(MODELS.load(entry.name), FitsStreams)]
    why, otherwise = "do not fit in the memory that may be used", "or allow more (--memory)"
    if n_folders > 1:
        why, otherwise = f"lie in {n_folders} folders, which are streamed", "or encode all photos into one"
    raise UserError(
        f"The features {why}, and the model '{MODELS.name_of(model)}' needs all at once. Choose one that streams them "
        f"(--model {', '.join(able)}), {otherwise}."
    )


def fit_streamed(
    tagger: Run,
    features: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    tags: Any,
    plan: Plan,
    *,
    work: str | os.PathLike[str],
    seed: int = 0,
    valid: float | None = None,
    split: str | None = None,
    idf: str | os.PathLike[str] | None = None,
    aliases: Mapping[str, str] | None = None,
    calibration: bool = True,
    every: float = EVERY,
    progress: Progress = SILENT,
    **columns: str | None,
) -> list[str]:
    """Fit a tagger on features on disk, in memory that does not grow with the number of images; return remarks.

    The features are what `visterm encode` wrote, in one folder or several, all by one encoder; no image may be in two.
    The tags are a table; its names of images are paths inside the image folder. Rows are held out to say when to stop
    as `Tagger.fit` does, but 5,000 at most, and they are not learned from afterwards. The bytes of the model depend on
    the features, the tags, the size of the windows, and the seed: of the order of the shards, and of the rows held out;
    that of the training is the model's.

    Temporary files lie in `work`. After a kill the same call goes on from the last checkpoint in it, at least `every`
    seconds after the one before; the folder is removed at the end, or if the fit is refused before there is a
    checkpoint. The other options are as `Tagger.fit`, `Corpus.select` and `Corpus.read` take them. Raises UserError if
    the model cannot stream, or a setting cannot be used; DataError if the tags are in no table, or nothing is left to
    learn from.
    """
    shards = Shards(features)
    check_streams(tagger.model, shards.n_folders)
    check_in_file(tags)
    tagger.check_settings(valid)
    tagger.take_encoder(shards.encoder(tagger.model.get_params(deep=False).get("n_jobs")), shards.contents.asked)
    with _work_folder(Path(work)) as folder:
        joined = JoinedTags(
            folder, shards, tags, min_count=tagger.min_count, aliases=aliases, split=split,
            most_words=max(10_000, plan.memory // WINDOWS // BYTES_A_WORD), **columns,
        )  # fmt: skip
        tagger.refer_to(idf, joined.vocabulary)
        share = tagger.model.get_params(deep=False).get("valid_share", VALID_SHARE)
        copy = RowCopy.where_it_fits(folder, shards)
        found = survey(shards, joined, share, seed, plan, progress, copy)
        windows = ShardWindows(
            shards, joined, held_out=found.held_out, n_pairs=found.n_pairs, mean_length=found.mean_length,
            window=plan.window, seed=seed, copy=copy,
        )  # fmt: skip
        key = _training_key(tagger, shards, tags, plan, seed, split, aliases)
        checkpoints = FileCheckpoints(folder, key, every)
        tagger.model.fit_stream(windows, valid=found.valid, checkpoints=checkpoints, monitor=progress)
        _set_learned(tagger, shards, joined, found, plan)
        if calibration and found.valid is not None:
            others = joined.rows_at(draw_positions(shards, joined, joined.learned, MOST_COUNTED, seed + 1))
            rows = TrainingRows(joined.vocabulary, np.empty((0, 0), np.float32), others, found.valid, [])
            tagger.find_confidences(rows, progress)
        lines = [*joined.remarks]
        if found.valid is None and valid != 0:
            lines.append(NONE_HELD_OUT)
        if found.valid is None and calibration:
            lines.append("There are no confidences: streamed features teach them by images that are held out.")
        if checkpoints.went_on:
            lines.append("Went on from where the fit before was stopped.")
    return lines


class FileCheckpoints:
    """Keeps the last checkpoint in a folder, at least `every` seconds after the one before; 0 keeps each.

    `of` names the data, the settings and the windows: checkpoints of others are ignored. `went_on` says whether `last`
    returned one.
    """

    def __init__(self, folder: Path, of: str, every: float = EVERY) -> None:
        self._file, self._of, self._every = folder / CHECKPOINT, of, every
        self._next = time.monotonic() + every
        self.went_on = False

    def last(self) -> Checkpoint | None:
        """Return the last checkpoint; None if there is none of the same data and settings."""
        if not self._file.exists():
            return None
        with safe_open(self._file, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get(OF) != self._of:
                return None
            self.went_on = True
            return Checkpoint(json.loads(metadata[FACTS]), {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118

    def offer(self, make: Callable[[], Checkpoint]) -> None:
        """Write a checkpoint if enough time has passed; after a kill the one before is still whole."""
        began = time.monotonic()
        if began < self._next:
            return
        made = make()
        with whole_file(self._file) as temporary:
            save_arrays(temporary, made.arrays, {OF: self._of, FACTS: json.dumps(made.facts)})
        done = time.monotonic()
        self._next = done + max(self._every, 20 * (done - began) if self._every else 0.0)


@contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """Make a folder and remove it at the end; a refused fit keeps it if it has a checkpoint to go on from."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    except VistermError:
        if not (folder / CHECKPOINT).exists():
            shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _training_key(
    tagger: Run, shards: Shards, tags: Any, plan: Plan, seed: int, split: str | None, aliases: Mapping[str, str] | None
) -> str:
    """Return a hash of all that the bytes of the model depend on: checkpoints of another training are refused by it."""
    settings = {name: value for name, value in json_params(tagger.model).items() if name != "n_jobs"}
    parts = [
        MODELS.name_of(tagger.model), settings, [entry.sha256 for entry in shards.contents.shards], file_hash(tags),
        plan.window, seed, tagger.min_count, split, sorted((aliases or {}).items()),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _set_learned(tagger: Run, shards: Shards, tags: JoinedTags, found: Survey, plan: Plan) -> None:
    """Set what belongs to the learned model in the tagger: vocabulary, counts, images."""
    tagger.given, tagger.calibration = None, None
    tagger.vocabulary, tagger.skipped = tags.vocabulary, shards.skipped()
    tagger.learned_images = LearnedImages(_name_hashes(tags))
    tagger.facts = tagger.facts_of_fit(
        images=found.n_learned - found.held_out.size,
        held_out=0 if found.valid is None else found.valid[0].shape[0],
        tags_given=found.n_pairs,
        features=shards.contents.width,
    )
    tagger.facts |= {"streamed in windows of bytes": plan.window, **tags.understood.facts()}


def _name_hashes(tags: JoinedTags) -> NDArray[np.uint64]:
    """Return the hashes of the names that were learned from or held out, sorted: the one array of all images."""
    wanted = tags.learned if tags.learned == NO_SPLIT else tags.learned | VALID
    parts = [np.empty(0, np.uint64)]
    for start in range(0, len(tags.index.hashes), PAIRS):
        some = slice(start, start + PAIRS)
        parts.append(tags.index.hashes[some][(tags.bits[tags.index.positions[some]] & wanted) > 0])
    return np.concatenate(parts)
