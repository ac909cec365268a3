"""Read tensors from files in torch's format of before version 1.6, without torch and without running code from them.

Such a file is five pickles (a magic number, a version, facts about the machine, the tensors, the keys of their
storages), and then the numbers of each storage. Unpickling may call any function that a pickle names. Here only four
names are allowed, and these only store their arguments.
"""

from __future__ import annotations

import pickle
import struct
from collections import OrderedDict
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError

MAGIC: Final = 0x1950A86A20F9469CFC6C
VERSION: Final = 1001

Numbers: TypeAlias = "NDArray[Any]"


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
    storage_of_key = {tensor.storage.key: tensor.storage for tensor in dict.values(tensors)}
    storages = {}

    for key in keys:
        (length,) = struct.unpack("<q", stream.read(8))
        storage = storage_of_key[key]
        if length != storage.length:
            raise ValueError(f"a storage has {length} numbers and should have {storage.length}")
        storages[key] = np.frombuffer(content, storage.dtype, length, stream.tell())
        stream.seek(storages[key].nbytes, 1)
    if stream.tell() != len(content):
        raise ValueError(f"{len(content) - stream.tell()} bytes follow the last storage")
    return {name: _view(tensor, storages) for name, tensor in dict.items(tensors)}


def _view(tensor: _StoredTensor, storages: Mapping[str, Numbers]) -> Numbers:
    """Return a tensor's part of its storage; NumPy refuses a part that is not inside the storage."""
    numbers = storages[tensor.storage.key]
    offset, *strides = (steps * numbers.itemsize for steps in (tensor.offset, *tensor.strides))
    return np.ndarray(tensor.shape, numbers.dtype, numbers, offset, strides)


class _Storage(NamedTuple):
    """Numbers of one type; each tensor is a part of a storage."""

    kind: str
    dtype: str
    key: str
    device: str
    length: int
    view: None


class _StoredTensor(NamedTuple):
    """The description of a tensor in a pickle."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool
    hooks: OrderedDict[object, object]


_ALLOWED: Final[Mapping[tuple[str, str], object]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _StoredTensor,
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

    def persistent_load(self, entry: Any) -> _Storage:
        """Return a storage that a tensor refers to."""
        return _Storage(*entry)
