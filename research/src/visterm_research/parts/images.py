"""Images with tags for the objects-and-parts comparison: drawn crops with their true relations, and Corel5k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.vocabulary import Vocabulary
from visterm.data import Corpus, part_pairs, sibling_sets
from visterm.models import QuadrupletBlock
from visterm_research.comparison.feature_sets import FeatureSet
from visterm_research.comparison.image_problems import VALID, holdout, read_corel
from visterm_research.comparison.problem import Rows
from visterm_research.comparison.sources import Source, check_encoded
from visterm_research.scenes.crops import DrawnCrops, draw_crops, read_drawn_crops
from visterm_research.scenes.things import IS_A, PART_OF

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Labelled:
    """Encoded images with tags, without relations.

    Attributes
    ----------
    name : str
        A short name for folders.
    what : str
        A line about the source of the images.
    tags : list of str
        Columns of every `Y`.
    train, valid, test : Rows
    images : list
        Images of the test rows.
    true_pairs : QuadrupletBlock, optional
        Pairs of test rows: an object, and a part of the same object.
    siblings : ndarray of int64, shape (n, 2)
        Columns of tags of the same kind.
    """

    name: str
    what: str
    tags: list[str]
    train: Rows
    valid: Rows
    test: Rows
    images: Sequence[Any]
    true_pairs: QuadrupletBlock | None = None
    siblings: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))

    def bearing(self, tags: Ints) -> Labelled:
        """Return a copy with only the images that have at least one of the `tags`."""
        kept_rows = [np.flatnonzero((sp.csr_array(rows.Y)[:, tags] > 0).sum(axis=1)) for rows in self._parts]
        parts = [Rows(rows.X[indices], rows.Y[indices]) for rows, indices in zip(self._parts, kept_rows, strict=True)]
        images = [self.images[int(row)] for row in kept_rows[2]]
        return replace(self, train=parts[0], valid=parts[1], test=parts[2], images=images, true_pairs=None)

    @property
    def _parts(self) -> tuple[Rows, Rows, Rows]:
        return self.train, self.valid, self.test


def drawn_images(source: Source, n_scenes: int, features: FeatureSet, *, learned: float = 1.0) -> tuple[Labelled, Ints]:
    """Draw crops of objects and parts, or read drawn ones; return them and their true relations.

    Only tags that are in a relation and have images in every split are kept, with their images.

    Parameters
    ----------
    learned : float
        Share of the training scenes whose crops are used for training.
    """
    crops = read_drawn_crops(source.drawn("crops", draw_crops, n_scenes))
    left_out = _left_out_crops(crops, learned, source.seed)
    used_crops = [crop for crop in crops.crops if crop.file_name not in left_out]
    tags_by_split = [{crop.tag for crop in used_crops if crop.split == split} for split in ("train", "valid", "test")]
    common_tags = set.intersection(*tags_by_split)
    relations = [(part, whole) for part, whole in PART_OF if part in common_tags and whole in common_tags]
    vocabulary = Vocabulary(sorted({tag for relation in relations for tag in relation}))
    corpus = Corpus.read(crops.images, crops.tags_file)
    has_tag = [bool(set(tags) & set(vocabulary.tags)) for tags in corpus.tags]
    corpus = corpus.subset([row for row, name in enumerate(corpus.names) if has_tag[row] and name not in left_out])
    parts = [corpus.select(split) for split in ("train", "valid", "test")]
    rows = _encode(source, parts, vocabulary, features)
    row_of_name = {name: row for row, name in enumerate(parts[2].names)}
    pair_rows = [
        (
            row_of_name[pair.object_image],
            vocabulary.get(pair.object),
            row_of_name[pair.part_image],
            vocabulary.get(pair.part),
        )
        for pair in crops.pairs
        if pair.object_image in row_of_name and pair.part_image in row_of_name
    ]
    true_pairs = QuadrupletBlock(*np.array(pair_rows, np.int64).reshape(-1, 4).T)
    share_text = "" if learned == 1 else f", with a share of {learned:g} of the training scenes used"
    what = (
        f"{len(corpus):,} crops of {n_scenes:,} drawn scenes{share_text}, one tag each; features: {features.settings}"
    )
    name = f"drawn-{features.slug}"
    siblings = pairs_of(sibling_sets(IS_A, vocabulary))
    labelled = Labelled(name, what, vocabulary.tags, rows[0], rows[1], rows[2], parts[2].images, true_pairs, siblings)
    return labelled, part_pairs(relations, vocabulary)


def corel_images(source: Source, folder: Path, features: FeatureSet) -> Labelled:
    """Read Corel5k, with a tenth of the training photos for validation, as in the other comparisons."""
    corpus = read_corel(folder)
    train, valid = holdout(corpus.select("train"), VALID, source.seed)
    parts = [train, valid, corpus.select("test")]
    vocabulary = Vocabulary.from_lists(train.tags)
    rows = _encode(source, parts, vocabulary, features)
    what = f"{len(corpus):,} photos with several tags each; features: {features.settings}"
    name = f"corel5k-{features.slug}"
    return Labelled(name, what, vocabulary.tags, rows[0], rows[1], rows[2], parts[2].images)


def pairs_of(alike: sp.csr_array) -> Ints:
    """Return the pairs of similar tags in the result of `sibling_sets`, without duplicates, shape (n, 2)."""
    pairs = sp.coo_array(sp.triu(alike, k=1))
    return np.stack([pairs.row, pairs.col], axis=1).astype(np.int64)


def _left_out_crops(crops: DrawnCrops, learned: float, seed: int) -> set[str]:
    """Choose the crops of training scenes to leave out; a crop's name begins with the number of its scene."""
    scenes = sorted({crop.file_name.partition("_")[0] for crop in crops.crops if crop.split == "train"})
    n_left_out = round((1 - learned) * len(scenes))
    left_out_scenes = {scenes[i] for i in np.random.default_rng(seed).permutation(len(scenes))[:n_left_out]}
    return {crop.file_name for crop in crops.crops if crop.file_name.partition("_")[0] in left_out_scenes}


def _encode(source: Source, parts: Sequence[Corpus], vocabulary: Vocabulary, features: FeatureSet) -> list[Rows]:
    """Encode all images of the corpora `parts`."""
    rows = source.encode(parts, vocabulary, features.encoder, features.params)
    check_encoded(rows, parts, f"{features.label} ({features.encoder})", "images")
    return rows
