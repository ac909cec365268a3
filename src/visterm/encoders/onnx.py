"""An output of any image network in an ONNX file, rooted, centred and normalised into feature rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import EncoderMismatchError, StorageError, UserError
from visterm.core.progress import Progress
from visterm.core.threads import Team, resolve_jobs
from visterm.core.types import RandomState
from visterm.encoders.base import Encoder, Pixels
from visterm.encoders.network import Network, network_hash
from visterm.encoders.views import check_views, square_views

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
MAX_SIDE = 3
"""Photos are reduced on reading to so many times the side of the network's square."""


class Onnx(Encoder):
    """Feature rows from an output of an image network in an ONNX file.

    A photo is shown to the network as one square picture or more (`views`), and the outputs are averaged. The mean
    output ``f`` becomes the row ``x = (√f - c) / |√f - c|``: the root evens out the few large values of features that
    are never negative, ``c`` is the mean over training photos, and rows of length 1 make dot products cosines.

    Photos go through the network one by one in `n_jobs` threads, which gives the same bytes for any number of threads
    and any company in the batch.

    Parameters
    ----------
    path : str
        The ONNX file: one input of images, uint8 or float, channels first or last. What a float network takes is
        ``(scale · pixel - mean) / std``; a uint8 network takes pixels as they are.
    output : str, optional
        Name of the output to read: rows, tokens or maps (the last two are averaged). None: the only one, or the one
        called features, embeddings or pooled.
    views : {"three", "whole", "centre"}
        "whole" squeezes the photo into the square; "centre" cuts the middle out, as networks are mostly trained;
        "three" averages the whole and the squares at both ends of the long side: three times the work for the best
        rows. MAP over images of ridge and knn on MobileNetV2 features, 500 training photos of Corel5k held out, mean
        of 4 draws: "three" 0.598 and 0.634, "whole" 0.586 and 0.625, "centre" 0.579 and 0.618.
    root : bool
        Take square roots where the features of the training photos are nowhere negative.
    centre : bool
        Subtract the mean over the training photos.
    normalise : bool
        Divide rows by their length.
    size : int, optional
        Side of the square in pixels, for networks that take any (None: 224).
    mean, std : float or sequence of 3 floats
        Of the colours red, green and blue that a float network was trained with; the defaults are ImageNet's.
    scale : float
        What pixels of 0 to 255 are multiplied with before, for float networks.
    random_state : int, RandomState, Generator or None
        Draws the training photos from which the mean is learned, if there are more than `fit_images`.
    batch_size : int
        Photos held in memory at a time.
    n_jobs : int, optional
        Threads; None is all cores.

    Attributes
    ----------
    centre_ : ndarray of float32, shape (n_features,)
        The mean row of the training photos, after the root; zeros without `centre`.
    rooted_ : bool
        Whether square roots are taken.
    network_sha256_ : str
        Hash of the network's file. Only this network is used ever after.
    network_path_ : str
        Where it was, in full. It may move: `path` is looked at first.
    """

    argument = "path"
    location_attributes = ("network_path_",)
    fit_images = 1000

    centre_: NDArray[np.float32]
    rooted_: bool
    network_sha256_: str
    network_path_: str

    def __init__(
        self,
        *,
        path: str | os.PathLike[str] | None = None,
        output: str | None = None,
        views: str = "three",
        root: bool = True,
        centre: bool = True,
        normalise: bool = True,
        size: int | None = None,
        mean: float | Sequence[float] = IMAGENET_MEAN,
        std: float | Sequence[float] = IMAGENET_STD,
        scale: float = 1 / 255,
        random_state: RandomState = 0,
        batch_size: int = 32,
        n_jobs: int | None = None,
    ) -> None:
        self.path = path
        self.output = output
        self.views = views
        self.root = root
        self.centre = centre
        self.normalise = normalise
        self.size = size
        self.mean = mean
        self.std = std
        self.scale = scale
        self.random_state = random_state
        self.batch_size = batch_size
        self.n_jobs = n_jobs

    def _fit_sample(self, sample: Iterator[Pixels], rng: np.random.Generator, progress: Progress) -> None:
        path = self._given_path()
        parts: list[NDArray[np.float32]] = []
        progress.start("learn the mean", None)
        try:
            while batch := list(islice(sample, self.batch_size)):
                parts.append(self._outputs(batch))
                progress.advance(len(batch))
        finally:
            progress.finish()
        rows = np.concatenate(parts)
        self.rooted_ = bool(self.root and rows.min() >= 0)
        if self.rooted_:
            rows = np.sqrt(rows)
        mean = rows.mean(axis=0, dtype=np.float64) if self.centre else np.zeros(rows.shape[1])
        self.centre_ = mean.astype(np.float32)
        self.network_sha256_ = network_hash(path)
        self.network_path_ = os.path.abspath(path)

    def _encode_batch(self, batch: list[Pixels]) -> NDArray[np.float32]:
        rows = self._outputs(batch)
        if self.rooted_:
            rows = np.sign(rows) * np.sqrt(np.abs(rows))
        rows -= self.centre_
        if self.normalise:
            lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
            rows /= np.where(lengths > 0, lengths, 1)[:, None]
        return rows

    def _outputs(self, batch: list[Pixels]) -> NDArray[np.float32]:
        """Run the network on each photo, shape (len(batch), n_features)."""
        check_views(self.views)
        network = self._open()
        mean, std = _colours("mean", self.mean), _divisors(self.std)

        def row(i: int) -> NDArray[np.float32]:
            rows = []
            for view in square_views(batch[i], network.size, self.views):
                pixels: NDArray[Any] = view
                if network.dtype is not np.uint8:
                    pixels = (view * np.float32(self.scale) - mean) / std
                rows.append(network.run(pixels))
            mean_row: NDArray[np.float32] = np.mean(rows, axis=0, dtype=np.float32)
            return mean_row

        with Team(min(resolve_jobs(self.n_jobs), len(batch))) as team:
            return np.stack(team.run(row, len(batch)))

    @property
    def _max_side(self) -> int:
        return MAX_SIDE * self._open().size

    def _open(self) -> Network:
        """Open the network at first use, and again where what names it has changed."""
        key = (getattr(self, "network_sha256_", None) or network_hash(self._given_path()), self.output, self.size)
        if getattr(self, "_opened_key", None) != key:
            self._opened = Network(self._find(), output=self.output, size=self.size)
            self._opened_key = key
        return self._opened

    def _find(self) -> str:
        """Find the network that this encoder was fitted with, where it is now or where it was then."""
        if not hasattr(self, "network_sha256_"):
            return self._given_path()
        places = list(dict.fromkeys([os.path.abspath(self._given_path()), self.network_path_]))
        found = [place for place in places if os.path.isfile(place)]
        for place in found:
            if network_hash(place) == self.network_sha256_:
                return place
        if found:
            raise EncoderMismatchError(
                f"The network {found[0]} has changed since this encoder was fitted: its SHA-256 is "
                f"{network_hash(found[0])}, expected {self.network_sha256_}. Put the old file back, or fit again."
            )
        raise StorageError(
            f"The network that this encoder was fitted with is not at {' nor at '.join(places)}. Put it back there "
            f"(its SHA-256 is {self.network_sha256_}), or in Python name its new place: encoder.set_params(path=...)."
        )

    def _given_path(self) -> str:
        if self.path is None:
            raise UserError("The onnx encoder needs a network, an ONNX file: --encoder onnx:PATH, or path=...")
        return os.fspath(self.path)

    def _fingerprint_params(self, params: dict[str, Any]) -> dict[str, Any]:
        sha256 = getattr(self, "network_sha256_", None)
        return {**params, "path": sha256 or (None if self.path is None else network_hash(self.path))}

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {key: value for key, value in state.items() if not key.startswith("_opened")}


def _colours(name: str, value: float | Sequence[float]) -> NDArray[np.float32]:
    """Give one number a colour, from one number or three."""
    try:
        numbers = np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(_not_colours(name, value)) from error
    if numbers.shape not in ((), (3,)) or not np.isfinite(numbers).all():
        raise UserError(_not_colours(name, value))
    return np.broadcast_to(numbers, (3,))


def _not_colours(name: str, value: object) -> str:
    return f"{name} is {value!r}; expected a number, or three: for red, green and blue."


def _divisors(std: float | Sequence[float]) -> NDArray[np.float32]:
    numbers = _colours("std", std)
    if (numbers <= 0).any():
        raise UserError(f"std is {std!r}; expected numbers above 0.")
    return numbers
