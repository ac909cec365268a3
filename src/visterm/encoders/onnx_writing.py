"""ONNX graphs: steps put around a network's own, in one file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from visterm.core.errors import StorageError, UserError
from visterm.encoders.onnx_graph import refusing_broken

LEAST_OPSET = 9
"""The first version of ONNX's operators in which all steps that are written here mean the same as in the newest, but
for those of `SINCE`."""
SINCE = {"TopK": 10}
LEAST_IR = 4  # The first version of the format in which weights are no inputs

Operand: TypeAlias = "str | NDArray[Any] | float"


class Steps:
    """Steps of a graph, one after the other: each takes tensors by name or arrays, and returns the name of its result.

    `nodes` and `weights` are the steps and the arrays, and `opset` the version of ONNX's operators that they need.
    Names of tensors begin with `part`.
    """

    def __init__(self, part: str) -> None:
        self._part, self.opset = part, LEAST_OPSET
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self._made = 0

    def add(
        self, op: str, *operands: Operand, to: str | None = None, to_type: Any = None, **attributes: int | Sequence[int]
    ) -> str:
        """Add a step of ONNX's operator `op`; its result is called `to`, or by a name of its own.

        `to_type` is the NumPy type that the operator Cast makes.
        """
        if to_type is not None:
            attributes["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(to_type))
        name = to or self._name()
        self._write(op, operands, [name], attributes)
        return name

    def top(self, x: str, k: int) -> tuple[str, str]:
        """Return the k largest of each row, largest first and ties by column, and their columns: both (n, k)."""
        values, columns = self._name(), self._name()
        self._write("TopK", [x, np.array([k])], [values, columns], {})
        return values, columns

    def affine(self, x: str, W: NDArray[Any], b: NDArray[Any] | None = None) -> str:
        """Return ``x · W + b``; `W` is (n_in, n_out), and `b` (n_out,)."""
        product = self.add("MatMul", x, W)
        return product if b is None else self.add("Add", product, b)

    def squares(self, x: str, width: int) -> str:
        """Return the squared lengths of rows, (n, width): (n, 1)."""
        return self.add("MatMul", self.add("Mul", x, x), np.ones((width, 1), np.float32))

    def unit(self, x: str, width: int) -> str:
        """Bring rows, (n, width), to length 1; rows of zeros stay."""
        tiny = float(np.finfo(np.float32).tiny)
        return self.add("Div", x, self.add("Sqrt", self.add("Max", self.squares(x, width), tiny)))

    def columns(self, x: str, columns: NDArray[np.int64], axis: int = 1) -> str:
        """Take some columns, in this order."""
        return self.add("Gather", x, columns, axis=axis)

    def _write(self, op: str, operands: Sequence[Operand], outputs: Sequence[str], attributes: dict[str, Any]) -> None:
        self.opset = max(self.opset, SINCE.get(op, LEAST_OPSET))
        names = [each if isinstance(each, str) else self._weight(np.asarray(each)) for each in operands]
        self.nodes.append(helper.make_node(op, names, outputs, **attributes))

    def _name(self) -> str:
        self._made += 1
        return f"visterm/{self._part}/{self._made}"

    def _weight(self, array: NDArray[Any]) -> str:
        """Keep an array; floats become float32, truth values uint8, and other numbers int64."""
        kind = {"f": np.float32, "b": np.uint8}.get(array.dtype.kind, np.int64)
        kept = np.asarray(array, kind, order="C")
        name = self._name()
        self.weights.append(numpy_helper.from_array(kept, name))
        return name


def around_network(
    model: bytes,
    before: Steps,
    after: Steps,
    given: tuple[str, str, Sequence[int | str]],
    outputs: Iterable[tuple[str, int]],
    metadata: dict[str, str],
) -> bytes:
    """Return an ONNX file in which steps stand before and after those of a network, whose inputs and outputs go.

    `given` is the one input: its name, its NumPy type and its shape, with names for sizes that may be any; `outputs`
    are names of tensors of float32 and their widths, all of shape (photos, width). `metadata` takes the place of the
    network's. Raises StorageError if the network's file breaks off, or no ONNX file can hold the result; UserError if
    its operators are of a version before the one that the steps need.
    """
    name, kind, shape = given
    with refusing_broken():
        whole = ModelProto.FromString(model)
    _check_opset(whole, max(before.opset, after.opset))
    _check_size(len(model) + sum(weight.ByteSize() for weight in (*before.weights, *after.weights)))
    graph, nodes = whole.graph, [*before.nodes, *whole.graph.node, *after.nodes]
    for part in ("node", "input", "output"):
        graph.ClearField(part)
    graph.node.extend(nodes)
    graph.initializer.extend([*before.weights, *after.weights])
    graph.input.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape))
    graph.output.extend(
        helper.make_tensor_value_info(out, TensorProto.FLOAT, ["photos", width]) for out, width in outputs
    )
    whole.ir_version = max(LEAST_IR, whole.ir_version)
    helper.set_model_props(whole, metadata)
    return bytes(whole.SerializeToString())


def _check_opset(model: ModelProto, least: int) -> None:
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version < least:
            raise UserError(
                f"The network is written in version {entry.version} of ONNX's operators, and the graph needs {least} "
                "or newer. Convert it with onnx.version_converter, fit the run with the new file, and export that."
            )


def _check_size(n_bytes: int) -> None:
    """Refuse a graph that no ONNX file can hold."""
    if n_bytes >= 2**31:
        raise StorageError(
            f"The graph takes {n_bytes / 2**30:.1f} GiB, and ONNX files end at 2 GiB. Fit the run with a smaller "
            "network, or with fewer tags (--min-count)."
        )
