"""What an ONNX file says, read without the format's package: its graph, the files of its weights, and its hash.

Reading a few fields of a protocol buffer is no reason to depend on a package.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from visterm.core.errors import StorageError, UserError
from visterm.encoders.network_file import network_hash, read_network

AVERAGES = frozenset({"GlobalAveragePool", "AveragePool", "ReduceMean"})
"""Nodes that average, over all places of a map or over some."""
RESHAPES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Cast", "Dropout"})
"""Nodes that leave the numbers as they are."""

# Field numbers of onnx.proto: ModelProto.graph; GraphProto.node, .initializer and .output; NodeProto;
# ValueInfoProto.name; TensorProto.external_data and the two of its entries.
_GRAPH, _NODE, _INITIALIZER, _OUTPUT = 7, 1, 5, 12
_NODE_INPUT, _NODE_OUTPUT, _NODE_OP = 1, 2, 4
_NAME = 1
_EXTERNAL_DATA, _KEY, _VALUE = 13, 1, 2

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # Wire types of protocol buffers


class Node(NamedTuple):
    """One step of a network: what it does, and the names of the tensors that it takes and gives."""

    op: str
    inputs: list[str]
    outputs: list[str]


class Field(NamedTuple):
    """One field of a message."""

    number: int
    value: Any  # A memoryview of bytes, or a whole number; 0 for numbers of fixed length, which nobody here reads
    raw: Any  # The memoryview of all of it, with its key


def nodes(model: bytes) -> Iterator[Node]:
    """Yield the steps of the graph in an ONNX file. Raises StorageError if the file breaks off."""
    with refusing_broken():
        for graph in _parts(memoryview(model), _GRAPH):
            for node in _parts(graph, _NODE):
                ops = _texts(node, _NODE_OP)
                yield Node(ops[-1] if ops else "", _texts(node, _NODE_INPUT), _texts(node, _NODE_OUTPUT))


def averaged_into(model: bytes, output: str) -> list[str]:
    """Return the names of the tensors that are averaged into an output, from the output backwards.

    They end where anything else is done on the way. `model` is the ONNX file; raises StorageError if it breaks off.
    """
    makers = {name: node for node in nodes(model) for name in node.outputs}
    found = []
    while (node := makers.pop(output, None)) and node.inputs and node.op in AVERAGES | RESHAPES:
        output = node.inputs[0]
        if node.op in AVERAGES:
            found.append(output)
    return found


def before_classes(model: bytes, output: str) -> str:
    """Return the name of the tensor that goes into the last layer of weights before an output: the features of classes.

    `model` is the ONNX file; raises StorageError if it breaks off, UserError if the output is not made by such a layer.
    """
    makers = {name: node for node in nodes(model) for name in node.outputs}
    tensor = output
    while (node := makers.get(tensor)) is not None:
        if node.op in ("Gemm", "MatMul"):
            return node.inputs[0]
        if node.op not in RESHAPES | {"Add", "Softmax", "Sigmoid"}:
            break
        tensor = next((name for name in node.inputs if name in makers), "")
    raise UserError(f"pooling is 'before_classes', but no layer of weights makes the output '{output}'. Leave it out.")


def giving_out(model: bytes, names: Sequence[str]) -> bytes:
    """Return a model that has more tensors among its outputs.

    Protocol buffers merge the parts of a message that stand in several places, so that what is put behind the file
    adds to its graph.
    """
    outputs = b"".join(bytes_field(_OUTPUT, bytes_field(_NAME, name.encode())) for name in names)
    return model + bytes_field(_GRAPH, outputs) if names else model


def onnx_hash(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of an ONNX network: of its file, or of that and of the files that hold its weights.

    Exporters put weights into a file of their own beside the graph, so that the graph's file stays the same when the
    network is trained on. Raises StorageError if one of the files is missing, or the network's is not ONNX.
    """
    own = network_hash(path)
    beside = weight_files(path)
    if not beside:
        return own
    digest = hashlib.sha256(own.encode())
    for name in beside:
        file = Path(path).parent / name
        if not file.is_file():
            raise StorageError(f"{path} keeps weights in {name}, which is not at {file}. Put both side by side.")
        digest.update(f"\n{name} {network_hash(file)}".encode())
    return digest.hexdigest()


def weight_files(path: str | os.PathLike[str]) -> list[str]:
    """Return the names, relative to a network, of the files that hold weights of it, sorted.

    Raises StorageError if the file is missing, or is not ONNX.
    """
    return _weight_files(os.path.abspath(path), network_hash(path))


@lru_cache(maxsize=64)
def _weight_files(path: str, sha256: str) -> list[str]:
    """Return the names, relative to a network of this content, of the files that hold weights of it, sorted."""
    try:
        with refusing_broken():
            return sorted(
                {
                    value
                    for graph in _parts(memoryview(read_network(path)), _GRAPH)
                    for tensor in _parts(graph, _INITIALIZER)
                    for entry in _parts(tensor, _EXTERNAL_DATA)
                    if _texts(entry, _KEY) == ["location"]
                    for value in _texts(entry, _VALUE)
                }
            )
    except StorageError as error:
        raise StorageError(f"{path} cannot be opened as an ONNX network: {error}") from error


@contextmanager
def refusing_broken() -> Iterator[None]:
    """Turn what goes wrong in a message that breaks off into an error."""
    try:
        yield
    except (IndexError, UnicodeDecodeError) as error:
        raise StorageError("This is no ONNX network, or it breaks off: its graph cannot be read.") from error


def _texts(message: memoryview, number: int) -> list[str]:
    return [bytes(part).decode() for part in _parts(message, number)]


def _parts(message: memoryview, requested: int) -> Iterator[memoryview]:
    """Yield the contents of all fields of one number that hold bytes; IndexError where the message breaks off."""
    for field in fields(message):
        if field.number == requested and isinstance(field.value, memoryview):
            yield field.value


def fields(message: memoryview) -> Iterator[Field]:
    """Yield the fields of a message in their order; IndexError where it breaks off."""
    at = 0
    while at < len(message):
        start = at
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        value: Any = 0
        if kind == _VARINT:
            value, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        elif kind == _BYTES:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise IndexError
            value = message[at : at + length]
            at += length
        else:
            raise IndexError
        yield Field(number, value, message[start:at])


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Read a number of seven bits a byte, and return it with the place after it."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def bytes_field(number: int, content: bytes) -> bytes:
    """Write one field of bytes."""
    return written_number(number << 3 | _BYTES) + written_number(len(content)) + content


def written_number(value: int) -> bytes:
    """Write a number, 0 or more, of seven bits a byte."""
    coded = bytearray()
    while value >= 0x80:
        coded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*coded, value])
