"""Feature rows from any image network in an ONNX file: its output, rooted, centred and normalised."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from visterm.core.errors import StorageError, UserError
from visterm.core.estimator import check_fitted
from visterm.core.learned import Kind, Record
from visterm.core.types import Floats, RandomState
from visterm.data.images import read_image
from visterm.encoders.base import Pixels
from visterm.encoders.contract import Places, no_text_tower
from visterm.encoders.named import is_here, local_path, network_named, networks, not_here, required, users_table
from visterm.encoders.network import NetworkEncoder
from visterm.encoders.onnx_graph import onnx_hash
from visterm.encoders.onnx_network import OnnxNetwork, device_providers
from visterm.encoders.onnx_settings import check_settings, settings_beside
from visterm.encoders.preparation import Settings, boxes_of, views_of
from visterm.encoders.word_rows import OnnxTextTower

if TYPE_CHECKING:
    from visterm.encoders.onnx_graph import GraphSteps

SETTINGS = ("output", "size", "mean", "std", "scale", "colours", "layout", "interpolation", "crop", "pooling",
           "resize", "fill")  # fmt: skip
"""Parameters that may also be set in the JSON file next to the network."""


@dataclass(kw_only=True, eq=False, repr=False)
class Onnx(NetworkEncoder):
    """Feature rows from the output of an image network in an ONNX file.

    The network gets one or more pictures of a photo (`views`), and its outputs are averaged. The mean output ``f``
    becomes the row ``x = (√f - c) / |√f - c|``: the square root reduces the few large values of non-negative features,
    ``c`` is the mean over training photos, and with rows of length 1 dot products are cosines.

    Photos are processed independently in `n_jobs` threads, so rows do not depend on the number of threads or the other
    photos of a batch.

    The preparation of pictures is read from the parameters. If a parameter is None, it is read from the first of these
    that has it: NETWORK.json next to NETWORK.onnx (its keys are in docs/encoders_networks.md), the preparation files of
    open_clip or transformers there, the table's row of a network by name, the image metadata in the network, the
    network's input, the defaults below.

    Parameters
    ----------
    path : str
        The ONNX file: one input of images, uint8 or float, channels first or last. A float network gets
        ``(scale · pixel - mean) / std``; a uint8 network gets the pixels unchanged.
    output : str, optional
        Name of the output to read: rows, tokens or maps (tokens and maps are averaged). None: the only output, or one
        named features, embeddings or pooled.
    views : {"three", "whole", "centre", "trained"}
        "whole" squeezes the photo into the network's picture; "centre" crops the middle, as in most training; "three"
        averages the whole photo and the crops at both ends of the long side: three times the work for the best rows
        (MobileNetV2 on held-out training photos of Corel5k; "whole" is second best). "trained" is the network's own
        evaluation view: the part `crop` of "centre", or "whole" if `crop` is null in the JSON file.
    root : bool
        Take square roots if no feature of the training photos is negative.
    centre : bool
        Subtract the mean over the training photos.
    normalise : bool
        Divide rows by their length.
    size : int or tuple of int, optional
        Side of the picture in pixels, or height and width, for networks that accept any. Default: 224.
    mean, std : float or sequence of 3 floats, optional
        Mean and deviation of red, green and blue in a float network's training. Default: ImageNet's.
    scale : float, optional
        Factor of the pixels, 0 to 255, before mean and std, for float networks. Default: 1/255.
    colours : {"RGB", "BGR"}, optional
        The network's channel order; `mean` and `std` are always red, green and blue. Default: "RGB".
    layout : {"channels_first", "channels_last"} or a pair of them, optional
        Needed only if the network's input does not show which axis is the channels. In a pair, the second is the layout
        of the output maps, for maps whose axes do not show it (height and width are those of the picture divided by the
        same number).
    interpolation : {"bilinear", "bicubic", "lanczos"}, optional
        The filter that resizes photos. Default: "bilinear".
    crop : float, optional
        The central part that the view "trained" shows. Default: 1.
    pooling : {"mean", "class", "both", "before_classes"}, optional
        How an output of tokens becomes a row: their mean, the first one (the class token), or both joined: the first
        and the mean of the others. "before_classes" reads the input of the final layer of classes. Default: "mean".
    resize : {"shortest", "shortest_floor", "squash", "pad"}, optional
        How the view "trained" resizes photos, to the pixel: by the shortest side and a centre crop, as open_clip does
        ("shortest") or rounded down as transformers does; squeezed; or with margins of the grey `fill` (0 to 255).
    network : str, optional
        Name of a network (``visterm encoders`` lists them), instead of `path`.
    device : str
        "cpu"; "cuda", "openvino", "coreml" or "directml" if onnxruntime supports it; "auto": the first available.
        Rows differ by rounding.
    random_state : int, RandomState, Generator or None
        Draws the photos that the mean is computed from, if there are more than `max_fit_images`.
    batch_size : int
        Photos in memory at a time.
    n_jobs : int, optional
        Threads; None is all cores.

    Attributes
    ----------
    centre_ : ndarray of float32, shape (n_features,)
        The mean row of the training photos, after the root; zeros without `centre`.
    rooted_ : bool
        Whether square roots are taken.
    settings_ : dict
        Settings from the files next to the network and from its table row. They are not read again.
    network_sha256_ : str
        Hash of the network's file and its files of weights. The fitted encoder only accepts this network.
    network_path_ : str
        Its absolute path at `fit`. The file may move: `path` is tried first.
    """

    argument = "path"
    speed_params = ("n_jobs", "batch_size", "device")

    learned: ClassVar[dict[str, Kind]] = {"settings_": Record()}

    path: str | os.PathLike[str] | None = None
    output: str | None = None
    views: str = "three"
    root: bool = True
    centre: bool = True
    normalise: bool = True
    size: int | tuple[int, int] | None = None
    mean: float | Sequence[float] | None = None
    std: float | Sequence[float] | None = None
    scale: float | None = None
    colours: str | None = None
    layout: str | Sequence[str] | None = None
    interpolation: str | None = None
    crop: float | None = None
    pooling: str | None = None
    resize: str | None = None
    fill: float | None = None
    network: str | None = None
    device: str = "cpu"
    random_state: RandomState = 0
    batch_size: int = 32
    n_jobs: int | None = None

    @staticmethod
    def check_device(device: str) -> None:
        """Raise UserError if onnxruntime cannot use the device here."""
        device_providers(device)

    def places(self, image: str | os.PathLike[str] | Pixels) -> Places:
        """Split the row of one image into contributions of the feature map's cells, if the output averages a map.

        Cells are rectangles, although their receptive fields are larger. Without the root the row is ``(Σ m_p / P - c)
        / L`` over the P cells of all views: a cell contributes ``m_p / (P L)``, and ``-c / L`` belongs to no place. The
        length L is a constant of the photo. With the root, each feature ``√f / L`` is divided among the cells in
        proportion to their shares of ``f``.

        Raises ImageError if the image cannot be read; UserError if the output is not an average over places, or the
        root is taken of a map with negative values.
        """
        check_fitted(self)
        network = self._open_file(self._network_file())
        photo = read_image(image, max_side=self._max_side)
        size = photo.shape[1::-1]
        maps = network.maps(views_of(photo, network.preparation, self.views))
        boxes = []

        for box, view in zip(boxes_of(size, network.preparation, self.views), maps, strict=True):
            x0, y0, x1, y1 = box or (0, 0, *size)
            rows = np.linspace(y0, y1, view.shape[0] + 1) / size[1]
            columns = np.linspace(x0, x1, view.shape[1] + 1) / size[0]
            edges = (columns[None, :-1], rows[:-1, None], columns[None, 1:], rows[1:, None])
            boxes.append(np.stack([np.broadcast_to(side, view.shape[:2]).ravel() for side in edges], axis=1))

        cells = np.concatenate([view.reshape(-1, view.shape[2]) / view[..., 0].size for view in maps]) / len(maps)
        mean = cells.sum(axis=0)
        row = mean.copy()
        if self.rooted_:
            if cells.min() < 0:
                raise UserError(
                    f"The network's feature map has values below 0 (down to {cells.min() * len(cells):.3g}): square "
                    "roots of their averages cannot be split.", setting="root", value=self.root,
                    advice="Fit with `encoder.root`=False.",
                )  # fmt: skip
            row = np.sqrt(mean)
            cells *= np.divide(row, mean, out=np.zeros_like(mean), where=mean > 0)

        centre = self.centre_.astype(np.float64)
        length = (float(np.linalg.norm(row - centre)) if self.normalise else 1.0) or 1.0
        source = "the mean of the training photos, subtracted" if self.centre else ""
        return Places(np.concatenate(boxes), cells / length, -centre / length, "cell", "feature", source)

    def write_steps(
        self, before: GraphSteps, after: GraphSteps, pictures: str, *, n_views: int, floats: bool = False
    ) -> tuple[OnnxNetwork, str]:
        """Add the steps from pictures to feature rows around the network; return the network and the rows' tensor.

        `pictures` names a tensor (n_views · n_photos, height, width, 3), with the pictures of a photo in sequence, of
        uint8 or, with `floats`, float32 from 0 to 255.
        """
        check_fitted(self)
        network, width = self._open_file(self._network_file()), len(self.centre_)
        rows = network.write_steps(before, after, pictures, floats=floats)
        if n_views > 1:
            views = after.add("Reshape", rows, np.array([-1, n_views, width]))
            mean = after.add("MatMul", np.full((1, n_views), 1 / n_views), views)
            rows = after.add("Reshape", mean, np.array([-1, width]))

        if self.rooted_:
            rows = after.add("Mul", after.add("Sign", rows), after.add("Sqrt", after.add("Abs", rows)))
        rows = after.add("Sub", rows, self.centre_)
        return network, after.unit(rows, width) if self.normalise else rows

    @property
    def reads_texts(self) -> bool:
        """Whether this is a network by name whose text tower is on this machine."""
        row = None if self.network is None else networks().get(self.network)
        return row is not None and row.text is not None and is_here(row, text=True)

    def text_rows(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts, of length 1, shape (n_texts, width); see `AnyEncoder.text_rows`."""
        return self._text_tower().text_rows(texts, self.n_jobs)

    @property
    def text_fingerprint(self) -> str:
        """Return the hash of the text tower's files and settings."""
        return self._text_tower().fingerprint

    def check_stored_settings(self) -> None:
        """Refuse settings of the wrong type; the network is opened at first use."""
        super().check_stored_settings()
        check_settings(self._explicit_settings())

    def _check_learned(self) -> None:
        check_settings(self.settings_)

    def _configured_path(self) -> str | None:
        if self.path is not None and self.network is not None:
            problem = f"Both path ({self.path}) and network ('{self.network}') are given."
            raise UserError(problem, setting="network", value=self.network, advice="Leave one out.")
        if self.path is not None or self.network is None:
            return None if self.path is None else os.fspath(self.path)
        row = networks().get(self.network)
        if row is None and hasattr(self, "network_path_"):
            return None  # the user's row is gone, but the file may still exist
        row = network_named(self.network)
        return local_path(row, row.image)

    def _path_error(self) -> UserError | StorageError:
        if self.network is not None and self.network not in networks() and hasattr(self, "network_path_"):
            return StorageError(
                f"This encoder was fitted with the network '{self.network}', which has no row in {users_table()}. Its "
                f"file, whose SHA-256 is {self.network_sha256_}, is not at {self.network_path_}. Add one of them."
            )
        if self.network is not None:
            row = network_named(self.network)
            return not_here(row, row.image)
        advice = "Name it: `encoder` onnx:PATH, or `encoder.path`=PATH."
        return UserError("The onnx encoder needs a network, an ONNX file.", setting="path", advice=advice)

    def _file(self) -> str:
        if self.network is not None:  # its hash is in the table, or was recorded at the first download
            row = network_named(self.network)
            for file in (row.image, row.prepared_by):
                if file is not None and (file is row.image or row.repository is None or local_path(row, file)):
                    required(row, file)
        return super()._file()

    def _network_file(self) -> str:
        if self.network is not None and hasattr(self, "network_sha256_"):
            paths = [path for path in (self._configured_path(), self.network_path_) if path is not None]
            if not any(map(os.path.isfile, paths)):
                raise self._path_error()
        return super()._network_file()

    def _open_file(self, path: str) -> OnnxNetwork:
        return OnnxNetwork(path, {**self._file_settings(path), **self._explicit_settings()}, self.device)

    def _text_tower(self) -> OnnxTextTower:
        """Open the text tower at first use. Raises the same errors as `OnnxTextTower`."""
        if self.network is None:
            raise no_text_tower(str(self.path))
        return self._cached(OnnxTextTower, network_named(self.network))

    def _explicit_settings(self) -> Settings:
        return {name: getattr(self, name) for name in SETTINGS if getattr(self, name) is not None}

    def _hash(self, path: str) -> str:
        return onnx_hash(path)

    def _store_settings(self, path: str) -> None:
        self.settings_ = self._file_settings(path)

    def _file_settings(self, path: str | None) -> Settings:
        """Return the settings from the files next to the network and its table row; if fitted, those of `fit`."""
        if hasattr(self, "settings_"):
            return self.settings_
        row = {} if self.network is None else network_named(self.network).settings
        return dict(sorted({**row, **({} if path is None else settings_beside(path))}.items()))  # as in a stored run

    def _fingerprint_params(self, params: dict[str, object]) -> dict[str, object]:
        """Identify the network by its content instead of its name."""
        params = {k: v for k, v in params.items() if k != "network"}
        settings = self._file_settings(None if hasattr(self, "settings_") else self._configured_path())
        return {**super()._fingerprint_params(params), "settings": settings}
