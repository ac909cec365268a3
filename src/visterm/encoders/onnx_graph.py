"""What an ONNX file says of its graph: which tensors are averaged into an output; and that file giving them out, too.

An ONNX file is one protocol buffer. Reading a few of its fields takes a few lines, and so is no reason to depend on the
package of the format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from visterm.core.errors import StorageError

AVERAGES = frozenset({"GlobalAveragePool", "AveragePool", "ReduceMean"})
"""Nodes that average, over all places of a map or over some."""
RESHAPES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Cast", "Dropout"})
"""Nodes that leave the numbers as they are."""

# Field numbers of onnx.proto: ModelProto.graph, GraphProto.node and .output, NodeProto, ValueInfoProto.name.
_GRAPH, _NODE, _OUTPUT = 7, 1, 12
_NODE_INPUT, _NODE_OUTPUT, _NODE_OP = 1, 2, 4
_NAME = 1
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Node(NamedTuple):
    """One step of a network: what it does, and the names of the tensors that it takes and gives."""

    op: str
    inputs: list[str]
    outputs: list[str]


def averaged_into(model: bytes, output: str) -> list[str]:
    """Name the tensors that are averaged into an output, as far as nothing else is done on the way.

    Parameters
    ----------
    model : bytes
        The ONNX file.
    output : str

    Returns
    -------
    list of str
        From the output backwards; none where its last step is something else.

    Raises
    ------
    StorageError
        If the file breaks off.
    """
    makers = {name: node for node in nodes(model) for name in node.outputs}
    found = []
    while (node := makers.pop(output, None)) and node.inputs and node.op in AVERAGES | RESHAPES:
        output = node.inputs[0]
        if node.op in AVERAGES:
            found.append(output)
    return found


def giving_out(model: bytes, names: Sequence[str]) -> bytes:
    """Give a model that has more tensors among its outputs.

    Protocol buffers merge the parts of a message that stand in several places, so that what is put behind the file
    adds to its graph.
    """
    outputs = b"".join(_field(_OUTPUT, _field(_NAME, name.encode())) for name in names)
    return model + _field(_GRAPH, outputs) if names else model


def nodes(model: bytes) -> Iterator[Node]:
    """Yield the steps of the graph in an ONNX file.

    Raises
    ------
    StorageError
        If the file breaks off.
    """
    try:
        for graph in _parts(memoryview(model), _GRAPH):
            for node in _parts(graph, _NODE):
                ops = _texts(node, _NODE_OP)
                yield Node(ops[-1] if ops else "", _texts(node, _NODE_INPUT), _texts(node, _NODE_OUTPUT))
    except (IndexError, UnicodeDecodeError) as error:
        raise StorageError("This is no ONNX network, or it breaks off: its graph cannot be read.") from error


def _texts(message: memoryview, number: int) -> list[str]:
    return [bytes(part).decode() for part in _parts(message, number)]


def _parts(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """Yield the contents of all fields of one number that hold bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            _, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        elif kind == _BYTES:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise IndexError
            if number == wanted:
                yield message[at : at + length]
            at += length
        else:
            raise IndexError


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Read a number of seven bits a byte, and say where the next begins."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + _as_varint(len(content)) + content


def _as_varint(value: int) -> bytes:
    coded = bytearray()
    while value >= 0x80:
        coded.append(value & 0x7F | 0x80)
        value >>= 7
    coded.append(value)
    return bytes(coded)
