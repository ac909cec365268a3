"""Which given tags are probably wrong, and which are probably missing, by chances of images that were held out.

The evidence is how likely it is that a tag was given: by what a model sees in an image, and by the image's other tags.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import DataError, ShapeError
from visterm.metrics.bands import frequency_bands

Doubles = NDArray[np.float64]

COMPANIONS = 1500
"""Tags, the most frequent ones, whose company says something of each other: a matrix of twice as many rows."""

ODDS_SCALE = 0.1  # Of the log odds beside the tags that are given, which are 0 or 1
LEAST_EXPECTED = 1e-4
FIRMNESS = 20.0  # Images that speak against a link between two tags, so that few together say little
BLOCK = 2**22  # Entries of images and tags that are looked at together
MOST_CASES = 400_000  # Entries of tags that images lack from which it is learned how the evidence adds up
LEAST = 1e-6  # Of a chance whose log odds are looked at
TINY = 1e-9

LOW_SHARE = 0.15  # Of the images without a tag, in which the tag is least likely: tags given there are wrong ones
SURE_SHARE = 0.05  # Of all given tags: so many pairs, the surest ones, tell how often a tag is left out
PRIOR = 100.0  # Images with which the noise of all tags counts beside that of a tag
EXPECTED = 0.03  # Of the given tags look wrong, and of the true ones missing, where a library is too small to tell
UNLIKE, LIKE = 300.0, 1500.0
"""Given tags with which half of those that look wrong, or missing, are: of the others features don't show what is
true. The more was learned from, and the better features tell images with a tag from others, the more of them are."""
TELLING = 2.5  # Deviations of the log odds by which features tell images with a tag from others that show it well
MOST_UNLIKE = 0.2  # Of the given tags look wrong where half of these only don't show, and more and more of further ones
EXPECTED_IMAGES = 50.0  # Images with which that counts
EXPECTED_WRONG = 2.0  # Wrong tags with which it counts
POWERS = np.linspace(1, 0, 11)  # Of a tag's share of images, to which wrong tags of it are in proportion
FAVOURED = 8.0  # Log likelihood by which the power 1 is favoured over 0: few wrong tags are seen, and say little of it
MOST = 0.9  # Of the noise of a tag, of which at least `LEAST` is expected
STEPS = np.arange(-8, 8.1, 0.5)  # Log odds between which it is counted how many planted mistakes would lie
CASES_OF_STEP = 5.0  # Pairs with which the curve expected counts in each step
UNUSUAL = 3  # Images of a tag up to which nothing says how likely a mistake is, only that the image is unusual
RARE, CASES_OF_RARE = 10, 20.0  # Images of a rare tag, and pairs with which the curve of all tags counts for these
DOUBT = 1.5  # Deviation of how far the log odds are off, before people have answered
SUREST = 0.98  # Of a chance: nothing is certain
SPREAD = 1.96  # Deviations from the middle to the ends of an interval of 95 %


class Pairs(NamedTuple):
    """Images and tags that are probably mistakes, the most probable first."""

    images: NDArray[np.int64]  # shape (n,)
    tags: NDArray[np.int64]
    # The chance that it is a mistake, and its 95 % interval
    chance: Doubles
    low: Doubles
    high: Doubles
    unusual: NDArray[np.bool_]  # Whether the tag has so few images that the chance orders pairs and promises nothing


class Mistakes(NamedTuple):
    """Given tags that are probably wrong, and tags that are probably missing."""

    wrong: Pairs
    missing: Pairs


class Noise(NamedTuple):
    """How often mistakes happen to each tag, both of shape (n_tags,)."""

    untrue: Doubles  # The share of the images without the tag to which it is given by mistake
    missing: Doubles  # The share of the images with the tag to which it was not given
    n_wrong: float  # Given tags from which the first is known

    def wrong_odds(self, q: Doubles) -> Doubles:
        """Return the log odds that given tags are wrong, by the chances q that they were given."""
        odds: Doubles = np.log(self.untrue) - log_odds(q)
        return odds

    def missing_odds(self, q: Doubles) -> Doubles:
        """Return the log odds that tags that were not given are missing."""
        odds: Doubles = log_odds(self.missing) + log_odds(q)
        return odds


class MistakeCurve:
    """How many of the pairs with some log odds are mistakes: as many as planted ones would lie there, of all that do.

    An image is judged without what is known of the pair itself. So a tag planted on an image that lacks it has the log
    odds that are known of this pair already, and nothing needs to be planted: the expected number of wrong tags in a
    step is the sum of `untrue` over the pairs without the tag, and that of missing tags is the sum of
    ``missing / (1 - missing)`` over those with it. The curve rises (isotonic regression); rare tags have their own,
    drawn to that of all, and so have tags of two or three images, of which no other curve learns.
    """

    def __init__(self) -> None:
        self._expected, self._observed = np.zeros((2, 3, STEPS.size + 1))  # group of the tag, step
        self._shift = 0.0

    def add(self, odds: Doubles, groups: NDArray[np.int64], planted: Doubles, entries: NDArray[np.bool_]) -> None:
        """Count a block: mistakes planted where there is no entry, and the entries, of shape (n_rows, n_tags)."""
        places, size = groups * (STEPS.size + 1) + np.searchsorted(STEPS, odds), self._expected.size
        counts = np.bincount(places[~entries], np.broadcast_to(planted, odds.shape)[~entries], size)
        self._expected += counts.reshape(3, -1)
        self._observed += np.bincount(places[entries], minlength=size).reshape(3, -1)

    def fit(self) -> Self:
        """Compute the curves of frequent tags, of rare ones, and of those of two or three images."""
        self._middles = np.concatenate([STEPS - 0.25, [STEPS[-1] + 0.25]])
        usual = np.exp(-np.logaddexp(0, -self._middles))
        expected, observed = self._expected[:2].sum(axis=0), self._observed[:2].sum(axis=0)
        common = self._rising(expected, observed, usual, CASES_OF_STEP)
        self._weights = np.stack([expected, *self._expected[1:]]) + 1
        rarer = zip(self._expected[1:], self._observed[1:], strict=True)
        self._chances = np.stack([common, *(self._rising(*counts, common, CASES_OF_RARE) for counts in rarer)])
        return self

    def learn(self, odds: Doubles, groups: NDArray[np.int64], mistaken: NDArray[np.bool_]) -> None:
        """Move all log odds by what people answered, whether pairs are mistakes: logistic regression of a constant."""
        known = log_odds(self.chances(odds, groups)[0])
        for _ in range(30):  # Newton: far fewer do
            p = _chance(known + self._shift)
            slope = (mistaken - p).sum() - self._shift / DOUBT**2
            self._shift += slope / ((p * (1 - p)).sum() + 1 / DOUBT**2)

    def chances(self, odds: Doubles, groups: NDArray[np.int64]) -> tuple[Doubles, Doubles]:
        """Return the chances of pairs, and the variances of their log odds."""
        chance = np.choose(groups, [np.interp(odds, self._middles, chances) for chances in self._chances])
        weights = self._weights[groups, np.searchsorted(STEPS, odds)]
        return _chance(log_odds(chance) + self._shift), 1 / weights

    @staticmethod
    def _rising(expected: Doubles, observed: Doubles, usual: Doubles, cases: float) -> Doubles:
        from sklearn.isotonic import isotonic_regression

        share = (expected + cases * usual) / (observed + cases)
        rising: Doubles = isotonic_regression(np.minimum(share, SUREST), sample_weight=observed + cases)
        return rising


def find_mistakes(
    chances: Any,
    given: Any,
    folds: Any,
    *,
    settled: Any = None,
    answers: Any = None,
    tags: Any = None,
    related: NDArray[np.int64] | None = None,
    limit: int = 1000,
    seed: int = 0,
) -> Mistakes:
    """Return the given tags that are most probably wrong, and the tags that are most probably missing.

    Parameters
    ----------
    chances : array-like, shape (n_images, n_tags)
        The chance of each tag by a model that has not learned from the image; may be mapped from disk.
    given : CSR or array, shape (n_images, n_tags)
        Above 0 where an image has the tag.
    folds : array-like of int, shape (n_images,)
        From 0; images of one fold were held out together.
    settled : CSR or array, shape (n_images, n_tags), optional
        Not 0 where a person has said whether the image has the tag: these pairs are not listed.
    answers : pair of CSR, shape (n_images, n_tags), optional
        What people answered of tags that were given, and of tags that were not: above 0 for a mistake, below 0 for
        none. All chances of a kind move by it.
    tags : sequence of int, optional
        List pairs of these tags only.
    related : array of int, shape (n_pairs, 2), optional
        Pairs of tags of which one follows from the other, as a tag above it in a tree: whether one was given says
        nothing of whether the other was given by mistake.
    limit : int
        Pairs of each kind at most.
    seed : int
        Of the sample of pairs from which it is learned how the evidence adds up.
    """
    given = as_csr(as_csr(given) > 0)
    folds = np.asarray(folds, np.int64)
    if chances.shape != given.shape or folds.shape != given.shape[:1]:
        raise ShapeError(
            f"chances is {chances.shape}, given {given.shape} and folds {folds.shape}; expected (n_images, n_tags), "
            "the same, and (n_images,)."
        )
    if folds.max(initial=0) < 1 or given.nnz == 0:
        raise DataError("Mistakes are found by comparing images that have tags, in two folds or more; there are none.")
    evidence = Evidence(chances, given, folds, related, seed)
    noise = _noise(evidence, seed)
    unusual = evidence.counts <= UNUSUAL
    groups = (evidence.counts <= RARE).astype(np.int64) + unusual
    curves = MistakeCurve(), MistakeCurve()
    for _, q, has in evidence.blocks():
        curves[0].add(noise.wrong_odds(q), groups, noise.untrue, has)
        curves[1].add(noise.missing_odds(q), groups, noise.missing / (1 - noise.missing), ~has)
    skip = None if settled is None else as_csr(as_csr(settled) != 0)
    listed = evidence.counts < given.shape[0]  # of a tag that all images have, nothing shows where it would be wrong
    if tags is not None:
        listed &= np.isin(np.arange(given.shape[1]), tags)
    wrong, missing = _Best(limit), _Best(limit)
    judged: tuple[list[Any], list[Any]] = [], []

    for rows, q, has in evidence.blocks():
        for answer, odds_of, kept in zip(answers or (), (noise.wrong_odds, noise.missing_odds), judged, strict=False):
            pairs = answer[rows].tocoo()
            of = ~unusual[pairs.col]
            kept.append((odds_of(q)[pairs.row[of], pairs.col[of]], groups[pairs.col[of]], pairs.data[of] > 0))
        free = np.ones_like(has) if skip is None else skip[rows].toarray() == 0
        free &= listed
        wrong.add(rows.start, noise.wrong_odds(q), has & free)
        missing.add(rows.start, noise.missing_odds(q), ~has & free)
    mistakes = []
    for best, curve, kept in zip((wrong, missing), curves, judged, strict=True):
        images, columns, odds = best.pairs()
        curve.fit()
        if kept:
            curve.learn(*map(np.concatenate, zip(*kept, strict=True)))
        chance, variance = curve.chances(odds, groups[columns])
        variance += 1 / (noise.n_wrong + 1) + 1 / (evidence.counts[columns] + 1)
        low, high = (_chance(log_odds(chance) + sign * SPREAD * np.sqrt(variance)) for sign in (-1, 1))
        mistakes.append(Pairs(images, columns, chance, low, high, unusual[columns]))
    return Mistakes(*mistakes)


def _noise(evidence: Evidence, seed: int) -> Noise:
    """Return how often tags are given by mistake, and how often they are left out.

    Confident learning counts given tags below the mean chance of images without the tag, and tags that were not given
    above the mean chance of images that have it. Where a model sees a tag poorly most of these are no mistakes. So both
    bars are set further out: at as many deviations below the mean log odds of images without the tag as leave some of
    these below; and at the surest pairs of all. What lies beyond is still not all mistaken, see `UNLIKE` and `LIKE`,
    nor counted for tags of two or three images, which no model sees well.

    Wrong tags of a tag are in proportion to a power of its share of images, the most likely one by what lies below the
    bars (Poisson): 1 where people mistake tags that they give often, 0 where wrong tags fall on all tags alike.
    """
    n, n_tags = evidence.given.shape
    rng = np.random.default_rng(seed)
    n_sure = max(1, round(SURE_SHARE * evidence.given.nnz))
    sums, squares, of_given = np.zeros((3, n_tags))
    n_absent = n - evidence.counts
    enough = evidence.counts > UNUSUAL if (evidence.counts > UNUSUAL).any() else np.ones(n_tags, np.bool_)
    top, drawn = np.zeros(0), []
    rate = min(1.0, MOST_CASES / n / n_tags)
    for _, q, has in evidence.blocks():
        odds = log_odds(q)
        absent = np.where(has, 0, odds)
        sums += absent.sum(axis=0)
        squares += (absent**2).sum(axis=0)
        of_given += np.where(has, odds, 0).sum(axis=0)
        top = np.sort(np.concatenate([top, q[q > (top[0] if top.size == n_sure else 0)]]))[-n_sure:]
        places, tags = np.nonzero((rng.random(q.shape) < rate) & ~has)
        drawn.append((odds[places, tags], tags))
    mean = sums / np.maximum(n_absent, 1)
    deviation = np.sqrt(np.maximum(squares / np.maximum(n_absent, 1) - mean**2, TINY))
    away = [(odds - mean[tags]) / deviation[tags] for odds, tags in drawn]
    low = mean + np.quantile(np.concatenate(away), LOW_SHARE) * deviation
    above = ((of_given - evidence.counts * mean) / deviation)[enough].sum() / evidence.counts[enough].sum()
    telling, n_given = np.clip(above / TELLING, 0, 1), evidence.counts[enough].sum()
    given_low, absent_low, n_above, above_absent = np.zeros((4, n_tags))

    for _, q, has in evidence.blocks():
        is_low, is_sure = log_odds(q) <= low, q >= top[0]
        given_low += (is_low & has & enough).sum(axis=0)
        absent_low += (is_low & ~has & enough).sum(axis=0)
        n_above += is_sure.sum(axis=0)
        above_absent += (is_sure & ~has).sum(axis=0)
    n_wrong, best, untrue = given_low.sum(), -np.inf, np.zeros(n_tags)
    for power in POWERS:
        share = evidence.common**power
        usual = EXPECTED * evidence.counts[enough].sum() / max(share[enough] @ n_absent[enough], TINY)
        scale = (n_wrong + EXPECTED_WRONG) / (share @ absent_low + EXPECTED_WRONG / usual)
        usual = scale * share * absent_low + TINY
        if (likely := given_low @ np.log(usual) - usual.sum() + FAVOURED * power) > best:
            unlike = scale * (share @ n_absent) / evidence.given.nnz
            wrong = telling * n_given / (n_given + UNLIKE) * scale / (1 + (unlike / MOST_UNLIKE) ** 2)
            best, untrue = likely, np.clip(wrong * share, TINY, MOST)
    missing = _shrunk(above_absent, n_above, groups_of(evidence.counts))
    return Noise(untrue, telling * n_given / (n_given + LIKE) * missing, n_wrong)


def groups_of(counts: NDArray[Any]) -> NDArray[np.int8]:
    """Return the number of each tag's group: tags with about as many images, the rarest in group 0."""
    groups = np.zeros(len(counts), np.int8)
    for number, band in enumerate(frequency_bands(counts)):
        groups[band.tags] = number
    return groups


def _shrunk(sums: Doubles, of: Doubles, groups: NDArray[np.int8]) -> Doubles:
    """Return sums / of for each tag, drawn to that of tags about as frequent, these to all, all to what is usual."""
    common = (sums.sum() + EXPECTED_IMAGES * EXPECTED) / (of.sum() + EXPECTED_IMAGES)
    of_group = [np.bincount(groups, values) for values in (sums, of)]
    share = ((PRIOR * common + of_group[0]) / (PRIOR + of_group[1]))[groups]
    drawn: Doubles = np.clip((PRIOR * share + sums) / (PRIOR + of), LEAST, MOST)
    return drawn


def _chance(odds: Doubles) -> Doubles:
    chance: Doubles = np.exp(-np.logaddexp(0, -odds))
    return chance


class _Best:
    """The pairs of the largest odds."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = np.zeros((3, 0))  # image, tag, odds

    def add(self, start: int, odds: Doubles, entries: NDArray[np.bool_]) -> None:
        """Take the entries of a block that are among the best."""
        if self._limit == self._kept.shape[1]:
            entries = entries & (odds > self._kept[2].min(initial=np.inf))
        places, tags = np.nonzero(entries)
        block = np.stack([start + places, tags, odds[places, tags]])
        kept = np.concatenate([self._kept, block], axis=1)
        self._kept = kept[:, np.lexsort((kept[1], kept[0], -kept[2]))[: self._limit]]

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Doubles]:
        """Return images, tags and odds."""
        images, tags, odds = self._kept
        return images.astype(np.int64), tags.astype(np.int64), odds


class Evidence:
    """The chance that a tag was given, by what a model sees in the image and by the image's other tags."""

    def __init__(
        self, chances: Any, given: sp.csr_array, folds: NDArray[np.int64], related: NDArray[np.int64] | None, seed: int
    ) -> None:
        from sklearn.linear_model import LogisticRegression

        n_tags = given.shape[1]
        pairs = np.empty((0, 2), np.int64) if related is None else np.asarray(related, np.int64)
        ends = np.concatenate([pairs, pairs[:, ::-1], np.repeat(np.arange(n_tags)[:, None], 2, axis=1)])
        bound = sp.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n_tags, n_tags))
        self._bound = sp.csr_array((bound > 0).astype(np.float64))  # Each tag with itself and those related
        self._chances, self.given, self._folds = chances, given, folds
        self.counts = np.bincount(given.indices, minlength=given.shape[1])
        self._company = Company.of(chances, given, folds, self._bound)
        self.common = (self.counts + 0.5) / (given.shape[0] + 1)
        self._curve: Any = None
        n, n_tags = given.shape
        rng = np.random.default_rng(seed)
        rate = min(1.0, MOST_CASES / max(n * n_tags, 1))
        cases: list[tuple[Doubles, NDArray[np.bool_]]] = []
        for _, features, has in self._blocks():
            keep = has | (rng.random(has.shape) < rate)
            cases.append((features[keep], has[keep]))
        features = np.concatenate([case[0] for case in cases])
        has = np.concatenate([case[1] for case in cases])
        weights = np.where(has, 1.0, 1 / rate)
        self._mean, self._scale = features.mean(axis=0), features.std(axis=0) + TINY
        self._curve = LogisticRegression(max_iter=1000).fit(
            (features - self._mean) / self._scale, has, sample_weight=weights
        )

    def _blocks(self) -> Iterator[tuple[slice, Doubles, NDArray[np.bool_]]]:
        """Yield rows, features of shape (n_rows, n_tags, 5), and which tags the images have."""
        log_common = np.log(self.common / (1 - self.common))
        for rows in _blocks_of(self.given.shape):
            given, p = sp.csr_array(self.given[rows]), self._chances[rows]
            has, odds = given.toarray() > 0, log_odds(p)
            E = self._company.expected(p, given, self._folds[rows], self.common)
            others = np.log1p(has.sum(axis=1, keepdims=True) - (given > 0).astype(np.float64) @ self._bound)
            parts = (odds, np.broadcast_to(log_common, odds.shape), E, np.log(np.maximum(E, LEAST_EXPECTED)), others)
            yield rows, np.stack(parts, axis=-1), has

    def blocks(self) -> Iterator[tuple[slice, Doubles, NDArray[np.bool_]]]:
        """Yield rows, the chances q that tags were given, shape (n_rows, n_tags), and which were."""
        coef = self._curve.coef_[0] / self._scale
        constant = self._curve.intercept_[0] - coef @ self._mean
        for rows, features, has in self._blocks():
            yield rows, 1 / (1 + np.exp(-(features @ coef + constant))), has


class Company(NamedTuple):
    """What the other tags of an image, and its chances of all tags, say of a tag: ``(a - mean) B + mean`` (EASE).

    ``a`` has the tags that are given and, scaled, the log odds of all chances. B is ridge regression in which no tag
    says anything of itself, nor of tags that are bound to it. Images of a fold are judged by those of the other folds.

    References
    ----------
    Steck: Embarrassingly shallow autoencoders for sparse data. WWW 2019.
    """

    frequent: NDArray[np.int64]  # shape (n_frequent,): the tags that are looked at
    weights: list[Doubles]  # B of each fold, shape (2 n_frequent, n_frequent)
    means: list[Doubles]  # Of each fold, shape (2 n_frequent,)

    @classmethod
    def of(cls, chances: Any, given: sp.csr_array, folds: NDArray[np.int64], bound: sp.csr_array) -> Self:
        """Learn from all images, once for each fold; `bound` is above 0 where a tag must say nothing of another."""
        counts = np.bincount(given.indices, minlength=given.shape[1])
        frequent = np.sort(np.argsort(-counts, kind="stable")[:COMPANIONS])
        among = sp.csr_array(bound[frequent][:, frequent])
        lists = np.split(among.indices, among.indptr[1:-1])
        several = {column: np.sort(out) for column, out in enumerate(lists) if out.size > 1}
        n_folds, width = int(folds.max()) + 1, 2 * frequent.size
        grams, sums = np.zeros((n_folds, width, width)), np.zeros((n_folds, width))
        for rows in _blocks_of(given.shape):
            A = _company(chances[rows], given[rows], frequent)
            for fold in np.unique(folds[rows]):
                part = A[folds[rows] == fold]
                grams[fold] += part.T @ part
                sums[fold] += part.sum(axis=0)

        weights, means = [], []
        for fold, n in enumerate(given.shape[0] - np.bincount(folds)):
            mean = (sums.sum(axis=0) - sums[fold]) / n
            gram = grams.sum(axis=0) - grams[fold] - n * np.outer(mean, mean)
            inverse = np.linalg.inv(gram + FIRMNESS * np.eye(width))
            B = -(inverse / np.diag(inverse))[:, : frequent.size]
            np.fill_diagonal(B, 0.0)
            for column, out in several.items():  # the same regression without these rows: their block of the inverse
                B[:, column] = -inverse[:, out] @ np.linalg.inv(inverse[np.ix_(out, out)])[:, out == column].ravel()
                B[out, column] = 0.0
            weights.append(B)
            means.append(mean)
        return cls(frequent, weights, means)

    def expected(self, p: Any, given: sp.csr_array, folds: NDArray[np.int64], common: Doubles) -> Doubles:
        """Return how far an image's company leads to expect each tag, shape (n_images, n_tags); others are `common`."""
        expected = np.repeat(common[None], given.shape[0], axis=0)
        A = _company(p, given, self.frequent)
        for fold in np.unique(folds):
            rows = np.flatnonzero(folds == fold)
            mean = self.means[fold]
            expected[np.ix_(rows, self.frequent)] = (A[rows] - mean) @ self.weights[fold] + mean[: self.frequent.size]
        return expected


def _blocks_of(shape: tuple[int, int]) -> Iterator[slice]:
    """Yield the rows of each block of a matrix."""
    step = max(1, BLOCK // max(shape[1], 1))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def log_odds(chances: Any) -> Doubles:
    """Return ``log(p / (1 - p))``; chances of nearly 0 and nearly 1 are moved inwards."""
    p = np.clip(np.asarray(chances, np.float64), LEAST, 1 - LEAST)
    odds: Doubles = np.log(p) - np.log1p(-p)
    return odds


def _company(chances: Any, given: sp.csr_array, frequent: NDArray[np.int64]) -> Doubles:
    """Return what tells of an image's tags: those given, and the log odds of all, shape (n_images, 2 n_frequent)."""
    return np.concatenate([given[:, frequent].toarray(), log_odds(chances[:, frequent]) * ODDS_SCALE], axis=1)
