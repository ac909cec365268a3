"""Tag images one after another: encode them in chunks, rank their tags, and return the tags with confidences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain, groupby, islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_choice, check_number
from visterm.core.errors import UserError
from visterm.core.progress import SILENT, Progress, StepProgress
from visterm.core.tables import ENCODERS
from visterm.core.types import CHUNK, Chunk, Doubles, Floats, Ints, Matrix, Ranking, Skipped, Tag
from visterm.data.frames import Framed, first_of, pictures
from visterm.data.image_folders import Unsearched, is_video
from visterm.features.folder import is_features
from visterm.features.streaming.shards import stored_chunks
from visterm.features.training_rows import Photos, as_images, is_name
from visterm.features.video_rows import encode_all
from visterm.learning.run import Run
from visterm.learning.word_places import rank_with_added
from visterm.models.base import Annotator
from visterm.models.confidence.calibration import MEANS, Calibration, cutoff_for_precision, cutoff_of_best_f1

if TYPE_CHECKING:
    from visterm.store.tags import Prediction

Scored = TypeVar("Scored", bound="Tag | Prediction")

DEFAULT_K = 5
BY_NUMBER_CHUNK = 2**14  # Images known by number at a time: they have no features to keep in memory
MAX_SCORES = 2**23  # Maximum number of scores in memory when the scores of all tags are needed


class Annotated(NamedTuple):
    """One image with its tags, best first."""

    image: str
    """The image's name, as it was passed."""
    tags: list[Tag]
    """The tags, each with ``tag``, ``score`` and ``confidence``."""

    def as_dict(self) -> dict[str, object]:
        """Return the image and its tags in their JSON form."""
        return {"image": self.image, "tags": [tag.as_dict() for tag in self.tags]}

    def _repr_html_(self) -> str:
        """Show the photo with its tags and their confidences in a notebook."""
        return Annotations([self], [])._repr_html_()


class _Annotations(NamedTuple):
    images: list[Annotated]
    """The images that were tagged."""
    skipped: list[Skipped]
    """The images that were not tagged, with reasons."""


class Annotations(Framed, _Annotations):
    """The images that were tagged, and the images that could not be read or that the encoder does not know.

    As a DataFrame (`to_pandas`, `to_polars`) it has a row for each tag of an image: ``image``, ``rank`` from 1,
    ``tag``, ``confidence`` and ``score``.
    """

    __slots__ = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each tag of an image, best first."""
        return [
            {"image": item.image, "rank": rank, "tag": tag.tag, "confidence": tag.confidence, "score": tag.score}
            for item in self.images
            for rank, tag in enumerate(item.tags, 1)
        ]

    def __repr__(self) -> str:
        return f"Annotations(images={first_of(self.images)}, skipped={first_of(self.skipped)})"

    def _repr_html_(self) -> str:
        captions = (
            ", ".join(tag.tag if tag.confidence is None else f"{tag.tag} {tag.confidence:.0%}" for tag in item.tags)
            for item in self.images
        )
        lines = ((item.image, item.image, caption) for item, caption in zip(self.images, captions, strict=True))
        return pictures(lines, len(self.images))


class TagsWanted(NamedTuple):
    """The number and the kind of tags to return per image, see `Tagger.annotate`."""

    k: int | None = None
    new_only: bool = False
    added: bool = False
    precision: float | None = None
    best_f1: bool | str = False
    min_confidence: float | None = None


class ChunkTagger:
    """Tags the images of chunks. Raises UserError if the run doesn't support the request."""

    def __init__(self, run: Run, request: TagsWanted) -> None:
        if request.new_only and run.given is None:
            raise UserError(
                "`new_only` needs images that are known by number, and the encoder of this run is "
                f"'{ENCODERS.name_of(run.encoder)}'.",
                setting="new_only", value=True, advice="Leave `new_only` out, or fit with the encoder ids.",
            )  # fmt: skip
        self._cutoff = cutoff_of(
            run.calibration, precision=request.precision, best_f1=request.best_f1, min_confidence=request.min_confidence
        )
        if self._cutoff is not None and request.added:
            raise UserError(
                "Words that were added have no confidence, because no training image has them.",
                setting="added", value=True, advice="Leave `added` out, or pass a number of tags (`k`).",
            )  # fmt: skip
        self._run, self._request = run, request
        self._k = (DEFAULT_K if self._cutoff is None else 0) if request.k is None else request.k

    def of(self, chunk: Chunk) -> Iterator[Annotated | Skipped]:
        """Yield the skipped images, then the other images with their tags."""
        yield from chunk.skipped
        if not chunk.names:
            return
        k = self._k
        step = len(chunk.names)
        if self._run.tree is not None:  # needs the scores of all tags
            step = max(1, MAX_SCORES // len(self._run.vocabulary))
        parts = (self._tags_of(chunk.rows[start : start + step]) for start in range(0, len(chunk.names), step))
        for name, rows in groupby(zip(chunk.names, chain.from_iterable(parts), strict=True), key=itemgetter(0)):
            if is_video(name):  # one row per frame
                yield Annotated(name, reduce(best_of, (tags for _, tags in rows))[: k or None])
            else:
                yield from (Annotated(name, tags) for _, tags in rows)

    def _tags_of(self, X: Matrix) -> Iterator[list[Tag]]:
        run, k = self._run, self._k
        known_tags = run.known_tags(X) if self._request.new_only else None
        rankings: Iterable[tuple[Ints, Floats]]
        confidences = None
        if run.tree is not None:
            scores, confidences = run.scores_and_confidences(X)
            rankings = _ranked(scores, confidences, self._cutoff, known_tags, k)
        elif self._cutoff is not None and run.calibration is not None:
            blocks = ((block, run.calibration.confidences(block)) for _, block in run.model.score_blocks(X))
            rankings = chain.from_iterable(_ranked(*block, self._cutoff, None, k) for block in blocks)
        elif known_tags is not None:
            rankings = new_tags(run.model, X, k, known_tags)
        else:
            rankings = zip(*run.model.annotate(X, k), strict=True)
        if self._request.added and run.words.added:
            rankings = rank_with_added(rankings, run.model, X, run.words, k)
        return _with_names(run, list(rankings), confidences)


def annotate_each(
    run: Run, images: Photos, request: TagsWanted, *, progress: Progress = SILENT
) -> Iterator[Annotated | Skipped]:
    """Yield tagged images one after another, to limit the memory; see `Tagger.annotate`."""
    chunk_tagger = ChunkTagger(run, request)
    are_features_folders = isinstance(images, list | tuple) and bool(images) and all(map(is_features, images))
    try:
        if are_features_folders or is_features(images):
            for chunk in stored_chunks(run.encoder, cast("str | list[str]", images), progress):
                yield from chunk_tagger.of(chunk)
            return
        with_videos = run.encoder.reads != "names"
        inputs, unsearched = [images] if is_name(run.encoder, images) else images, Unsearched()
        names, items = as_images(inputs, unsearched=unsearched, videos=with_videos)
        yield from unsearched.closed
        run.encoder.refuse_unknown(items, only_if_all=True)
        progress.start("tag photos", len(items))
        step = BY_NUMBER_CHUNK if run.encoder.by_number else CHUNK
        for start in range(0, len(items), step):
            X, positions, skipped = encode_all(run.encoder, items[start : start + step], StepProgress(progress))
            yield from chunk_tagger.of(Chunk([names[start + position] for position in positions], X, skipped))
    finally:
        progress.finish()


def best_of(first: Sequence[Scored], second: Sequence[Scored]) -> list[Scored]:
    """Merge the tags (`Tag` or `Prediction`) of two frames of a video, each with its higher score; best first."""
    best_by_tag: dict[str, Scored] = {}
    for tag in sorted([*first, *second], key=attrgetter("score"), reverse=True):
        best_by_tag.setdefault(tag.tag, tag)
    return [*best_by_tag.values()]


def _ranked(
    scores: Floats, confidences: Doubles | None, cutoff: Doubles | None, known_tags: sp.csr_array | None, k: int
) -> Iterator[tuple[Ints, Floats]]:
    """Yield ids and scores of each image's `k` best tags (0: all) above the cut-off, without its known tags."""
    allowed = np.ones(scores.shape, np.bool_) if cutoff is None or confidences is None else confidences >= cutoff
    if known_tags is not None:
        allowed &= known_tags.toarray() == 0
    for row, row_allowed in zip(scores, allowed, strict=True):
        ids = np.flatnonzero(row_allowed)
        ids = ids[np.lexsort((ids, -row[ids]))][: k or None]
        yield ids, row[ids]


def _with_names(run: Run, rankings: list[tuple[Ints, Floats]], all_confidences: Doubles | None) -> Iterator[list[Tag]]:
    """Yield the tags of each image from their ids and scores; confidences are computed for all images at once.

    `all_confidences`, shape (n_images, n_tags), is set if confidences don't follow from the scores alone.
    """
    tags, words, n = run.vocabulary.tags, run.words.added, len(run.vocabulary)
    tag_ids = np.concatenate([np.asarray(ids, np.int64) for ids, _ in rankings])
    values = np.concatenate([np.asarray(scores, np.float64) for _, scores in rankings])
    confidences: list[float | None] = [None] * tag_ids.size
    if run.calibration is not None:
        # An added word has no calibration: the confidence of tag 0 is computed instead, and not used.
        columns = np.where(tag_ids < n, tag_ids, 0)
        if all_confidences is None:
            confidences = run.calibration.confidences(values, columns).tolist()
        else:
            confidences = all_confidences[
                np.repeat(np.arange(len(rankings)), [len(ids) for ids, _ in rankings]), columns
            ].tolist()

    named_tags = (
        Tag(tags[i], s, confidence=confidence) if i < n else Tag(words[i - n], s, trained=False)
        for i, s, confidence in zip(tag_ids.tolist(), values.tolist(), confidences, strict=True)
    )
    for ids, _ in rankings:
        yield list(islice(named_tags, len(ids)))


def new_tags(model: Annotator, X: Matrix, k: int, known_matrix: sp.csr_array) -> list[Ranking]:
    """Rank the tags that images don't have in `known_matrix`, at most `k` per image (0: all)."""
    known_matrix = sp.csr_array(known_matrix)
    max_known = int(np.diff(known_matrix.indptr).max(initial=0))
    ids, scores = model.annotate(X, k + max_known if k else 0)
    rankings = []
    for start in range(0, X.shape[0], CHUNK):
        is_known = known_matrix[start : start + CHUNK].toarray() != 0
        for row, is_new in enumerate(~np.take_along_axis(is_known, ids[start : start + CHUNK], axis=1), start):
            new = np.flatnonzero(is_new)[: k or None]
            rankings.append(Ranking(ids[row, new], scores[row, new]))
    return rankings


def cutoff_of(
    calibration: Calibration | None,
    *,
    precision: float | None,
    best_f1: bool | str = False,
    min_confidence: float | None = None,
) -> Doubles | None:
    """Return the requested cut-off of each tag; None without a request.

    Each image then gets all tags above the cut-off for an expected `precision` over the held-out images (see
    `cutoff_for_precision`), for the best F1 ("photo", "micro" or "macro", see `cutoff_of_best_f1`; True is "photo"), or
    of `min_confidence`. With `min_confidence` and one of the others, the higher cut-off of each tag is used. Raises
    UserError if a setting is out of its range, both precision and F1 are requested, or the run has no data to compute
    the cut-off.
    """
    if precision is not None:
        check_number(precision, "precision", above=0, below=1)
    if min_confidence is not None:
        check_number(min_confidence, "min_confidence", least=0, most=1)
    mean = "photo" if best_f1 is True else best_f1
    if mean:
        check_choice(mean, "best_f1", MEANS)
    if precision is not None and mean:
        raise UserError(
            "`precision` and `best_f1` are two cut-offs.",
            setting="precision", value=precision, advice="Leave one of the two out.",
        )  # fmt: skip

    requested = {"precision": precision, "best_f1": mean or None, "min_confidence": min_confidence}
    setting = next((name for name, value in requested.items() if value is not None), None)
    if setting is None:
        return None
    held_out = None if calibration is None else calibration.held_out
    if calibration is None or (held_out is None and setting != "min_confidence"):
        raise UserError(
            f"`{setting}` needs a run with confidences{' of held-out photos' * (calibration is not None)}.",
            setting=setting, value=requested[setting],
            advice=f"Fit the run again with at least 20 photos, not all with the same tags, or leave `{setting}` out.",
        )  # fmt: skip

    cutoff: Doubles = np.full(calibration.slope.size, min_confidence or 0.0)
    if held_out is None or setting == "min_confidence":
        return cutoff
    chosen = cutoff_of_best_f1(held_out, str(mean)) if precision is None else cutoff_for_precision(held_out, precision)
    return np.maximum(chosen, cutoff)
