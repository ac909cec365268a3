"""Fit on features that don't fit in memory: join the tags, survey the rows, then stream the rows in windows."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_magnitude, stack_rows
from visterm.core.errors import UserError, VistermError
from visterm.core.packing import json_params
from visterm.core.persist import file_hash
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.tables import MODELS
from visterm.core.threads import map_ahead
from visterm.core.types import Floats, Ints, Matrix, Place
from visterm.data.tag_formats.tables import check_in_file
from visterm.features.streaming.joining import NO_SPLIT, VALID, TagsOnDisk
from visterm.features.streaming.memory import Plan
from visterm.features.streaming.shards import Shards, grouped
from visterm.features.training_rows import NONE_HELD_OUT, TrainingRows
from visterm.learning.calibrating import with_confidences
from visterm.learning.fit_input import Cleaning, check_streams, encoder_of, reference_of
from visterm.learning.fit_request import FitRequest
from visterm.learning.learned import Learned, LearnedImages
from visterm.models.base import MAX_FEATURE, Annotator
from visterm.models.ranking.training import CHECKPOINT, CHECKPOINT_SECONDS, FileCheckpoints
from visterm.models.stopping import MIN_HELD_OUT

IMAGES_PER_DRAW = 2**20  # Number of images whose keys are from one generator
MAX_VALID_ROWS = 5000  # Maximum number of validation rows: more are hardly more precise, and slow down every epoch
MAX_COUNTED_IMAGES = 20_000  # Number of images whose tags give the frequencies of tags for the calibration
VALID_SHARE = 0.1


class Survey(NamedTuple):
    """The result of one pass over the rows."""

    mean_length: float  # Root mean square length of the training rows, held-out rows included
    valid: tuple[Matrix, sp.csr_array] | None  # Validation rows for early stopping
    held_out: Ints  # Sorted positions of the validation rows, if they are taken from the training rows
    # Numbers of training images, and of their tags
    n_learned: int
    n_pairs: int


def survey(shards: Shards, tags: TagsOnDisk, share: float, seed: int, plan: Plan, progress: Progress) -> Survey:
    """Read all rows once: check the shards, measure the rows, and draw the validation rows for early stopping.

    Validation rows are from the split "valid" if there is one, otherwise a `share` of the training rows, unless these
    are fewer than 50.
    """
    n_learned = tags.count(tags.learned)
    n_split = 0 if tags.learned == NO_SPLIT else tags.count(VALID)
    max_valid = min(MAX_VALID_ROWS, max(MIN_HELD_OUT, plan.window // (4 * max(1, shards.contents.width))))
    n_valid = n_split or round(share * n_learned)
    chosen = draw_positions(shards, tags, VALID if n_split else tags.learned, min(n_valid, max_valid), seed)
    if not n_split and chosen.size < MIN_HELD_OUT:
        chosen = chosen[:0]

    squares, n_pairs = 0.0, 0
    parts: list[Matrix] = []
    with reported(progress, "survey features", shards.n_rows):
        for number in range(len(shards)):
            shards.check(number)
            rows: Any = shards.read(number).rows
            first, end = shards.starts[number : number + 2].tolist()
            check_magnitude(rows.data if sp.issparse(rows) else rows, MAX_FEATURE, "X")
            is_learned = tags.learned_among(first, end)
            measured = rows[np.flatnonzero(is_learned)] if sp.issparse(rows) or not is_learned.all() else rows
            values = (measured.data if sp.issparse(measured) else measured).reshape(-1)
            squares += float(np.einsum("i,i->", values, values, dtype=np.float64))
            n_pairs += tags.rows_at(first + np.flatnonzero(is_learned)).nnz
            low, high = np.searchsorted(chosen, [first, end])
            if high > low:
                parts.append(rows[chosen[low:high] - first])
            progress.advance(end - first)

    valid = (stack_rows(parts), tags.rows_at(chosen)) if chosen.size else None
    is_usable = valid is not None and valid[1].nnz > 0
    held_out = chosen[:0] if n_split or not is_usable else chosen
    n_pairs -= valid[1].nnz if valid is not None and held_out.size else 0
    return Survey(math.sqrt(squares / max(1, n_learned)), valid if is_usable else None, held_out, n_learned, n_pairs)


def draw_positions(shards: Shards, tags: TagsOnDisk, bit: int, n: int, seed: int) -> Ints:
    """Draw `n` positions of images with a bit uniformly, in one pass; the result is sorted.

    Each image draws a random key; the sample are the images with the smallest keys (reservoir sampling).
    """
    smallest, sample = np.empty(0), np.empty(0, np.int64)
    for start in range(0, shards.n_rows, IMAGES_PER_DRAW):
        bits = tags.bits[start : start + IMAGES_PER_DRAW]
        keys = np.random.default_rng([seed, start]).random(bits.size)
        candidates = np.flatnonzero(bits & bit)
        smallest, sample = np.append(smallest, keys[candidates]), np.append(sample, start + candidates)
        chosen = np.argsort(smallest, kind="stable")[:n]
        smallest, sample = smallest[chosen], sample[chosen]
    return np.sort(sample)


class ShardWindows:
    """The training images of a features folder, as the input of `fit_stream`.

    The shards of an epoch are in a random order that depends on the seed and the epoch, and are grouped into windows of
    up to `window` bytes; a larger shard is a window of its own. Training draws the order of pairs within a window.
    The images that `stats` holds out are left out.

    The attributes are those of `visterm.models.ranking.training.Windows`.
    """

    def __init__(self, shards: Shards, tags: TagsOnDisk, stats: Survey, *, window: int, seed: int) -> None:
        self._shards, self._tags, self._held_out = shards, tags, stats.held_out
        self._window, self._seed = window, seed
        self.n_features, self.n_tags = shards.contents.width, tags.n_tags
        self.n_pairs, self.mean_length = stats.n_pairs, stats.mean_length

    def plan(self, epoch: int) -> list[list[int]]:
        """Return the shards of each window of an epoch."""
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._shards)).tolist()
        return grouped(order, self._shards.sizes, self._window)

    def epoch(self, epoch: int, first: int = 0) -> Generator[tuple[Matrix, sp.csr_array]]:
        """Yield the windows of an epoch; the memory of a window is reused for the next window but one."""
        plan = self.plan(epoch)[first:]
        is_dense = self._shards.contents.layout == "dense"
        counts = np.diff(self._shards.starts)
        n_rows = max((int(counts[part].sum()) for part in plan), default=0) if is_dense else 0
        buffers = [np.empty((n_rows, self.n_features), np.float32) for _ in range(min(2, len(plan)))]
        yield from map_ahead(lambda number: self._read(plan[number], buffers[number % 2]), range(len(plan)))

    def _read(self, numbers: list[int], buffer: Floats) -> tuple[Matrix, sp.csr_array]:
        """Return the training rows and the tags of shards; dense rows are written into `buffer`."""
        parts, tags = [], []
        n_filled = 0
        for number in numbers:
            first, end = self._shards.starts[number : number + 2].tolist()
            is_learned = self._tags.learned_among(first, end)
            low, high = np.searchsorted(self._held_out, [first, end])
            is_learned[self._held_out[low:high] - first] = False
            chosen = np.flatnonzero(is_learned)
            tags.append(self._tags.rows_at(first + chosen))
            rows: Any = self._shards.read(number).rows
            if sp.issparse(rows):
                parts.append(rows[chosen])
            else:  # in the mode "raise", `take` copies the rows twice
                np.take(rows, chosen, axis=0, out=buffer[n_filled : n_filled + chosen.size], mode="clip")
                n_filled += chosen.size
        return stack_rows(parts) if parts else buffer[:n_filled], sp.csr_array(sp.vstack(tags, format="csr"))


def check_streamed(request: FitRequest, cleaning: Cleaning) -> None:
    """Raise UserError if a request for streamed features has options that need the tags of all images in memory."""
    options = {name: getattr(request, name) for name in ("queries", "relations", "word_vectors", "tree")}
    rules = ("part_of", "isa", "stop_tags", "max_share", "per_user")
    rule_options = {f"tag_rules.{rule}": getattr(request.rules, rule) or None for rule in rules}
    for setting, value in (options | {"words": cleaning.words or None} | rule_options).items():
        if value is not None:
            tree_advice = ", or write the tags above each tag into the table yourself" if setting == "tree" else ""
            raise UserError(
                f"`{setting}` needs the tags of all images in memory, but these features are streamed.",
                setting=setting, value=value, advice=f"Leave it out, or allow more `memory`{tree_advice}.",
            )  # fmt: skip


def fit_streamed(
    start: Learned,
    request: FitRequest,
    plan: Plan,
    *,
    aliases: Mapping[str, str] | None = None,
    any_encoder: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Progress = SILENT,
) -> tuple[Learned, list[str]]:
    """Learn from features on disk in limited memory; return the result of the fit, and remarks for people.

    `start` has the model, and the encoder of the features, unless `any_encoder` allows other encoders. The images of
    the request are one or several folders from `visterm encode`, made by the same encoder, without common images. Its
    tags are a table whose names of images are paths inside the image folder. Rows are held out for early stopping
    as in `Tagger.fit`, but at most 5,000, and the model doesn't learn from them later. The bytes of the model depend on
    the features, the tags, the size of the windows, the model's seed, and the seed of the request, for the order of the
    shards and the held-out rows.

    Temporary files are in the work folder of the request. After an interruption, the same call resumes from the last
    checkpoint, which is written at least `checkpoint_seconds` after the previous one; the folder is removed at the end,
    or after an error before the first checkpoint. Raises UserError if the model cannot stream, or a setting cannot be
    used; DataError if the tags are not a table, or no rows remain to learn from.
    """
    features: Any = request.images
    model, shards, tags, seed = start.model, Shards(features), request.tags, request.seed
    check_streams(model, shards.n_folders)
    check_in_file(tags)
    fitted_encoder = shards.encoder(getattr(model, "n_jobs", None))
    encoder = encoder_of(start.encoder, fitted_encoder, shards.contents.asked, any_encoder=any_encoder)

    with _work_folder(request.work_folder()) as folder:
        columns = request.rules.columns()
        table = TagsOnDisk(
            folder, shards, tags, min_count=request.min_count, aliases=aliases, split=request.split, **columns
        )
        reference = None if request.idf is None else reference_of(request.idf, encoder, table.vocabulary)
        start = start.changed(encoder=encoder, reference=reference)
        share = getattr(model, "valid_share", VALID_SHARE) if request.valid is None else request.valid
        stats = survey(shards, table, share, seed, plan, progress)
        windows = ShardWindows(shards, table, stats, window=plan.window, seed=seed)
        settings = [plan.window, seed, request.min_count, request.split, sorted((aliases or {}).items())]
        checkpoints = FileCheckpoints(folder, _training_key(model, shards, tags, settings), checkpoint_seconds)
        model.fit_stream(windows, valid=stats.valid, checkpoints=checkpoints, monitor=progress)
        learned = _learned(start, shards, table, stats, plan)
        if request.calibrate and stats.valid is not None:
            counted_tags = table.rows_at(draw_positions(shards, table, table.learned, MAX_COUNTED_IMAGES, seed + 1))
            rows = TrainingRows(table.vocabulary, np.empty((0, 0), np.float32), counted_tags, stats.valid, [])
            learned = with_confidences(learned, rows, progress)
        lines = [*table.remarks]
        if stats.valid is None and request.valid != 0:
            lines.append(NONE_HELD_OUT)
        if stats.valid is None and request.calibrate:
            lines.append("There are no confidences: with streamed features, they need held-out images.")
        if checkpoints.resumed:
            lines.append("Resumed from the checkpoint of an interrupted fit.")
    return learned, lines


@contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """Make a folder and remove it at the end; after an error, keep it if it has a checkpoint to resume from."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    except VistermError:
        if not (folder / CHECKPOINT).exists():
            shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _training_key(model: Annotator, shards: Shards, tags: Place, settings: Sequence[object]) -> str:
    """Return a hash of everything that determines the bytes of the model, to recognize checkpoints of the training."""
    params = {name: value for name, value in json_params(model).items() if name != "n_jobs"}
    sums = [entry.sha256 for entry in shards.contents.shards]
    parts = [MODELS.name_of(model), params, sums, file_hash(tags), *settings]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _learned(start: Learned, shards: Shards, tags: TagsOnDisk, stats: Survey, plan: Plan) -> Learned:
    """Return the result of the fit: vocabulary, counts, and the sorted hashes of image names."""
    split_bits = tags.learned if tags.learned == NO_SPLIT else tags.learned | VALID
    hashes = tags.index.hashes[(tags.bits[tags.index.positions] & split_bits) > 0]
    learned = start.changed(vocabulary=tags.vocabulary, skipped=shards.skipped(), learned_images=LearnedImages(hashes))
    facts = learned.counts(
        stats.n_learned - stats.held_out.size, shards.contents.width, tags_given=stats.n_pairs,
        held_out=0 if stats.valid is None else stats.valid[0].shape[0],
    )  # fmt: skip
    return learned.changed(facts=facts | {"streamed in windows of bytes": plan.window, **tags.understood.facts()})
