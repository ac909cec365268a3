"""What an ONNX file says of its graph: which tensors are averaged into an output; and that file giving them out, too.

Also which files beside it hold its weights. Reading these few fields is no reason to depend on the format's package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from visterm.core.errors import StorageError
from visterm.encoders.protobuf import field, parts, texts

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
_BROKEN = "This is no ONNX network, or it breaks off: its graph cannot be read."


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
    """Return a model that has more tensors among its outputs.

    Protocol buffers merge the parts of a message that stand in several places, so that what is put behind the file
    adds to its graph.
    """
    outputs = b"".join(field(_OUTPUT, field(_NAME, name.encode())) for name in names)
    return model + field(_GRAPH, outputs) if names else model


def nodes(model: bytes) -> Iterator[Node]:
    """Yield the steps of the graph in an ONNX file.

    Raises
    ------
    StorageError
        If the file breaks off.
    """
    try:
        for graph in parts(memoryview(model), _GRAPH):
            for node in parts(graph, _NODE):
                ops = texts(node, _NODE_OP)
                yield Node(ops[-1] if ops else "", texts(node, _NODE_INPUT), texts(node, _NODE_OUTPUT))
    except (IndexError, UnicodeDecodeError) as error:
        raise StorageError(_BROKEN) from error


def weight_files(model: bytes | memoryview) -> list[str]:
    """Name the files, relative to the model's own, that hold weights which are not in it: sorted, each once.

    Raises
    ------
    StorageError
        If the file breaks off.
    """
    try:
        return sorted(
            {
                value
                for graph in parts(memoryview(model), _GRAPH)
                for tensor in parts(graph, _INITIALIZER)
                for entry in parts(tensor, _EXTERNAL_DATA)
                if texts(entry, _KEY) == ["location"]
                for value in texts(entry, _VALUE)
            }
        )
    except (IndexError, UnicodeDecodeError) as error:
        raise StorageError(_BROKEN) from error
