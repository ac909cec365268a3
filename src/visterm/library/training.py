"""Training images of a catalogue: feature rows, given and rejected tags, and which images are held out."""

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
from visterm.library.learned import MIN_COMPARED_PHOTOS
from visterm.metrics.ranking import average_precisions
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import ImageRecord
from visterm.tagging.tagger import Tagger

HELD_OUT_RATIO = 10  # 1 of 10 images is held out
MIN_TRAINING_ROWS = 2000  # With fewer judged images, models that learn all tags together also get other images
MAX_SCORES = 2**26  # Maximum number of scores to compare two runs; with very many tags, fewer images are compared
BY_CONTENT = "held out by content"  # Fact of a run that records all its training images by content


@dataclass(frozen=True)
class CatalogueImages:
    """Images to learn from or to compare runs on, with their features and tags in the same order."""

    images: list[ImageRecord]
    X: Matrix  # shape (n_images, n_features)
    tags: list[list[str]]  # Given or accepted
    negatives: list[list[str]]  # Rejected

    def __len__(self) -> int:
        return len(self.images)

    @property
    def n_tagged(self) -> int:
        """Number of images with a tag."""
        return sum(map(bool, self.tags))

    def subset(self, positions: Sequence[int] | NDArray[np.int64]) -> CatalogueImages:
        """Return some of the images."""
        indices = np.asarray(positions, np.int64)
        rows = indices.tolist()
        return CatalogueImages(
            [self.images[i] for i in rows],
            self.X[indices],
            [self.tags[i] for i in rows],
            [self.negatives[i] for i in rows],
        )

    def encode(self, vocabulary: Vocabulary) -> sp.csr_array:
        """Return the tags as a signed matrix, shape (n_images, n_tags)."""
        return vocabulary.encode(self.tags, self.negatives)


def learnable_and_held_out(
    tagger: Tagger, stored: StoredCatalogue, features: CatalogueFeatures, min_count: int = 1, *, hold_out: bool = True
) -> tuple[CatalogueImages, CatalogueImages]:
    """Split the judged images into training images and held-out images: always the same images, chosen by content.

    Every tag stays learnable: an image is only held out if at least `min_count` training images remain for each of its
    tags. No images are held out without `hold_out`, or if fewer than 20 of them would have tags. Raises the errors of
    `judged_images`.
    """
    all_images = judged_images(tagger, stored, features)
    if not hold_out:
        return all_images, all_images.subset([])
    vocabulary = tagger.vocabulary
    keys = [
        {tag_key(tag if tag not in vocabulary else vocabulary.tags[vocabulary.index(tag)]) for tag in tags}
        for tags in all_images.tags
    ]
    remaining = Counter(tag for tags in keys for tag in tags)
    held_out_mask = np.zeros(len(all_images), np.bool_)
    by_content = sorted(range(len(all_images)), key=lambda position: all_images.images[position].sha256)

    for position in by_content:
        tags = keys[position]
        if is_held_out(all_images.images[position]) and all(remaining[tag] != min_count for tag in tags):
            held_out_mask[position] = True
            remaining.subtract(tags)
    if sum(bool(keys[position]) for position in np.flatnonzero(held_out_mask)) < MIN_COMPARED_PHOTOS:
        held_out_mask[:] = False
    return all_images.subset(np.flatnonzero(~held_out_mask)), all_images.subset(np.flatnonzero(held_out_mask))


def judged_images(tagger: Tagger, stored: StoredCatalogue, features: CatalogueFeatures) -> CatalogueImages:
    """Return all images with tags or rejected tags.

    A video is represented by one frame, see `_with_best_frames`. Raises DataError if no image has a tag, or none of
    the tagged images can be read.
    """
    current_tags, rejected = stored.tags.held(), stored.tags.rejected()
    ids, X = features.rows(sorted(current_tags.keys() | rejected.keys()))
    if not any(i in current_tags for i in ids):  # rejected tags alone do not say what images show
        raise DataError(
            "No image of the catalogue has a tag to learn from. Add or accept some, or index the images with "
            "their tags (visterm index CATALOGUE PHOTOS --tags FILE)."
        )
    tags, negatives = [current_tags.get(i, []) for i in ids], [rejected.get(i, []) for i in ids]
    if tagger.tree is not None:
        tags, negatives = tagger.tree.words.completed(tags, negatives)
    return _with_best_frames(CatalogueImages(stored.images.get_many(ids), X, tags, negatives), tagger, stored, features)


def _with_best_frames(
    part: CatalogueImages, tagger: Tagger, stored: StoredCatalogue, features: CatalogueFeatures
) -> CatalogueImages:
    """Return the images with the row of the best frame for each video.

    People tag a whole video, but only some of its frames show the tag. The best frame has the largest sum of scores of
    the given and rejected tags that the run knows. If it knows none of them, the first frame is used.
    """
    frames_of = stored.frames.by_video(image.id for image in part.images)
    if not frames_of:
        return part
    ids, F = features.rows([frame.image_id for frames in frames_of.values() for frame in frames])
    row_of = {image_id: row for row, image_id in enumerate(ids)}
    chosen_rows = np.arange(len(part))  # of the images' rows, followed by those of all frames
    for position, image in enumerate(part.images):
        tags = [tagger.vocabulary.get(tag) for tag in (*part.tags[position], *part.negatives[position])]
        columns = sorted({tag for tag in tags if tag is not None})
        rows = [row_of[frame.image_id] for frame in frames_of.get(image.id, ()) if frame.image_id in row_of]
        if columns and rows:
            scores = tagger.model.decision_function(F[np.array(rows)])[:, columns].sum(axis=1)
            chosen_rows[position] = len(part) + rows[int(np.argmax(scores))]
    return replace(part, X=stack_rows([part.X, F])[chosen_rows]) if ids else part


def unjudged_rows(stored: StoredCatalogue, features: CatalogueFeatures, train: CatalogueImages) -> Matrix | None:
    """Return rows of images without feedback, up to `MIN_TRAINING_ROWS` with those of `train`; None if there are none.

    These images show what the library usually contains. The images that people judged are not a representative sample:
    most were the best matches of a search, so tags that people searched for would be too frequent.
    """
    judged_ids = {image.id for image in train.images} | stored.tags.held().keys() | stored.tags.rejected().keys()
    other_ids = [i for i in stored.current_rows().ids.tolist() if i not in judged_ids]
    n_wanted = max(0, min(MIN_TRAINING_ROWS - len(train), len(other_ids)))
    positions = np.sort(np.random.default_rng(0).permutation(len(other_ids))[:n_wanted])
    rows: Matrix | None = features.rows([other_ids[position] for position in positions])[1]
    return rows


def is_held_out(image: ImageRecord) -> bool:
    """Return whether an image may be held out; this depends on its content only, and not on its path."""
    return int(image.sha256[:12], 16) % HELD_OUT_RATIO == 0


def learned_names(images: Sequence[ImageRecord]) -> Iterator[str]:
    """Yield the names by which a run recognises its training images: content hash, name and file name."""
    for image in images:
        yield f"sha256:{image.sha256}"
        yield image.name
        if image.path is not None:
            yield os.path.basename(image.path)


def unlearned_positions(learned: Learned | Tagger, images: Sequence[ImageRecord]) -> NDArray[np.int64]:
    """Return the positions of images that a run did not learn from.

    A run that was fitted on a folder knows its training images by name only. Then each image whose path ends with such
    a name counts as a training image, even if it is another image with the same name.
    """
    positions = []
    by_content = bool(learned.facts.get(BY_CONTENT))
    for position, image in enumerate(images):
        names = [f"sha256:{image.sha256}"]
        if not by_content:  # all names that a tag file may use: its name, and each end of its path
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
    """Return the average precisions of images with any of `tags`, shape (n_images,), for the rankings of each run."""
    Y = part.encode(Vocabulary(list(tags)))
    tagged_positions = np.flatnonzero(np.diff((Y > 0).tocsr().indptr))
    tagged_positions = tagged_positions[: max(1, MAX_SCORES // max(len(tagger.vocabulary) for tagger in taggers))]
    precisions = []
    for tagger in taggers if len(tagged_positions) else ():
        columns = np.array([tagger.vocabulary.index(tag) for tag in tags], np.int64)
        blocks = (
            (rows, np.ascontiguousarray(block[:, columns]))
            for rows, block in tagger.score_blocks(part.X[tagged_positions])
        )
        precisions.append(average_precisions(blocks, Y[tagged_positions] > 0))
    return precisions
