"""Large dictionaries drawn from a seed: Zipf's tags in families, as pairs of numbers or with visterms to learn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_generator, check_count, check_number
from visterm.core.types import RandomState

FAMILY = 12
"""Mean number of tags that share a parent, as the median label of ImageNet has siblings (WSABIE, Table 1)."""

FAMILIES_A_FIELD = 8
"""Families that go together: an image of one often has another of the same field."""

NOISE_TAGS = 0.1
"""Share of the tags that have nothing to do with what an image is about."""

TELLING = (0.15, 0.3, 0.4)
"""Up to these shares of an image's visterms are of its tags, of these tags' families, and of their fields."""

SECOND_FAMILY = 0.5
"""Chance of each further tag to come from the image's second family, of the same field."""


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Tags by falling frequency, each in a family, each family in a field.

    Attributes
    ----------
    weights : ndarray of float64, shape (n_tags,)
        Chance of each tag: that of rank r goes as ``r^-exponent``. They sum to 1.
    family : ndarray of int64, shape (n_tags,)
    field : ndarray of int64, shape (n_families,)
    """

    weights: NDArray[np.float64]
    family: NDArray[np.int64]
    field: NDArray[np.int64]

    def names(self) -> list[str]:
        """Return each tag a name that says its family: ``f3-t17``."""
        return [f"f{family}-t{tag}" for tag, family in enumerate(self.family)]

    def is_a(self) -> list[tuple[str, str]]:
        """Return the pairs (tag, parent) that make the tags of a family siblings."""
        return [(name, f"family {family}") for name, family in zip(self.names(), self.family, strict=True)]


@dataclass(frozen=True, slots=True)
class DrawnVisterms:
    """Images with sparse features and tags.

    Attributes
    ----------
    X : csr_array of float32, shape (n_images, n_features)
        Rows of unit length, √tf · idf as those of `Visterms`.
    Y : csr_array of float32, shape (n_images, n_tags)
    dictionary : Dictionary
    """

    X: sp.csr_array
    Y: sp.csr_array
    dictionary: Dictionary


def draw_dictionary(n_tags: int, *, exponent: float = 1.0, random_state: RandomState = 0) -> Dictionary:
    """Draw which tags share a family, and which families a field, whatever their frequencies."""
    check_count(n_tags, "n_tags")
    check_number(exponent, "exponent", least=0)
    rng = as_generator(random_state)
    weights = (1.0 + np.arange(n_tags)) ** -exponent
    n_families = max(1, n_tags // FAMILY)
    family = rng.permutation(np.arange(n_tags) % n_families)
    field = rng.permutation(np.arange(n_families) // FAMILIES_A_FIELD)
    return Dictionary(weights / weights.sum(), family, field)


def draw_pairs(
    n_images: int,
    dictionary: Dictionary,
    *,
    tags_an_image: float = 5.0,
    noise: float = NOISE_TAGS,
    random_state: RandomState = 0,
) -> sp.csr_array:
    """Draw which images have which tags, so that a tag of an image says something of the others.

    An image is about a family, drawn by the frequency of its tags, and a second one of the same field. Each of its tags
    is drawn from one of the two, or (a share of `noise`) from all tags; within them by frequency, so that tags keep
    their Zipf law. Time and memory grow with the number of pairs only.

    Parameters
    ----------
    n_images : int
    dictionary : Dictionary
    tags_an_image : float
        Mean number of draws: 1 and a Poisson number more. A tag drawn twice counts once.
    noise : float
        Share of the tags that have nothing to do with what an image is about.
    random_state : int, RandomState, Generator or None

    Returns
    -------
    csr_array of float32, shape (n_images, n_tags)
        Ones; at least one tag an image.
    """
    check_count(n_images, "n_images")
    check_number(tags_an_image, "tags_an_image", least=1)
    rng = as_generator(random_state)
    families = _Groups(dictionary.family, dictionary.weights)
    fields = _Groups(dictionary.field, families.mass)
    first = _draw(families.mass, n_images, rng)
    second = fields.draw(dictionary.field[first], rng)
    n_draws = 1 + rng.poisson(tags_an_image - 1, n_images)
    images = np.repeat(np.arange(n_images), n_draws)
    about = np.where(rng.random(images.size) < SECOND_FAMILY, second[images], first[images])
    tags = families.draw(about, rng)
    stray = np.flatnonzero(rng.random(images.size) < noise)
    tags[stray] = _draw(dictionary.weights, stray.size, rng)
    pairs = np.unique(images * dictionary.weights.size + tags)
    starts = np.searchsorted(pairs, np.arange(n_images + 1) * dictionary.weights.size)
    columns = pairs % dictionary.weights.size
    shape = (n_images, dictionary.weights.size)
    return sp.csr_array((np.ones(columns.size, np.float32), columns, starts), shape=shape)


def draw_visterms(
    n_images: int,
    n_tags: int,
    *,
    n_features: int = 2000,
    words_an_image: int = 100,
    tags_an_image: float = 3.0,
    exponent: float = 1.0,
    noise: float = NOISE_TAGS,
    random_state: RandomState = 0,
) -> DrawnVisterms:
    """Draw images whose visterms tell of their tags, of the families of these, and of nothing.

    Each tag, family and field has a few visterms of its own. Every block of an image shows one of those, by the shares
    in `TELLING`: of one of its tags, of that tag's family or of its field; or any visterm at all. So a model that
    learns what the tags of a family have in common knows rare tags better.

    Parameters
    ----------
    n_images, n_tags, n_features : int
    words_an_image : int
        Blocks of an image.
    tags_an_image, noise : float
        As in `draw_pairs`.
    exponent : float
        How unequal the tags' frequencies are: 1 is Zipf's law, 0 makes them equal.
    random_state : int, RandomState, Generator or None
    """
    check_count(n_features, "n_features")
    check_count(words_an_image, "words_an_image")
    rng = as_generator(random_state)
    dictionary = draw_dictionary(n_tags, exponent=exponent, random_state=rng)
    Y = draw_pairs(n_images, dictionary, tags_an_image=tags_an_image, noise=noise, random_state=rng)
    n_own = max(2, n_features // 250)
    words_of = [rng.integers(n_features, size=(n, n_own)) for n in (n_tags, dictionary.field.size)]
    words_of.append(rng.integers(n_features, size=(dictionary.field.max() + 1, 2 * n_own)))
    images = np.repeat(np.arange(n_images), words_an_image)
    shown = Y.indptr[images] + (rng.random(images.size) * np.diff(Y.indptr)[images]).astype(np.int64)
    tag = Y.indices[shown].astype(np.int64)
    family = dictionary.family[tag]
    words = rng.integers(n_features, size=images.size)
    kind = np.searchsorted(TELLING, rng.random(images.size), side="right")
    for level, owner in enumerate((tag, family, dictionary.field[family])):
        rows = np.flatnonzero(kind == level)
        table = words_of[level]
        words[rows] = table[owner[rows], rng.integers(table.shape[1], size=rows.size)]
    counts = sp.csr_array((np.ones(words.size, np.float32), (images, words)), shape=(n_images, n_features))
    return DrawnVisterms(_weighted(counts), Y, dictionary)


def _weighted(counts: sp.csr_array) -> sp.csr_array:
    """Weigh visterms by √tf · idf, and scale rows to unit length."""
    seen = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = -np.log(np.maximum(seen, 1) / counts.shape[0])
    values = np.sqrt(counts.data) * idf[counts.indices]
    lengths = np.sqrt(np.add.reduceat(values**2, counts.indptr[:-1]))
    values /= np.repeat(np.maximum(lengths, 1e-12), np.diff(counts.indptr))
    return sp.csr_array((values.astype(np.float32), counts.indices, counts.indptr), shape=counts.shape)


class _Groups:
    """Members of groups, to be drawn by weight within a group."""

    def __init__(self, group: NDArray[np.int64], weights: NDArray[np.float64]) -> None:
        self._order = np.argsort(group, kind="stable")
        self.mass = np.bincount(group, weights).astype(np.float64)
        self._ends: NDArray[np.float64] = np.cumsum(weights[self._order])
        self._last = np.cumsum(np.bincount(group)) - 1
        self._begins = np.concatenate([[0.0], self._ends[self._last[:-1]]])

    def draw(self, groups: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw one member of each of the groups."""
        begin, last = self._begins[groups], self._last[groups]
        at = begin + rng.random(groups.size) * (self._ends[last] - begin)
        places = np.minimum(np.searchsorted(self._ends, at, side="right"), last)
        first = np.where(groups > 0, self._last[groups - 1] + 1, 0)
        members: NDArray[np.int64] = self._order[np.maximum(places, first)]
        return members


def _draw(weights: NDArray[np.float64], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    ends = np.cumsum(weights)
    drawn: NDArray[np.int64] = np.searchsorted(ends, rng.random(n) * ends[-1], side="right")
    return np.minimum(drawn, weights.size - 1)
