"""Base class of encoders that run a network: views, threads, and rows that are rooted, centred and normalised."""

from __future__ import annotations

import hashlib
import json
import os
from abc import abstractmethod
from collections.abc import Iterator
from itertools import chain, islice
from typing import ClassVar, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import check_choice, check_count
from visterm.core.errors import EncoderMismatchError, ShapeError, StorageError, UserError
from visterm.core.learned import FILE_NAME, HASH, Array, Flag, Kind, Text
from visterm.core.packing import json_params
from visterm.core.progress import Progress, reported
from visterm.core.threads import Team, resolve_jobs
from visterm.encoders.base import Encoder, Pixels
from visterm.encoders.onnx_graph import network_hash
from visterm.encoders.preparation import VIEWS, Preparation, views_of

MAX_KEPT_OUTPUTS = 2000
"""Maximum number of photos whose outputs are kept: a chain would otherwise run each photo three times. They take a few
megabytes, and hashing a picture takes a hundredth of the time of a small network (MobileNetV2)."""

PHOTOS_PER_CALL = 4  # Photos that a thread passes to a network together, to read the weights only once for them
MAX_SIDE_FACTOR = 3  # Photos are read at up to 3 times the longer side of the network's pictures


class OpenNetwork(Protocol):
    """An open network."""

    preparation: Preparation

    @property
    def runs_on(self) -> str:
        """The device in use."""

    @property
    def is_batch_independent(self) -> bool:
        """Whether a picture's row does not depend on the batch: then each thread passes a few pictures."""

    def rows(self, pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the rows, (n, n_features), of pictures, (n, height, width, 3)."""


_OPEN_NETWORKS: WeakValueDictionary[tuple[type, str, str], OpenNetwork] = WeakValueDictionary()
"""Open networks, by the class of their encoder, their file and the settings that affect rows."""


class NetworkEncoder(Encoder):
    """Feature rows from a network in a file. Subclasses implement `_configured_path`, `_path_error` and `_open_file`.

    `Onnx` describes how outputs become rows. Subclasses have the parameters `views`, `root`, `centre`, `normalise`,
    `random_state`, `batch_size` and `n_jobs` of `Onnx`, and its learned attributes except `settings_`.
    """

    location_attributes = ("network_path_",)
    max_fit_images = 1000

    file_parameter: str = "path"  # The constructor parameter with the path of the network
    views: str
    root: bool
    centre: bool
    normalise: bool
    batch_size: int
    n_jobs: int | None

    learned: ClassVar[dict[str, Kind]] = {
        "centre_": Array("float32", ("n_features",)),
        "rooted_": Flag(),
        "network_sha256_": Text(pattern=HASH),
        "network_path_": Text(pattern=FILE_NAME),
    }

    centre_: NDArray[np.float32]
    rooted_: bool
    network_path_: str

    _kept_outputs: dict[tuple[bytes, tuple[int, ...]], NDArray[np.float32]] | None = None
    """Outputs of the first photos since `fit`, by the hash of their pictures."""

    @property
    def width(self) -> int | None:
        """One column per feature of the network's output."""
        return len(self.centre_)

    @property
    def runs_on(self) -> str:
        """The device that the network runs on; opens the network."""
        return str(self._open().runs_on)

    @abstractmethod
    def _configured_path(self) -> str | None:
        """Return the path of the network's file according to the parameters; None if they name no file."""

    @abstractmethod
    def _path_error(self) -> UserError | StorageError:
        """Return the error, with advice, for parameters that name no file or a missing one."""

    @abstractmethod
    def _open_file(self, path: str) -> OpenNetwork:
        """Open the network in a file."""

    def _hash(self, path: str) -> str:
        return network_hash(path)

    def _store_settings(self, path: str) -> None:
        """Store settings that affect rows, from files next to the network, in attributes ending in ``_``."""

    def _check_params(self) -> None:
        """Open the network, which checks its file and settings."""
        check_choice(self.views, "views", VIEWS)
        self._open()

    def check_stored_settings(self) -> None:
        """Raise UserError for settings of the wrong type; the network is opened at first use."""
        check_choice(self.views, "views", VIEWS)
        check_count(self.batch_size, "batch_size")

    def _fit_sample(self, sample: Iterator[Pixels], rng: np.random.Generator, progress: Progress) -> None:
        self._check_params()
        path = self._file()
        if not (self.root or self.centre):
            sample = islice(sample, 1)  # only the width is learned
        self._kept_outputs = {} if self._open().is_batch_independent else None
        outputs: list[NDArray[np.float32]] = []

        with reported(progress, "learn the mean"):
            while batch := list(islice(sample, self.batch_size)):
                outputs.append(self._outputs(batch))
                progress.advance(len(batch))

        rows = np.concatenate(outputs)
        self.rooted_ = bool(self.root and rows.min() >= 0)
        if self.rooted_:
            rows = np.sqrt(rows)
        mean = rows.mean(axis=0, dtype=np.float64) if self.centre else np.zeros(rows.shape[1])
        self.centre_ = mean.astype(np.float32)
        self._store_settings(path)
        self.network_sha256_ = self._hash(path)
        self.network_path_ = os.path.abspath(path)

    def _encode_batch(self, batch: list[Pixels]) -> NDArray[np.float32]:
        rows = self._outputs(batch)
        if rows.shape[1] != len(self.centre_):
            raise ShapeError(f"The network returns {rows.shape[1]} features, but was fitted with {len(self.centre_)}.")
        if self.rooted_:
            rows = np.sign(rows) * np.sqrt(np.abs(rows))
        rows -= self.centre_
        if self.normalise:
            lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
            rows /= np.where(lengths > 0, lengths, 1)[:, None]
        return rows

    def _outputs(self, batch: list[Pixels]) -> NDArray[np.float32]:
        """Return the output of each photo, averaged over its views, shape (len(batch), n_features)."""
        check_choice(self.views, "views", VIEWS)
        network, kept_outputs = self._open(), self._kept_outputs

        def pictures(i: int) -> NDArray[np.uint8]:
            return np.stack(list(views_of(batch[i], network.preparation, self.views)))

        threads = min(resolve_jobs(self.n_jobs), len(batch))
        step = min(PHOTOS_PER_CALL, -(-len(batch) // threads))

        def mean_outputs(part: int) -> list[NDArray[np.float32]]:
            views_by_photo = [pictures(i) for i in range(part * step, min(part * step + step, len(batch)))]
            if kept_outputs is None:
                return _means(network, views_by_photo)
            keys = [(hashlib.sha256(views).digest(), views.shape) for views in views_by_photo]
            not_kept = {key: views for key, views in zip(keys, views_by_photo, strict=True) if key not in kept_outputs}
            outputs = dict(zip(not_kept, _means(network, list(not_kept.values())), strict=True)) if not_kept else {}
            rows = [outputs[key] if key in outputs else kept_outputs[key] for key in keys]
            if len(kept_outputs) < MAX_KEPT_OUTPUTS:
                kept_outputs.update(outputs)
            return rows

        with Team(threads) as team:
            if network.is_batch_independent:
                return np.stack(list(chain.from_iterable(team.run(mean_outputs, -(-len(batch) // step)))))
            return np.stack(_means(network, team.run(pictures, len(batch))))

    @property
    def _max_side(self) -> int:
        return MAX_SIDE_FACTOR * int(max(self._open().preparation.size))

    def _open(self) -> OpenNetwork:
        """Open the network at first use, and again if a parameter or the file has changed.

        Encoders with the same settings share an open network, so opening a run twice opens it once.
        """
        params = {k: v for k, v in json_params(self).items() if k not in ("n_jobs", "batch_size")}
        key = json.dumps(self._fingerprint_params(params), sort_keys=True)
        if getattr(self, "_opened_key", None) != key:
            path = self._network_file()
            network_key = type(self), path, key
            network = _OPEN_NETWORKS.get(network_key)
            if network is None:
                network = _OPEN_NETWORKS[network_key] = self._open_file(path)
            self._opened = network
            self._opened_key = key
            self._kept_outputs = None
        return self._opened

    def _network_file(self) -> str:
        """Return the path of the network that this encoder was fitted with or, before `fit`, of the configured network.

        Raises EncoderMismatchError if the file has changed; StorageError if it is missing.
        """
        if not hasattr(self, "network_sha256_"):
            return self._file()
        paths = [path for path in (self._configured_path(), self.network_path_) if path is not None]
        paths = list(dict.fromkeys(map(os.path.abspath, paths)))
        files = [path for path in paths if os.path.isfile(path)]
        for path in files:
            if self._hash(path) == self.network_sha256_:
                return path

        if files:
            raise EncoderMismatchError(
                f"The network {files[0]} has changed since this encoder was fitted: its SHA-256 is "
                f"{self._hash(files[0])}, expected {self.network_sha256_}. Put the old file back, or fit again."
            )

        raise StorageError(
            f"The network that this encoder was fitted with, SHA-256 {self.network_sha256_}, is not at "
            f"{' nor at '.join(paths)}. Put it back, or use encoder.set_params({self.file_parameter}=...)."
        )

    def _file(self) -> str:
        path = self._configured_path()
        if path is None:
            raise self._path_error()
        return path

    def _fingerprint_params(self, params: dict[str, object]) -> dict[str, object]:
        sha256 = getattr(self, "network_sha256_", None)
        path = self._configured_path() if sha256 is None else None
        return {**params, self.file_parameter: sha256 or (None if path is None else self._hash(path))}


def _means(network: OpenNetwork, views_by_photo: list[NDArray[np.uint8]]) -> list[NDArray[np.float32]]:
    ends = np.cumsum([len(views) for views in views_by_photo])
    outputs = np.split(network.rows(np.concatenate(views_by_photo)), ends[:-1])
    return [np.mean(views, axis=0, dtype=np.float32) for views in outputs]
