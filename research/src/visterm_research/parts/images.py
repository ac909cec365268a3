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
    """Encoded images with tags, as yet without relations.

    Attributes
    ----------
    name : str
        Short, as it names folders.
    what : str
        A line on where they come from.
    tags : list of str
        Columns of every `Y`.
    train, valid, test : Rows
    images : list
        Of the test rows.
    true_pairs : QuadrupletBlock, optional
        Of test rows: an object and a part of that very object.
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
        """Keep the images that have one of these tags at least."""
        kept = [np.flatnonzero((sp.csr_array(rows.Y)[:, tags] > 0).sum(axis=1)) for rows in self._parts]
        parts = [Rows(rows.X[chosen], rows.Y[chosen]) for rows, chosen in zip(self._parts, kept, strict=True)]
        images = [self.images[int(row)] for row in kept[2]]
        return replace(self, train=parts[0], valid=parts[1], test=parts[2], images=images, true_pairs=None)

    @property
    def _parts(self) -> tuple[Rows, Rows, Rows]:
        return self.train, self.valid, self.test


def drawn_images(source: Source, n_scenes: int, features: FeatureSet, *, learned: float = 1.0) -> tuple[Labelled, Ints]:
    """Draw crops of objects and parts (or take those that were drawn there), and return their true relations, too.

    Only tags that are in a relation and have images in every split are kept, with their images.

    Parameters
    ----------
    learned : float
        Share of the training scenes whose crops are learned from.
    """
    crops = read_drawn_crops(source.drawn("crops", draw_crops, n_scenes))
    left = _unlearned(crops, learned, source.seed)
    known = [crop for crop in crops.crops if crop.file_name not in left]
    seen = [{crop.tag for crop in known if crop.split == split} for split in ("train", "valid", "test")]
    everywhere = set.intersection(*seen)
    relations = [(part, whole) for part, whole in PART_OF if part in everywhere and whole in everywhere]
    vocabulary = Vocabulary(sorted({tag for relation in relations for tag in relation}))
    corpus = Corpus.read(crops.images, crops.tags_file)
    wanted = [bool(set(tags) & set(vocabulary.tags)) for tags in corpus.tags]
    corpus = corpus.subset([row for row, name in enumerate(corpus.names) if wanted[row] and name not in left])
    parts = [corpus.select(split) for split in ("train", "valid", "test")]
    rows = _encoded(source, parts, vocabulary, features)
    place = {name: row for row, name in enumerate(parts[2].names)}
    shown = [
        (place[pair.object_image], vocabulary.get(pair.object), place[pair.part_image], vocabulary.get(pair.part))
        for pair in crops.pairs
        if pair.object_image in place and pair.part_image in place
    ]
    true_pairs = QuadrupletBlock(*np.array(shown, np.int64).reshape(-1, 4).T)
    fewer = "" if learned == 1 else f", of which a share of {learned:g} of the training scenes is learned from"
    what = f"{len(corpus):,} crops of {n_scenes:,} drawn scenes{fewer}, one tag each; features: {features.settings}"
    name = f"drawn-{features.slug}"
    siblings = pairs_of(sibling_sets(IS_A, vocabulary))
    labelled = Labelled(name, what, vocabulary.tags, rows[0], rows[1], rows[2], parts[2].images, true_pairs, siblings)
    return labelled, part_pairs(relations, vocabulary)


def corel_images(source: Source, folder: Path, features: FeatureSet) -> Labelled:
    """Read Corel5k: a tenth of the training photos is for validation, as in the other comparisons."""
    corpus = read_corel(folder)
    train, valid = holdout(corpus.select("train"), VALID, source.seed)
    parts = [train, valid, corpus.select("test")]
    vocabulary = Vocabulary.from_lists(train.tags)
    rows = _encoded(source, parts, vocabulary, features)
    what = f"{len(corpus):,} photos with several tags each; features: {features.settings}"
    name = f"corel5k-{features.slug}"
    return Labelled(name, what, vocabulary.tags, rows[0], rows[1], rows[2], parts[2].images)


def pairs_of(alike: sp.csr_array) -> Ints:
    """Return the pairs of tags that `sibling_sets` says are alike, each once, shape (n, 2)."""
    found = sp.coo_array(sp.triu(alike, k=1))
    return np.stack([found.row, found.col], axis=1).astype(np.int64)


def _unlearned(crops: DrawnCrops, learned: float, seed: int) -> set[str]:
    """Choose the crops of training scenes that are not learned from; a crop's name begins with its scene's number."""
    scenes = sorted({crop.file_name.partition("_")[0] for crop in crops.crops if crop.split == "train"})
    n_left = round((1 - learned) * len(scenes))
    chosen = {scenes[i] for i in np.random.default_rng(seed).permutation(len(scenes))[:n_left]}
    return {crop.file_name for crop in crops.crops if crop.file_name.partition("_")[0] in chosen}


def _encoded(source: Source, parts: Sequence[Corpus], vocabulary: Vocabulary, features: FeatureSet) -> list[Rows]:
    """Encode all images of some parts."""
    rows = source.encode(parts, vocabulary, features.encoder, features.params)
    check_encoded(rows, parts, f"{features.label} ({features.encoder})", "images")
    return rows
