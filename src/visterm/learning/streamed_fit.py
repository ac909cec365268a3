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
from safetensors import safe_open

from visterm.core.errors import UserError, VistermError
from visterm.core.packing import json_params
from visterm.core.persist import file_hash, save_arrays
from visterm.core.progress import SILENT, Progress
from visterm.core.tables import MODELS
from visterm.core.writing import whole_file
from visterm.data.tag_formats.tables import check_in_file
from visterm.features.streaming.joining import BYTES_A_WORD, NO_SPLIT, PAIRS, VALID, TagsOnDisk
from visterm.features.streaming.memory import WINDOWS, Plan
from visterm.features.streaming.shards import Shards
from visterm.features.streaming.windows import RowCopy, ShardWindows, Survey, draw_positions, survey
from visterm.features.training_rows import NONE_HELD_OUT, TrainingRows
from visterm.learning.calibrating import with_confidences
from visterm.learning.fit_input import Cleaning, check_streams, encoder_of, reference_of
from visterm.learning.fit_request import FitRequest
from visterm.learning.learned import Learned, LearnedImages
from visterm.models.base import Annotator
from visterm.models.ranking.training import Checkpoint

MOST_COUNTED = 20_000  # Images in whose tags the calibration counts how frequent tags are
VALID_SHARE = 0.1
EVERY = 20.0  # Seconds between checkpoints, at least, and 20 times as long as one takes
CHECKPOINT = "checkpoint.safetensors"


def check_streamed(request: FitRequest, cleaning: Cleaning) -> None:
    """Refuse what a request asks for beside features that are streamed: what needs the tags of all images in memory."""
    unusable = {name: getattr(request, name) for name in ("queries", "relations", "word_vectors", "tree")}
    unusable["words"] = cleaning.words or None
    for rule in ("part_of", "isa", "stop_tags", "max_share", "per_user"):
        unusable[f"tag_rules.{rule}"] = getattr(request.rules, rule) or None
    for setting, value in unusable.items():
        if value is not None:
            otherwise = (
                ", or write the tags above each tag into the table of tags yourself" if setting == "tree" else ""
            )
            raise UserError(
                f"`{setting}` needs the tags of all images in memory, and these features are streamed.",
                setting=setting, value=value, advice=f"Leave it out, or allow more `memory`{otherwise}.",
            )  # fmt: skip


def fit_streamed(
    start: Learned,
    features: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    tags: Any,
    plan: Plan,
    *,
    work: str | os.PathLike[str],
    any_encoder: bool = False,
    min_count: int = 1,
    seed: int = 0,
    valid: float | None = None,
    split: str | None = None,
    idf: str | os.PathLike[str] | None = None,
    aliases: Mapping[str, str] | None = None,
    calibration: bool = True,
    every: float = EVERY,
    progress: Progress = SILENT,
    **columns: str | None,
) -> tuple[Learned, list[str]]:
    """Learn from features on disk, in memory that does not grow with the number of images; return remarks, too.

    `start` has the model, and the encoder that the features must be of, unless they may be of `any_encoder`.
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
    model, shards = start.model, Shards(features)
    check_streams(model, shards.n_folders)
    check_in_file(tags)
    fitted = shards.encoder(getattr(model, "n_jobs", None))
    start = start.changed(encoder=encoder_of(start.encoder, fitted, shards.contents.asked, any_encoder=any_encoder))

    with _work_folder(Path(work)) as folder:
        joined = TagsOnDisk(
            folder, shards, tags, min_count=min_count, aliases=aliases, split=split,
            most_words=max(10_000, plan.memory // WINDOWS // BYTES_A_WORD), **columns,
        )  # fmt: skip
        start = start.changed(reference=None if idf is None else reference_of(idf, start.encoder, joined.vocabulary))
        share = getattr(model, "valid_share", VALID_SHARE) if valid is None else valid
        row_copy = RowCopy.where_it_fits(folder, shards)
        surveyed = survey(shards, joined, share, seed, plan, progress, row_copy)
        windows = ShardWindows(
            shards, joined, held_out=surveyed.held_out, n_pairs=surveyed.n_pairs, mean_length=surveyed.mean_length,
            window=plan.window, seed=seed, copy=row_copy,
        )  # fmt: skip
        settings = [plan.window, seed, min_count, split, sorted((aliases or {}).items())]
        checkpoints = FileCheckpoints(folder, _training_key(model, shards, tags, settings), every)
        model.fit_stream(windows, valid=surveyed.valid, checkpoints=checkpoints, monitor=progress)
        learned = _learned(start, shards, joined, surveyed, plan)
        if calibration and surveyed.valid is not None:
            others = joined.rows_at(draw_positions(shards, joined, joined.learned, MOST_COUNTED, seed + 1))
            rows = TrainingRows(joined.vocabulary, np.empty((0, 0), np.float32), others, surveyed.valid, [])
            learned = with_confidences(learned, rows, progress)
        lines = [*joined.remarks]
        if surveyed.valid is None and valid != 0:
            lines.append(NONE_HELD_OUT)
        if surveyed.valid is None and calibration:
            lines.append("There are no confidences: streamed features teach them by images that are held out.")
        if checkpoints.went_on:
            lines.append("Went on from where the fit before was stopped.")
    return learned, lines


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
            if metadata.get("of") != self._of:
                return None
            self.went_on = True
            return Checkpoint(json.loads(metadata["facts"]), {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118

    def offer(self, make: Callable[[], Checkpoint]) -> None:
        """Write a checkpoint if enough time has passed; after a kill the one before is still whole."""
        began = time.monotonic()
        if began < self._next:
            return
        made = make()
        with whole_file(self._file) as temporary:
            save_arrays(temporary, made.arrays, {"of": self._of, "facts": json.dumps(made.facts)})
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


def _training_key(model: Annotator, shards: Shards, tags: str | os.PathLike[str], settings: Sequence[object]) -> str:
    """Return a hash of all that the bytes of the model depend on: checkpoints of another training are refused by it."""
    params = {name: value for name, value in json_params(model).items() if name != "n_jobs"}
    sums = [entry.sha256 for entry in shards.contents.shards]
    parts = [MODELS.name_of(model), params, sums, file_hash(tags), *settings]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _learned(start: Learned, shards: Shards, tags: TagsOnDisk, surveyed: Survey, plan: Plan) -> Learned:
    """Return what was learned: vocabulary, counts, and the names' hashes, sorted: the one array of all images."""
    wanted = tags.learned if tags.learned == NO_SPLIT else tags.learned | VALID
    hashes = [np.empty(0, np.uint64)]
    for first in range(0, len(tags.index.hashes), PAIRS):
        part = slice(first, first + PAIRS)
        hashes.append(tags.index.hashes[part][(tags.bits[tags.index.positions[part]] & wanted) > 0])
    learned = start.changed(
        vocabulary=tags.vocabulary, skipped=shards.skipped(), learned_images=LearnedImages(np.concatenate(hashes))
    )
    facts = learned.counts(
        surveyed.n_learned - surveyed.held_out.size, shards.contents.width, tags_given=surveyed.n_pairs,
        held_out=0 if surveyed.valid is None else surveyed.valid[0].shape[0],
    )  # fmt: skip
    return learned.changed(facts=facts | {"streamed in windows of bytes": plan.window, **tags.understood.facts()})
