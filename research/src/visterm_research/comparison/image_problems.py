"""Problems with features: photos, web pages of Mulan's collections, a drawn dictionary, drawn scenes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.vocabulary import Vocabulary
from visterm.data import Corpus, read_mulan, sibling_sets
from visterm_research.comparison.feature_sets import SMALL_VISTERMS
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.comparison.sources import Source
from visterm_research.data.drawn_tags import draw_visterms
from visterm_research.data.wordnet import WordNet, is_a_relations
from visterm_research.scenes import GROUPS, IS_A, draw_library, read_drawn_library

VALID = 0.1
"""Share of the training images that settings are chosen by, where the data say nothing."""

EXPONENT = 0.5
"""Of the drawn dictionary's frequencies: nearer to ImageNet, whose tags were collected evenly, than Zipf's 1."""

SCENES, QUICK_SCENES, QUICK_PHOTOS = 3000, 240, 160
"""Drawn scenes; in quick runs, and in those that encode them several times."""

NO_PARAMS: Mapping[str, Any] = MappingProxyType({})


def read_corel(folder: Path) -> Corpus:
    """Read Corel5k: ``images/`` and ``labels.tsv`` with a split."""
    return Corpus.read(folder / "images", folder / "labels.tsv")


def holdout(corpus: Corpus, share: float, seed: int) -> tuple[Corpus, Corpus]:
    """Part images at random into those to learn from and a share held out, each in the order of the corpus.

    At least one is held out where there are two or more images and the share is above 0.
    """
    n = len(corpus)
    held = min(max(round(share * n), int(share > 0)), max(n - 1, 0))
    order = np.random.default_rng(seed).permutation(n)
    return corpus.subset(np.sort(order[held:])), corpus.subset(np.sort(order[:held]))


def corel_problem(
    source: Source, folder: Path, encoder: str, params: Mapping[str, Any] = NO_PARAMS, *, wordnet: Path | None = None
) -> Problem:
    """Read Corel5k; a tenth of the training photos is for validation.

    Parameters
    ----------
    encoder : str
        As ``visterm fit --encoder`` takes it.
    params : mapping
        Its settings.
    wordnet : Path, optional
        WordNet's database files, by which siblings are found.
    """
    corpus = read_corel(folder)
    words = {tag: None for tags in corpus.tags for tag in tags}
    is_a = [] if wordnet is None else is_a_relations(WordNet(wordnet), words)
    return photo_problem(source, "corel5k", corpus, encoder, params, is_a)


def scene_problem(source: Source, n_scenes: int, encoder: str, params: Mapping[str, Any] = NO_PARAMS) -> Problem:
    """Draw a library of scenes (or take the one that was drawn there), with tags as people write them."""
    library = read_drawn_library(source.drawn("scenes", draw_library, n_scenes))
    corpus = Corpus.read(library.images, library.tags_file)
    return photo_problem(source, "scenes", corpus, encoder, params, _spelled_kinds())


def photo_problem(
    source: Source, name: str, corpus: Corpus, encoder: str, params: Mapping[str, Any], is_a: Sequence[tuple[str, str]]
) -> Problem:
    """Encode a corpus that has training and test rows; encoder and vocabulary learn from training rows only.

    In quick runs, visterms without settings have few colours and words.

    Parameters
    ----------
    is_a : sequence of (tag, parent)
        Makes siblings of the tags that share a parent.
    """
    train, test = corpus.select("train"), corpus.select("test")
    given = "valid" in corpus.splits
    train, valid = (train, corpus.select("valid")) if given else holdout(train, VALID, source.seed)
    vocabulary = Vocabulary.from_lists(train.tags)
    small = SMALL_VISTERMS if source.quick and encoder == "visterms" and not params else {}
    shown = f" ({', '.join(f'{name}={value}' for name, value in small.items())})" if small else ""
    params = {**params, **small}
    rows = source.encode([train, valid, test], vocabulary, encoder, params)
    what = (
        f"{len(corpus):,} photos; features: {encoder.partition(':')[0]} encoder{shown}, fitted on the training photos; "
        f"{'validation photos as the tags say' if given else 'a tenth of the training photos for validation'}"
    )
    all_encoded = len(test) == rows[2].Y.shape[0]
    return Problem(
        name,
        what,
        vocabulary.tags,
        rows[0],
        rows[1],
        rows[2],
        siblings=sibling_sets(is_a, vocabulary) if is_a else None,
        test_names=test.names if all_encoded else [],
        test_images=test.images if all_encoded else [],
    )


def delicious_problem(folder: Path, *, seed: int) -> Problem:
    """Read Delicious, 983 tags of web pages with words as features; a tenth of the training pages is for validation."""
    train = read_mulan(folder / "delicious-train.arff", folder / "delicious.xml")
    test = read_mulan(folder / "delicious-test.arff", folder / "delicious.xml")
    order = np.random.default_rng(seed).permutation(train.Y.shape[0])
    held = round(VALID * order.size)
    learned, valid = np.sort(order[held:]), np.sort(order[:held])
    return Problem(
        "delicious",
        "Delicious (Mulan): web pages, 500 words as features of unit length, tags of their readers; "
        "a tenth of the training pages for validation",
        [tag.removeprefix("TAG_") for tag in train.tags],
        Rows(unit_rows(train.X[learned]), sp.csr_array(train.Y[learned])),
        Rows(unit_rows(train.X[valid]), sp.csr_array(train.Y[valid])),
        Rows(unit_rows(test.X), test.Y),
    )


def dictionary_problem(n_images: int, n_tags: int, *, n_features: int, seed: int) -> Problem:
    """Draw images of a large dictionary: 7 tenths to learn from, 1 for validation, 2 for the test."""
    drawn = draw_visterms(n_images, n_tags, n_features=n_features, exponent=EXPONENT, random_state=seed)
    ends = [round(0.7 * n_images), round(0.8 * n_images), n_images]
    train, valid, test = (
        Rows(sp.csr_array(drawn.X[start:end]), sp.csr_array(drawn.Y[start:end]))
        for start, end in zip([0, *ends], ends, strict=False)
    )
    return Problem(
        "dictionary",
        f"drawn from the seed {seed}: {n_tags:,} tags in families, their frequencies as "
        f"rank^-{EXPONENT}; bags of {n_features:,} visterms",
        drawn.dictionary.names(),
        train,
        valid,
        test,
        siblings=sibling_sets(drawn.dictionary.is_a(), Vocabulary(drawn.dictionary.names())),
    )


def unit_rows(X: sp.csr_array) -> sp.csr_array:
    """Scale sparse rows to unit length; rows of zeros stay."""
    lengths = np.sqrt(np.asarray(X.power(2).sum(axis=1)).ravel())
    scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return sp.csr_array(sp.diags_array(scale) @ X, dtype=np.float32)


def _spelled_kinds() -> list[tuple[str, str]]:
    """Return the kinds of the drawn world for every way in which people write them; spellings of a tag are siblings."""
    spelled: dict[str, list[str]] = {}
    for spelling, tag in GROUPS.items():
        spelled.setdefault(tag, []).append(spelling)
    kinds = [(spelling, parent) for kind, parent in IS_A for spelling in {kind, *spelled.get(kind, [])}]
    return kinds + [(spelling, f"spelling of {tag}") for tag, ways in spelled.items() for spelling in {tag, *ways}]
