"""Photos as values of a kernel between bags of local descriptors, theirs and those of the training photos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from visterm.core.checks import as_csr, as_generator, check_count, check_number, check_size
from visterm.core.errors import DataError, UnknownNameError
from visterm.core.learned import Array, Csr, Fitted, Kind, Listed, Number, Whole
from visterm.core.progress import Progress
from visterm.core.registry import unknown
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import RandomState
from visterm.encoders import (
    COLOUR_IMAGES,
    MAX_COLOURS,
    MAX_VALUE,
    OVERLAP,
    BlockCutter,
    Encoder,
    Images,
    Pixels,
    Visterms,
    cells_of_overlap,
    learn_palette,
    pixel_codes,
)
from visterm.kernels import N_PATTERNS, colour_table
from visterm_research.encoders.bags import MARK_BYTES, MINORS, Bags, BestMatches, Doubles, Floats, mark_of
from visterm_research.encoders.gaussian_mixtures import (
    COVARIANCES,
    Mixtures,
    fit_mixtures,
    log_likelihoods,
    log_likelihoods_among,
    log_own_likelihoods,
)

BAG_KERNELS = ("match", "expected_likelihood", "visterm")

MAX_KERNEL_BYTES = 2**32
BYTES_A_PAIR = 12  # Of two training images: the kernel, and what it is computed in
NARROW = 3.0  # γ of the rbf, times the mean squared distance between blocks: best matches are nearer than most
BLOCK_PARAMS = ("block", "scales", "overlap", "colours", "colour_space", "root", "texture_weight", "max_side")
WORD_PARAMS = ("codebook", "neighbours", "root_terms", "sample_blocks", "random_state", "batch_size", "n_jobs")

DESCRIPTORS = f"n_colours + {N_PATTERNS}"  # Columns of points: texture, then colours
OF_ALL_BAGS = {"kernel_", "marks_", "own_", "colours_", "start_"}
LEARNED = {
    "match": {*OF_ALL_BAGS, "points_", "gamma_"},
    "expected_likelihood": {*OF_ALL_BAGS, "weights_", "means_", "spreads_", "floor_", "seed_"},
    "visterm": {"parts_", "rows_"},
}
"""What each kernel learns."""


@dataclass(kw_only=True, eq=False, repr=False)
class BagKernel(Encoder):
    """``x = (k(p, p_1), ..., k(p, p_n))``: a photo by its kernel with each training photo, for kernel="precomputed".

    A photo p is a bag of local descriptors: the overlapping blocks of `visterms`, each two histograms, of texture and
    of colours, before they are assigned to words. Section IV-C of the PAMIR paper [1]_ compares bags by three kernels:

    * "match" [2]_: ``½ [k̂(p, p') + k̂(p', p)]`` with ``k̂(p, p') = 1/|p| Σ_i max_j k(p_i, p'_j)``: how well the blocks of
      each are matched by the best of the other, under a minor kernel of two blocks. No true kernel of Mercer's;
    * "expected_likelihood": ``∫ p(v) p'(v) dv`` of Gaussian mixtures, one fitted to each bag;
    * "visterm": the product of the two rows that `visterms` gives.

    All training images are read and kept, in their order, and the model has to learn from these very images:
    ``--encoder bag_kernel --model kernel_pamir --set kernel=precomputed`` (or `svm`). The rows of n training images
    take 4 n² bytes, and time in proportion to n²: most with "expected_likelihood" and full covariances, less with
    "match", and least with "expected_likelihood" and diagonal ones. A new photo is compared with all of them.

    The defaults of "match" and "expected_likelihood" were chosen by the average precision of `pamir` over queries, on
    held-out training photos of Corel5k.

    Parameters
    ----------
    kernel : {"match", "expected_likelihood", "visterm"}
    minor : {"rbf", "linear", "polynomial"}
        With "match", how two blocks are compared: ``exp(-γ |d - d'|²)``, ``d · d'`` or ``(d · d' + offset)^degree``.
    gamma : float, optional
        γ of the rbf, ``1 / (2 stdv²)``. None: 3 / mean squared distance between blocks of training images.
    degree : int
    offset : float
        Of the polynomial; not below 0.
    gaussians : int
        With "expected_likelihood", Gaussians a photo; the paper found 1 best.
    covariance : {"diagonal", "full"}
        Of each Gaussian.
    regularisation : float
        Added to the variances, as a share of the mean variance of a feature over all training blocks. Less makes photos
        less like any but themselves: with 1 two different photos have next to nothing in common.
    normalise : bool
        Divide by ``√(k(p, p) k(p', p'))``, so that each photo is as like itself as another [3]_. False: as the paper
        prints it. For "visterm" and for "match" with the rbf both are the same.
    block, scales, overlap, colours, colour_space, root, texture_weight, max_side
        As in `Visterms`. Blocks of all scales are in one bag.
    codebook, neighbours, root_terms, sample_blocks
        As in `Visterms`, for "visterm" alone.
    random_state : int, RandomState, Generator or None
        Draws the images and pixels that colours are learned from, and starts mixtures.
    batch_size, n_jobs
        As in `Visterms`.

    Attributes
    ----------
    kernel_ : ndarray of float32, shape (n_images, n_images)
        The rows of the training images, which are known again by the bytes of their bags; not for "visterm".
    marks_ : ndarray of uint8, shape (n_images, 16)
        What they are known by.
    own_ : ndarray of float64, shape (n_images,)
        ``k(p, p)``; with "expected_likelihood" its logarithm.
    colours_ : ndarray of float32, shape (n_colours, 3)
    points_, start_ : ndarray of float32, shape (n_blocks, 59 + n_colours), and of int64, shape (n_images + 1,)
        With "match": the bags.
    gamma_ : float
        γ.
    weights_, means_, spreads_, start_ : ndarray
        With "expected_likelihood": the mixtures, see `Mixtures`.
    floor_, seed_ : float, int
        What is added to variances, and the seed of each mixture.
    parts_ : list of AnyEncoder
        With "visterm": the fitted `Visterms`.
    rows_ : csr_array of float32, shape (n_images, n_words)
        The rows that it gave the training images.

    References
    ----------
    .. [1] D. Grangier, S. Bengio, "A discriminative kernel-based model to rank images from text queries", IEEE PAMI
       30(8), 2008.
    .. [2] C. Wallraven, B. Caputo, "Recognition with local features: the kernel recipe", ICCV 2003.
    .. [3] S. Lyu, "A kernel between unordered sets of data: the Gaussian mixture approach", ECML 2005.
    """

    test_params: ClassVar[dict[str, Any]] = {"colours": 8}

    learned: ClassVar[dict[str, Kind]] = {
        "kernel_": Array("float32", ("n_images", "n_images"), required=False),
        "marks_": Array("uint8", ("n_images", MARK_BYTES), required=False),
        "own_": Array("float64", ("n_images",), required=False),
        "colours_": Array("float32", ("n_colours", 3), least=-MAX_VALUE, most=MAX_VALUE, required=False),
        "points_": Array("float32", ("n_points", DESCRIPTORS), least=0, most=MAX_VALUE, required=False),
        "start_": Array("int64", ("n_images + 1",), least=0, ascending=True, required=False),
        "gamma_": Number(above=0, required=False),
        "weights_": Array("float64", ("n_components",), required=False),
        "means_": Array("float64", ("n_components", DESCRIPTORS), least=-MAX_VALUE, most=MAX_VALUE, required=False),
        "spreads_": Array("float64", ("n_components", DESCRIPTORS, None), required=False),
        "floor_": Number(above=0, required=False),
        "seed_": Whole(most=2**32 - 1, required=False),
        "parts_": Listed(Fitted(base=Visterms), 1, required=False),
        "rows_": Csr("float32", ("n_images", "n_words"), required=False),
    }

    kernel: str = "match"
    minor: str = "rbf"
    gamma: float | None = None
    degree: int = 2
    offset: float = 1.0
    gaussians: int = 1
    covariance: str = "diagonal"
    regularisation: float = 10.0
    normalise: bool = True
    block: float = 1 / 6
    scales: Sequence[float] = (1.0,)
    overlap: float = OVERLAP
    colours: int = 50
    colour_space: str = "lab"
    root: bool = True
    texture_weight: float = 3.0
    codebook: int = 10_000
    neighbours: int = 4
    root_terms: bool = True
    max_side: int = 256
    sample_blocks: int = 200_000
    random_state: RandomState = 0
    batch_size: int = 64
    n_jobs: int | None = None

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as in scikit-learn; a number of threads is passed on to the encoder inside."""
        super().set_params(**params)
        for part in getattr(self, "parts_", []) if "n_jobs" in params else []:
            part.set_params(n_jobs=self.n_jobs)
        return self

    @property
    def width(self) -> int | None:
        """One column a training photo."""
        return self.rows_.shape[0] if self.kernel == "visterm" else len(self.own_)

    def _fit_images(self, images: Images, skip_unreadable: bool, progress: Progress) -> None:
        self._check_params()
        advice = "Learn from fewer images, or use the encoder visterms with a linear model."
        check_size(BYTES_A_PAIR * len(images) ** 2, MAX_KERNEL_BYTES, f"The kernel of {len(images)} images", advice)
        if self.kernel == "visterm":
            part = self._visterms().fit(images, skip_unreadable=skip_unreadable, progress=progress)
            self.parts_ = [part]
            self.rows_ = as_csr(part.encode(images, progress=progress).rows)
            return
        rng = as_generator(self.random_state)
        some = [images[i] for i in np.sort(rng.permutation(len(images))[:COLOUR_IMAGES])]
        readable = list(self._readable(some, skip_unreadable))
        self.colours_ = learn_palette(
            readable, self.colours, self.colour_space, rng, n_jobs=self.n_jobs, progress=progress
        )
        bags = self._describe_all(self._readable(images, skip_unreadable), self._bag_of(), self.n_jobs, progress)
        self.marks_ = np.stack([np.frombuffer(mark_of(bag), np.uint8) for bag in bags])
        stacked = Bags.of(bags)
        if self.kernel == "match":
            self.points_, self.start_ = stacked
            self.gamma_ = float(self.gamma) if self.gamma is not None else NARROW / (stacked.spread() or 1.0)
            values = self._matches().among(progress, self.n_jobs)
        else:
            self.floor_ = self.regularisation * (stacked.spread() / 2 / stacked.points.shape[1] or 1.0)
            self.seed_ = int(rng.integers(2**31))
            mixtures = self._fit_mixtures(bags)
            self.weights_, self.means_, self.spreads_, self.start_ = mixtures
            values = log_likelihoods_among(mixtures, self.n_jobs, progress)
        self.own_ = values.diagonal().copy()
        self.kernel_ = self._normalised(values, self.own_)

    def _encode_batch(self, batch: list[Pixels]) -> Floats:
        if self.kernel == "visterm":
            rows = as_csr(self.parts_[0]._encode_batch(batch))
            return np.asarray((rows @ self.rows_.T).toarray(), np.float32)
        bag_of = self._bag_of()
        with Team(min(resolve_jobs(self.n_jobs), len(batch))) as team:
            bags = team.run(lambda i: bag_of(batch[i]), len(batch))
        known = self._cached(
            lambda marks: {mark.tobytes(): i for i, mark in reversed(list(enumerate(marks)))}, self.marks_
        )
        places = np.array([known.get(mark_of(bag), -1) for bag in bags])
        K = np.empty((len(batch), len(self.own_)), np.float32)
        K[places >= 0] = self.kernel_[places[places >= 0]]
        new = np.flatnonzero(places < 0)
        if new.size:
            values, own = self._compare([bags[i] for i in new])
            K[new] = self._normalised(values, own)
        return K

    def _compare(self, bags: list[Floats]) -> tuple[Doubles, Doubles]:
        """Return the kernel of new bags with all training images, and with themselves."""
        if self.kernel == "expected_likelihood":
            mixtures, kept = self._fit_mixtures(bags), Mixtures(self.weights_, self.means_, self.spreads_, self.start_)
            return log_likelihoods(mixtures, kept, self.n_jobs), log_own_likelihoods(mixtures)
        matches = self._matches()
        with one_blas_thread(), Team(min(resolve_jobs(self.n_jobs), len(bags))) as team:
            values = np.stack(team.run(lambda i: matches.values(bags[i]), len(bags)))
            return values, np.array(team.run(lambda i: matches.with_itself(bags[i]), len(bags)))

    def _normalised(self, values: Doubles, own: Doubles) -> Floats:
        """Return the kernel of images with the training images, normalised if set; `own` is theirs with themselves."""
        if self.kernel == "expected_likelihood":
            logs = values - (own[:, None] + self.own_) / 2 if self.normalise else values
            with np.errstate(over="ignore"):
                found = np.exp(np.minimum(logs, 0.0) if self.normalise else logs).astype(np.float32)
            if not np.isfinite(found).all():
                raise DataError(
                    f"A likelihood is exp({logs.max():.0f}), beyond float32. Use normalise=True or more regularisation."
                )
            return found
        scale = np.sqrt(own)[:, None] * np.sqrt(self.own_) if self.normalise else 1.0
        return np.asarray(values / scale, np.float32)

    def _bag_of(self) -> Callable[[Pixels], Floats]:
        """Return the function from an image to its blocks, of all scales."""
        table = colour_table(self.colours_, self.colour_space == "lab")
        sides = tuple(self.block * float(scale) for scale in self.scales)
        cells = cells_of_overlap(self.overlap)
        cutter = BlockCutter(sides, len(self.colours_), self.root, self.texture_weight, cells)

        def bag(pixels: Pixels) -> Floats:
            codes = pixel_codes(pixels, table)
            return np.concatenate([cutter.points(codes, scale) for scale in range(len(sides))])

        return bag

    def _fit_mixtures(self, bags: list[Floats]) -> Mixtures:
        return fit_mixtures(bags, self.gaussians, self.covariance, self.floor_, self.seed_, self.n_jobs)

    def _matches(self) -> BestMatches:
        """Return the match kernel with the training bags."""
        return self._cached(
            lambda points, start, minor, gamma, degree, offset: BestMatches(
                Bags(points, start), minor, gamma=gamma, degree=degree, offset=offset
            ),
            self.points_, self.start_, self.minor, self.gamma_, self.degree, self.offset,
        )  # fmt: skip

    def _visterms(self) -> Visterms:
        """Return an encoder of visterms with these settings, not fitted."""
        return Visterms(**{name: getattr(self, name) for name in BLOCK_PARAMS + WORD_PARAMS})

    def _check_learned(self) -> None:
        """Refuse what another kernel learns, and bags or mixtures whose parts do not fit onto each other."""
        found = {name for name in self.learned if hasattr(self, name)}
        if found != LEARNED[self.kernel]:
            raise DataError(
                f"The kernel '{self.kernel}' learns {', '.join(sorted(LEARNED[self.kernel]))}, but there are "
                f"{', '.join(sorted(found))}"
            )
        if self.kernel == "visterm":
            if self.parts_[0].width != self.rows_.shape[1]:
                raise DataError(f"rows_ has {self.rows_.shape[1]} columns; expected {self.parts_[0].width}")
            return
        if len(self.colours_) > MAX_COLOURS:
            raise DataError(f"colours_ has {len(self.colours_)} colours; expected at most {MAX_COLOURS}")
        n = len(self.points_ if self.kernel == "match" else self.means_)
        if self.start_[0] != 0 or self.start_[-1] != n or (np.diff(self.start_) < 1).any():
            raise DataError(f"start_ has a bag without a point, or does not go from 0 to {n}")
        if self.kernel == "match":
            if (self.own_ < 0).any() or (self.normalise and (self.own_ == 0).any()):
                raise DataError("own_ has numbers that are not above 0")
            return
        n_features, n_spreads = self.spreads_.shape[1:]
        if n_spreads != (1 if self.covariance == "diagonal" else n_features):
            raise DataError(f"spreads_ has the shape {self.spreads_.shape}, which is not that of {self.covariance}")
        variances = self.spreads_[:, :, 0] if n_spreads == 1 else np.einsum("ijj->ij", self.spreads_)
        if (variances <= 0).any():
            raise DataError("spreads_ has variances that are not above 0")

    def _check_params(self) -> None:
        for name, value, known in (
            ("kernel", self.kernel, list(BAG_KERNELS)),
            ("minor kernel", self.minor, list(MINORS)),
            ("covariance", self.covariance, list(COVARIANCES)),
        ):
            if value not in known:
                raise UnknownNameError(unknown(name, str(value), known))
        self._visterms()._check_params()
        check_number(self.gamma, "gamma", above=0, otherwise="or None")
        check_count(self.degree, "degree")
        check_count(self.gaussians, "gaussians")
        check_number(self.offset, "offset", least=0)
        check_number(self.regularisation, "regularisation", above=0)
