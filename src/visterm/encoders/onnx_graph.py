"""What an ONNX file says: its graph, the files of its weights, and its hash.

The package onnx takes 0.4 s to import, so it is imported only where a graph is really looked at.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from visterm.core.errors import MissingExtraError, StorageError, UserError
from visterm.encoders.network_file import network_hash, read_network

AVERAGES = frozenset({"GlobalAveragePool", "AveragePool", "ReduceMean"})
"""Nodes that average, over all places of a map or over some."""
RESHAPES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Cast", "Dropout"})
"""Nodes that leave the numbers as they are."""
LOCATION = "location"  # The key under which a weight names the file that it lies in


class Node(NamedTuple):
    """One step of a network: what it does, and the names of the tensors that it takes and makes."""

    op: str
    inputs: list[str]
    outputs: list[str]


def nodes(model: bytes) -> list[Node]:
    """Return the steps of the graph in an ONNX file. Raises StorageError if the file breaks off."""
    with refusing_broken():
        steps = onnx_package().ModelProto.FromString(model).graph.node
        return [Node(step.op_type, [*map(_text, step.input)], [*map(_text, step.output)]) for step in steps]


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
    more = onnx_package().ModelProto()
    for name in names:
        more.graph.output.add(name=name)
    return model + bytes(more.SerializeToString()) if names else model


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
    content = read_network(path)
    if LOCATION.encode() not in content:  # then no weight lies elsewhere, and most networks need no parsing
        return []
    try:
        with refusing_broken():
            weights = onnx_package().ModelProto.FromString(content).graph.initializer
            entries = [entry for tensor in weights for entry in tensor.external_data]
            return sorted({_text(entry.value) for entry in entries if entry.key == LOCATION})
    except StorageError as error:
        raise StorageError(f"{path} cannot be opened as an ONNX network: {error}") from error


def _text(value: str | bytes) -> str:
    """Return a text of a graph; raise UnicodeDecodeError if it is no UTF-8, which protocol buffers leave as bytes."""
    return value if isinstance(value, str) else value.decode()


def onnx_package() -> Any:
    """Return the package onnx, imported only now. Raises MissingExtraError if it is not installed."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError(
            "Looking into an ONNX network needs the package 'onnx'. Install it with: pip install 'visterm[onnx]'"
        ) from error
    return onnx


@contextmanager
def refusing_broken() -> Iterator[None]:
    """Turn what goes wrong in a graph that cannot be parsed into an error."""
    onnx_package()
    from google.protobuf.message import DecodeError

    try:
        yield
    except (DecodeError, UnicodeDecodeError) as error:
        raise StorageError("This is no ONNX network, or it breaks off: its graph cannot be read.") from error
