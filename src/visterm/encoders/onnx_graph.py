"""Hashes of network files; and reading and extending the graphs of ONNX files.

The package onnx takes 0.4 s to import, so it is imported only if a graph is read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from visterm.core.errors import MissingExtraError, StorageError, UserError
from visterm.core.files import GB, read_regular

MAX_GRAPH_BYTES = 2 * GB  # Maximum size of an ONNX file, a limit of protocol buffers; other files have larger weights
AVERAGES = frozenset({"GlobalAveragePool", "AveragePool", "ReduceMean"})  # Operators that average over places
RESHAPES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Cast", "Dropout"})
"""Operators that do not change the numbers."""
LOCATION = "location"  # The key of a weight with the name of its file

MIN_OPSET = 9
"""The first version of ONNX's operators in which those that are written here, except `NEWER_OPSETS`, have their
current meaning."""
NEWER_OPSETS = {"TopK": 10}
MIN_IR_VERSION = 4  # The first version of the format in which weights need not be inputs

Operand: TypeAlias = "str | NDArray[Any] | float"


def network_hash(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a network file, read again only when its size or time has changed.

    Raises StorageError if the file is missing or cannot be read.
    """
    from visterm.core.persist import current_hash  # loads SciPy, which lists of networks do not need

    try:
        return current_hash(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise missing(path) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def read_network(path: str | os.PathLike[str]) -> bytes:
    """Read the file of a network's graph.

    Raises StorageError if it cannot be read, or is larger than the format allows.
    """
    try:
        return read_regular(path, MAX_GRAPH_BYTES)
    except OSError as error:
        raise _unreadable(path, error) from error


def missing(path: str | os.PathLike[str]) -> StorageError:
    """Return the error for a missing network file."""
    return StorageError(f"There is no file {path}. Check the path of the network, as in onnx:PATH.")


def _unreadable(path: str | os.PathLike[str], error: OSError) -> StorageError:
    return StorageError(f"The network {path} cannot be read: {error.strerror or error}. Pass the path of its file.")


def makers(model: bytes) -> dict[str, tuple[str, list[str]]]:
    """Map each tensor of an ONNX file's graph to the node that makes it: the operator and the input tensors.

    Raises StorageError if the file is truncated.
    """
    with parse_errors_as_storage_errors():
        steps = onnx_package().ModelProto.FromString(model).graph.node
        return {_text(name): (step.op_type, [*map(_text, step.input)]) for step in steps for name in step.output}


def averaged_into(model: bytes, output: str) -> list[str]:
    """Return the names of the tensors that are averaged into an output, from the output backwards.

    The list ends at the first other operator. `model` is the ONNX file; raises StorageError if it is truncated.
    """
    steps, averaged = makers(model), []
    op, inputs = steps.pop(output, ("", []))
    while inputs and op in AVERAGES | RESHAPES:
        if op in AVERAGES:
            averaged.append(inputs[0])
        op, inputs = steps.pop(inputs[0], ("", []))
    return averaged


def before_classes(model: bytes, output: str) -> str:
    """Return the name of the input of the last layer of weights before an output: the features of classes.

    `model` is the ONNX file; raises StorageError if it is truncated, UserError if there is no such layer.
    """
    steps, tensor = makers(model), output
    while tensor in steps:
        op, inputs = steps[tensor]
        if op in ("Gemm", "MatMul"):
            return inputs[0]
        if op not in RESHAPES | {"Add", "Softmax", "Sigmoid"}:
            break
        tensor = next((name for name in inputs if name in steps), "")
    problem = f"pooling is 'before_classes', but no layer of weights makes the output '{output}'."
    raise UserError(problem, setting="pooling", value="before_classes", advice="Leave it out.")


def with_outputs(model: bytes, names: Sequence[str]) -> bytes:
    """Return a model with the tensors `names` as further outputs.

    Protocol buffers merge parts of a message that occur several times, so bytes appended to the file extend its graph.
    """
    addition = onnx_package().ModelProto()
    for name in names:
        addition.graph.output.add(name=name)
    return model + bytes(addition.SerializeToString()) if names else model


def onnx_hash(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of an ONNX network: of its file and, if there are any, of its files of weights.

    Exporters may put weights into a separate file, so that the graph's file does not change with further training.
    Raises StorageError if one of the files is missing, or the network's file is not ONNX.
    """
    graph_hash = network_hash(path)
    weight_paths = weight_files(path)
    if not weight_paths:
        return graph_hash
    digest = hashlib.sha256(graph_hash.encode())

    for name in weight_paths:
        file = Path(path).parent / name
        if not file.is_file():
            raise StorageError(f"{path} keeps weights in {name}, which is not at {file}. Put it there.")
        digest.update(f"\n{name} {network_hash(file)}".encode())
    return digest.hexdigest()


def weight_files(path: str | os.PathLike[str]) -> list[str]:
    """Return the sorted names of a network's files of weights, relative to its folder.

    Raises StorageError if the file is missing, or is not ONNX.
    """
    return _weight_files(os.path.abspath(path), network_hash(path))


@lru_cache(maxsize=64)
def _weight_files(path: str, sha256: str) -> list[str]:
    content = read_network(path)
    if LOCATION.encode() not in content:  # no weights in other files: avoids parsing most networks
        return []
    try:
        with parse_errors_as_storage_errors():
            weights = onnx_package().ModelProto.FromString(content).graph.initializer
            entries = [entry for tensor in weights for entry in tensor.external_data]
            return sorted({_text(entry.value) for entry in entries if entry.key == LOCATION})
    except StorageError as error:
        raise StorageError(f"{path} cannot be opened as an ONNX network: {error}") from error


def _text(value: str | bytes) -> str:
    """Return a text of a graph; raise UnicodeDecodeError if it is bytes, because it is not valid UTF-8."""
    return value if isinstance(value, str) else value.decode()


def onnx_package() -> Any:
    """Return the package onnx, imported only now. Raises MissingExtraError if it is not installed."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError(
            "Graphs of ONNX networks are read and written by the package 'onnx'. Install it with: pip install "
            "'visterm[onnx]'"
        ) from error
    return onnx


@contextmanager
def parse_errors_as_storage_errors() -> Iterator[None]:
    """Turn parsing errors of a graph into StorageError."""
    onnx_package()
    from google.protobuf.message import DecodeError

    try:
        yield
    except (DecodeError, UnicodeDecodeError) as error:
        raise StorageError("This is not an ONNX network, or it is truncated: its graph cannot be read.") from error


class GraphSteps:
    """A sequence of graph steps. Methods take tensor names or arrays, add steps, and return the result's name.

    `nodes` are the steps, `weights` the arrays, and `opset` the version of ONNX's operators that they need. Tensor
    names contain `part`.
    """

    def __init__(self, part: str) -> None:
        self._onnx, self._part, self.opset = onnx_package(), part, MIN_OPSET
        self.nodes: list[object] = []
        self.weights: list[Any] = []
        self._made = 0

    def add(
        self,
        op: str,
        *operands: Operand,
        to: str | None = None,
        to_type: DTypeLike | None = None,
        **attributes: int | Sequence[int],
    ) -> str:
        """Add a step of ONNX's operator `op`; its result is named `to`, or gets a new name.

        `to_type` is the NumPy type for the operator Cast.
        """
        if to_type is not None:
            attributes["to"] = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(to_type))
        name = to or self._name()
        self._write(op, operands, [name], attributes)
        return name

    def top(self, x: str, k: int) -> tuple[str, str]:
        """Return the k largest values of each row, ties by column, and their columns: both (n, k)."""
        values, columns = self._name(), self._name()
        self._write("TopK", [x, np.array([k])], [values, columns], {})
        return values, columns

    def affine(self, x: str, W: NDArray[np.floating], b: NDArray[np.floating] | None = None) -> str:
        """Return ``x · W + b``; `W` is (n_in, n_out), and `b` (n_out,)."""
        product = self.add("MatMul", x, W)
        return product if b is None else self.add("Add", product, b)

    def squares(self, x: str, width: int) -> str:
        """Return the squared lengths, (n, 1), of rows, (n, width)."""
        return self.add("MatMul", self.add("Mul", x, x), np.ones((width, 1), np.float32))

    def unit(self, x: str, width: int) -> str:
        """Divide rows, (n, width), by their length; rows of zeros stay zero."""
        tiny = float(np.finfo(np.float32).tiny)
        return self.add("Div", x, self.add("Sqrt", self.add("Max", self.squares(x, width), tiny)))

    def columns(self, x: str, columns: NDArray[np.int64], axis: int = 1) -> str:
        """Select columns, in the given order."""
        return self.add("Gather", x, columns, axis=axis)

    def _write(
        self, op: str, operands: Sequence[Operand], outputs: Sequence[str], attributes: Mapping[str, object]
    ) -> None:
        self.opset = max(self.opset, NEWER_OPSETS.get(op, MIN_OPSET))
        names = []
        for operand in operands:
            name = operand if isinstance(operand, str) else self._name()
            if not isinstance(operand, str):  # floats become float32, truth values uint8, and other numbers int64
                dtype = {"f": np.float32, "b": np.uint8}.get(np.asarray(operand).dtype.kind, np.int64)
                self.weights.append(self._onnx.numpy_helper.from_array(np.asarray(operand, dtype, order="C"), name))
            names.append(name)
        self.nodes.append(self._onnx.helper.make_node(op, names, outputs, **attributes))

    def _name(self) -> str:
        self._made += 1
        return f"visterm/{self._part}/{self._made}"


def around_network(
    model: bytes,
    before: GraphSteps,
    after: GraphSteps,
    network_input: tuple[str, str, Sequence[int | str]],
    outputs: Iterable[tuple[str, int]],
    metadata: dict[str, str],
) -> bytes:
    """Return an ONNX file with steps added before and after a network, and with new inputs and outputs.

    `network_input` is the only input: its name, NumPy type and shape, with names for sizes that may vary; `outputs` are
    names of float32 tensors and their widths, all of shape (photos, width). `metadata` replaces the network's. Raises
    StorageError if the network's file is truncated, or the result is too large for ONNX; UserError if the network's
    operators are older than the version that the steps need.
    """
    (name, dtype, shape), onnx = network_input, onnx_package()
    with parse_errors_as_storage_errors():
        joined = onnx.ModelProto.FromString(model)
    opset = max(before.opset, after.opset)

    for entry in joined.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version < opset:
            raise UserError(
                f"The network is written in version {entry.version} of ONNX's operators, and the graph needs {opset} "
                "or newer. Convert it with onnx.version_converter, fit the run with the new file, and export that."
            )

    n_bytes = len(model) + sum(weight.ByteSize() for weight in (*before.weights, *after.weights))
    if n_bytes >= 2**31:
        raise StorageError(
            f"The graph takes {n_bytes / 2**30:.1f} GiB, and ONNX files cannot exceed 2 GiB.",
            advice="Fit the run with a smaller network, or with fewer tags: `min_count`.",
        )

    graph, nodes = joined.graph, [*before.nodes, *joined.graph.node, *after.nodes]
    for part in ("node", "input", "output"):
        graph.ClearField(part)
    graph.node.extend(nodes)
    graph.initializer.extend([*before.weights, *after.weights])
    graph.input.append(
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
    )
    graph.output.extend(
        onnx.helper.make_tensor_value_info(out, onnx.TensorProto.FLOAT, ["photos", width]) for out, width in outputs
    )
    joined.ir_version = max(MIN_IR_VERSION, joined.ir_version)
    onnx.helper.set_model_props(joined, metadata)
    return bytes(joined.SerializeToString())
