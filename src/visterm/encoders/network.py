"""One ONNX network, opened: what goes in, which output is read, and how an output becomes a row."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from visterm.core.errors import DataError, StorageError, UnknownNameError, UserError
from visterm.core.persist import file_hash
from visterm.core.registry import unknown

DEFAULT_SIZE = 224
FEATURE_NAMES = ("features", "embeddings", "embedding", "image_embeds", "pooled", "pooler_output")
"""Outputs taken unasked, in this order, where a network has several."""

_DTYPES: Final = {"tensor(uint8)": np.uint8, "tensor(float)": np.float32, "tensor(float16)": np.float16}
_OPEN_ERRORS = (
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NoSuchFile,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
)


class Network:
    """An image network ready to run, one square image at a time.

    A session runs on the caller's thread alone, and any number of threads may call: the same bytes for any number of
    them, and faster than the runtime's own threads (measured with MobileNetV2 on 2 cores, 512 images a second; 390 in
    batches of 32).

    Parameters
    ----------
    path : str
        The ONNX file.
    output : str or None
        Name of the output to read; None: the only one, or one that is named as features are.
    size : int or None
        Side of the square image; None: as the network says, or 224 where it takes any.

    Attributes
    ----------
    output : str
        The output that is read.
    size : int
        Side of the square image.
    dtype : type
        Of the pixels that go in: uint8, float32 or float16.
    channels_last : bool
        True for (height, width, 3), False for (3, height, width).

    Raises
    ------
    StorageError
        If there is no such file, or it is not an ONNX network.
    UserError
        If the network does not take one image, or `size` is not its own.
    UnknownNameError
        If it has no such output.
    """

    def __init__(self, path: str, *, output: str | None = None, size: int | None = None) -> None:
        self.path = path
        self._session = _session(path)
        self._input, self.dtype, self.channels_last, self._batch, fixed = _image_input(path, self._session)
        self.output = _chosen_output(path, [each.name for each in self._session.get_outputs()], output)
        self.size = _side(path, size, fixed)

    def run(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        """Give the row of one image.

        Parameters
        ----------
        pixels : ndarray, shape (size, size, 3)
            Of any number type; converted to the network's.

        Returns
        -------
        ndarray of float32, shape (n_features,)
            Maps are averaged over their places, token outputs over their tokens.

        Raises
        ------
        DataError
            If the output is not finite, or is not a row, tokens or maps.
        """
        image = pixels if self.channels_last else pixels.transpose(2, 0, 1)
        batch = np.ascontiguousarray(np.broadcast_to(image, (self._batch, *image.shape)), dtype=self.dtype)
        out = np.asarray(self._session.run([self.output], {self._input: batch})[0])
        if out.ndim not in (2, 3, 4) or out.shape[0] != self._batch:
            raise DataError(
                f"The output '{self.output}' of {self.path} has the shape {out.shape} for {self._batch} images; "
                "expected (images, features), (images, tokens, features), or maps. Choose another with output=NAME."
            )
        row: NDArray[np.float32] = out[0].astype(np.float32)
        if row.ndim == 3:
            row = row.mean(axis=(0, 1) if self.channels_last else (1, 2))
        elif row.ndim == 2:
            row = row.mean(axis=0)
        if not np.isfinite(row).all():
            raise DataError(
                f"The output '{self.output}' of {self.path} holds NaN or infinity. Check that mean, std and scale are "
                "those that the network was trained with, or choose another output."
            )
        return row


def network_hash(path: str | os.PathLike[str]) -> str:
    """Give the SHA-256 of a network file, read again only when its size or time has changed.

    Raises
    ------
    StorageError
        If there is no such file.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise _missing(path) from error
    return _hash_at(os.path.abspath(path), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _hash_at(path: str, mtime_ns: int, size: int) -> str:
    return file_hash(path)


def _missing(path: str | os.PathLike[str]) -> StorageError:
    return StorageError(f"There is no network at {path}. Give the path of an ONNX file: --encoder onnx:PATH.")


def _session(path: str) -> ort.InferenceSession:
    if not Path(path).is_file():
        raise _missing(path)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except _OPEN_ERRORS as error:
        reason = " ".join(str(error).split())
        raise StorageError(f"{path} cannot be opened as an ONNX network: {reason}") from error


def _image_input(path: str, session: ort.InferenceSession) -> tuple[str, Any, bool, int, int | None]:
    """Give name, number type, layout, images a call and side (None: any) of the one input."""
    inputs = session.get_inputs()
    listed = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)
    image = inputs[0]
    if len(inputs) != 1 or image.type not in _DTYPES or len(image.shape) != 4:
        raise UserError(
            f"{path} takes {listed}; expected one input of images, uint8 or float, "
            "(images, height, width, 3) or (images, 3, height, width)."
        )
    batch, *dims = [dim if isinstance(dim, int) and dim > 0 else None for dim in image.shape]
    dtype = _DTYPES[image.type]
    channels_last = dims[2] == 3 or (dims[0] is None and dims[2] is None and dtype is np.uint8)
    height, width = dims[:2] if channels_last else dims[1:]
    channels = dims[2] if channels_last else dims[0]
    if channels not in (3, None) or (height and width and height != width):
        raise UserError(f"{path} takes {listed}; expected square images of 3 channels.")
    return image.name, dtype, channels_last, batch or 1, height or width


def _chosen_output(path: str, names: list[str], wanted: str | None) -> str:
    if wanted is not None:
        if wanted not in names:
            raise UnknownNameError(unknown(f"output of {path}", wanted, names))
        return wanted
    if len(names) == 1:
        return names[0]
    for name in FEATURE_NAMES:
        if name in names:
            return name
    raise UserError(
        f"{path} has the outputs {', '.join(names)}: say which one holds the features, "
        f"for example --encoder-set output={names[-1]}"
    )


def _side(path: str, wanted: int | None, fixed: int | None) -> int:
    if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or wanted < 1):
        raise UserError(f"size is {wanted!r}; expected a whole number of pixels, 1 or more, or None.")
    if wanted is not None and fixed is not None and wanted != fixed:
        raise UserError(f"size is {wanted}, but {path} takes images of {fixed} × {fixed}. Leave size out.")
    return int(wanted or fixed or DEFAULT_SIZE)
