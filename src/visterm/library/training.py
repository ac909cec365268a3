"""What a catalogue has to learn from: feature rows, tags that images have and have not, and which are held out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import stack_rows
from visterm.core.errors import DataError
from visterm.core.types import Matrix
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.learning.learned import Learned
from visterm.library.encoded_features import CatalogueFeatures
from visterm.library.learned import FEWEST_COMPARED
from visterm.metrics.ranking import average_precisions
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import ImageRecord
from visterm.tagging.tagger import Tagger

HELD_OUT = 10  # One image in this many is held out
BACKGROUND = 2000  # Images that models which learn all tags in a moment learn from at least, if there are so many
MOST_SCORES = 2**26  # Scores that are looked at to compare two runs: where there are very many tags, fewer images are
BY_CONTENT = "held out by content"  # The fact of a run that all it learned from is remembered by content


@dataclass(frozen=True)
class CatalogueImages:
    """Some images to learn from, or to judge by, one entry of each in all."""

    images: list[ImageRecord]
    X: Matrix  # shape (n_images, n_features)
    tags: list[list[str]]  # Given or accepted
    negatives: list[list[str]]  # Rejected

    def __len__(self) -> int:
        return len(self.images)

    @property
    def n_tagged(self) -> int:
        """Images with a tag."""
        return sum(map(bool, self.tags))

    def subset(self, places: Sequence[int] | NDArray[np.int64]) -> CatalogueImages:
        """Return some of the images."""
        chosen = np.asarray(places, np.int64)
        rows = chosen.tolist()
        return CatalogueImages(
            [self.images[i] for i in rows],
            self.X[chosen],
            [self.tags[i] for i in rows],
            [self.negatives[i] for i in rows],
        )

    def encode(self, vocabulary: Vocabulary) -> sp.csr_array:
        """Return the tags as a signed matrix, shape (n_images, n_tags)."""
        return vocabulary.encode(self.tags, self.negatives)


def gathered(
    tagger: Tagger, stored: StoredCatalogue, features: CatalogueFeatures, min_count: int = 1
) -> tuple[CatalogueImages, CatalogueImages]:
    """Return what is to be learned from, and what is held out: always the same images, by their content.

    No tag is given up for a comparison: an image is held out only if `min_count` others with each of its tags are left
    to learn from, and none is where fewer than 20 with tags would be. Raises what `all_said` raises.
    """
    everything = all_said(tagger, stored, features)
    known = tagger.vocabulary
    meant = [
        {tag_key(tag if tag not in known else known.tags[known.index(tag)]) for tag in tags} for tags in everything.tags
    ]
    remaining = Counter(tag for tags in meant for tag in tags)
    out = np.zeros(len(everything), np.bool_)
    by_content = sorted(range(len(everything)), key=lambda position: everything.images[position].sha256)

    for position in by_content:
        tags = meant[position]
        if is_held_out(everything.images[position]) and all(remaining[tag] != min_count for tag in tags):
            out[position] = True
            remaining.subtract(tags)
    if sum(bool(meant[position]) for position in np.flatnonzero(out)) < FEWEST_COMPARED:
        out[:] = False
    return everything.subset(np.flatnonzero(~out)), everything.subset(np.flatnonzero(out))


def all_said(tagger: Tagger, stored: StoredCatalogue, features: CatalogueFeatures) -> CatalogueImages:
    """Return all images that people said something of.

    A video stands for its tags with one frame, see `_with_best_frames`. Raises DataError if no image has a tag, or
    none of them can be read.
    """
    current_tags, rejected = stored.tags.held(), stored.tags.rejected()
    ids, X = features.rows(sorted(current_tags.keys() | rejected.keys()))
    if not any(i in current_tags for i in ids):  # what was rejected alone says nothing of what images show
        raise DataError(
            "No image of the catalogue has a tag to learn from. Add or accept some, or index the images with the tags "
            "that they have (visterm index CATALOGUE PHOTOS --tags FILE)."
        )
    tags, negatives = [current_tags.get(i, []) for i in ids], [rejected.get(i, []) for i in ids]
    if tagger.tree is not None:
        tags, negatives = tagger.tree.words.completed(tags, negatives)
    return _with_best_frames(CatalogueImages(stored.images.get_many(ids), X, tags, negatives), tagger, stored, features)


def _with_best_frames(
    part: CatalogueImages, tagger: Tagger, stored: StoredCatalogue, features: CatalogueFeatures
) -> CatalogueImages:
    """Return images with the row of its best frame for each video.

    A person saw the whole video, and a tag is of some of its frames only. The best frame has the largest sum of scores
    of the tags that were given or rejected, as far as the run knows them; it knows none: the first.
    """
    frames_of = stored.frames.by_video(image.id for image in part.images)
    if not frames_of:
        return part
    ids, F = features.rows([frame.image_id for frames in frames_of.values() for frame in frames])
    row_of = {image_id: row for row, image_id in enumerate(ids)}
    which, chosen = [], []
    for position, image in enumerate(part.images):
        tags = [tagger.vocabulary.get(tag) for tag in (*part.tags[position], *part.negatives[position])]
        columns = sorted({tag for tag in tags if tag is not None})
        rows = [row_of[frame.image_id] for frame in frames_of.get(image.id, ()) if frame.image_id in row_of]
        if columns and rows:
            scores = tagger.model.decision_function(F[np.array(rows)])[:, columns].sum(axis=1)
            which.append(position)
            chosen.append(rows[int(np.argmax(scores))])
    if not which:
        return part

    others = np.setdiff1d(np.arange(len(part)), which)
    return replace(part, X=stack_rows([part.X[others], F[np.array(chosen)]])[np.argsort([*others.tolist(), *which])])


def background(stored: StoredCatalogue, features: CatalogueFeatures, train: CatalogueImages) -> Matrix | None:
    """Return rows of images of which nothing was said, up to `BACKGROUND` with those of `train`; None if there is none.

    They say what images look like on the whole. Those that people were asked about are no sample of that: each is what
    some word means most, and by these alone the words that were asked for most would seem to be everywhere.
    """
    judged = {image.id for image in train.images} | stored.tags.held().keys() | stored.tags.rejected().keys()
    others = [i for i in stored.current_rows().ids.tolist() if i not in judged]
    n_wanted = max(0, min(BACKGROUND - len(train), len(others)))
    chosen = np.sort(np.random.default_rng(0).permutation(len(others))[:n_wanted])
    rows: Matrix | None = features.rows([others[position] for position in chosen])[1]
    return rows


def is_held_out(image: ImageRecord) -> bool:
    """Return whether an image may be held out: decided by its content alone, so that it stays so wherever it lies."""
    return int(image.sha256[:12], 16) % HELD_OUT == 0


def names_learned(images: Sequence[ImageRecord]) -> Iterator[str]:
    """Yield the names under which a run remembers that it learned from images: content, name and file."""
    for image in images:
        yield f"sha256:{image.sha256}"
        yield image.name
        if image.path is not None:
            yield os.path.basename(image.path)


def not_learned(learned: Learned | Tagger, images: Sequence[ImageRecord]) -> NDArray[np.int64]:
    """Return the places of images that a run did not learn from.

    A run that was fitted on a folder knows its images by name only: then any image with a path that ends so counts as
    learned from, rather too many than too few.
    """
    positions = []
    by_content = bool(learned.facts.get(BY_CONTENT))
    for position, image in enumerate(images):
        names = [f"sha256:{image.sha256}"]
        if not by_content:  # all that a tag file may have called it: its name, and each end of its path
            names.append(image.name)
            if image.path is not None:
                parts = image.path.strip(os.sep).split(os.sep)
                names += [image.path, *("/".join(parts[i:]) for i in range(len(parts)))]
        if not learned.learned_images.count(names):
            positions.append(position)
    return np.array(positions, np.int64)


def image_precisions(
    taggers: Sequence[Tagger], part: CatalogueImages, tags: Sequence[str]
) -> list[NDArray[np.float64]]:
    """Return how well each run ranks some of its tags for the images that have any: average precisions, by image."""
    Y = part.encode(Vocabulary(list(tags)))
    tagged = np.flatnonzero(np.diff((Y > 0).tocsr().indptr))
    tagged = tagged[: max(1, MOST_SCORES // max(len(tagger.vocabulary) for tagger in taggers))]
    precisions = []
    for tagger in taggers if len(tagged) else ():
        columns = np.array([tagger.vocabulary.index(tag) for tag in tags], np.int64)
        blocks = (
            (rows, np.ascontiguousarray(block[:, columns])) for rows, block in tagger.score_blocks(part.X[tagged])
        )
        precisions.append(average_precisions(blocks, Y[tagged] > 0))
    return precisions
