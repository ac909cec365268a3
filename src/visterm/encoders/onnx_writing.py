"""ONNX graphs written without the format's package: steps put around a network's own, in one file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import StorageError, UserError
from visterm.encoders.onnx_graph import bytes_field, fields, refusing_broken, written_number

ELEMENTS = {"float32": 1, "uint8": 2, "int64": 7, "float16": 10}
"""What onnx.proto calls the types of numbers that are written."""
LEAST_OPSET = 9
"""The first version of ONNX's operators in which all steps that are written here mean the same as in the newest, but
for those of `SINCE`."""
SINCE = {"TopK": 10}
LEAST_IR = 4  # The first version of the format in which weights are no inputs

# Field numbers of onnx.proto
_IR_VERSION, _GRAPH, _OPSET, _METADATA = 1, 7, 8, 14  # ModelProto
_NODES, _INITIALIZERS, _INPUTS, _OUTPUTS = 1, 5, 11, 12  # GraphProto
_DOMAIN, _VERSION = 1, 2  # OperatorSetIdProto

Operand: TypeAlias = "str | NDArray[Any] | float"


class Steps:
    """Steps of a graph, one after the other: each takes tensors by name or arrays, and returns the name of its result.

    `content` and `weights` are the steps and the arrays as they stand in a file, and `opset` the version of ONNX's
    operators that they need. Names of tensors begin with `part`.
    """

    def __init__(self, part: str) -> None:
        self._part, self.opset = part, LEAST_OPSET
        self.content: list[bytes] = []
        self.weights: list[bytes] = []
        self._made = 0

    def add(
        self, op: str, *operands: Operand, to: str | None = None, to_type: Any = None, **attributes: int | Sequence[int]
    ) -> str:
        """Add a step of ONNX's operator `op`; its result is called `to`, or by a name of its own.

        `to_type` is the NumPy type that the operator Cast makes.
        """
        if to_type is not None:
            attributes["to"] = ELEMENTS[np.dtype(to_type).name]
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

    def _write(
        self, op: str, operands: Sequence[Operand], outputs: Sequence[str], attributes: dict[str, int | Sequence[int]]
    ) -> None:
        self.opset = max(self.opset, SINCE.get(op, LEAST_OPSET))
        names = [each if isinstance(each, str) else self._weight(np.asarray(each)) for each in operands]
        parts = [bytes_field(1, name.encode()) for name in names]
        parts += [bytes_field(2, name.encode()) for name in outputs]
        parts += [bytes_field(4, op.encode())]
        parts += [bytes_field(5, _attribute(key, value)) for key, value in attributes.items()]
        self.content.append(b"".join(parts))

    def _name(self) -> str:
        self._made += 1
        return f"visterm/{self._part}/{self._made}"

    def _weight(self, array: NDArray[Any]) -> str:
        """Keep an array; floats become float32, truth values uint8, and other numbers int64."""
        kind = {"f": np.float32, "b": np.uint8}.get(array.dtype.kind, np.int64)
        kept = np.asarray(array, kind, order="C")
        name = self._name()
        sizes = b"".join(_number_field(1, size) for size in array.shape)
        number = _number_field(2, ELEMENTS[str(kept.dtype)])
        self.weights.append(sizes + number + bytes_field(8, name.encode()) + bytes_field(9, kept.tobytes()))
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

    `given` is the one input: its name, type of `ELEMENTS` and shape, with names for sizes that may be any; `outputs`
    are names of tensors of float32 and their widths, all of shape (photos, width). `metadata` takes the place of the
    network's. Raises StorageError if the network's file breaks off; UserError if its operators are of a version before
    the one that the steps need.
    """
    name, kind, shape = given
    with refusing_broken():
        whole = list(fields(memoryview(model)))
        graph = b"".join(field.value for field in whole if field.number == _GRAPH)
        for field in whole:
            if field.number == _OPSET:
                _check_opset(field.value, max(before.opset, after.opset))
        own = [field.raw for field in fields(memoryview(graph)) if field.number not in (_INPUTS, _OUTPUTS)]
    made = [
        *(bytes_field(_NODES, step) for step in before.content),
        *own,
        *(bytes_field(_NODES, step) for step in after.content),
        *(bytes_field(_INITIALIZERS, weight) for weight in (*before.weights, *after.weights)),
        bytes_field(_INPUTS, _value(name, ELEMENTS[kind], shape)),
        *(bytes_field(_OUTPUTS, _value(out, ELEMENTS["float32"], ["photos", width])) for out, width in outputs),
    ]
    kept = [field.raw for field in whole if field.number not in (_IR_VERSION, _GRAPH, _METADATA)]
    version = max([LEAST_IR, *(int(field.value) for field in whole if field.number == _IR_VERSION)])
    entries = [bytes_field(1, key.encode()) + bytes_field(2, value.encode()) for key, value in metadata.items()]
    return b"".join(
        [
            _number_field(_IR_VERSION, version),
            *kept,
            bytes_field(_GRAPH, b"".join(made)),
            *(bytes_field(_METADATA, entry) for entry in entries),
        ]
    )


def _check_opset(entry: memoryview, least: int) -> None:
    found = {field.number: field.value for field in fields(entry)}
    domain, version = found.get(_DOMAIN, b""), found.get(_VERSION, 0)
    if bytes(domain) in (b"", b"ai.onnx") and isinstance(version, int) and version < least:
        raise UserError(
            f"The network is written in version {version} of ONNX's operators, and the graph needs {least} or "
            "newer. Convert it with onnx.version_converter, fit the run with the new file, and export that."
        )


def _attribute(name: str, value: int | Sequence[int]) -> bytes:
    """Write a whole number, or a list of them, of a step."""
    if isinstance(value, int):
        return bytes_field(1, name.encode()) + _number_field(3, value) + _number_field(20, 2)
    return bytes_field(1, name.encode()) + b"".join(_number_field(8, each) for each in value) + _number_field(20, 7)


def _value(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    """Write the name, type and shape of a tensor that goes in or comes out."""
    sizes = [_number_field(1, size) if isinstance(size, int) else bytes_field(2, size.encode()) for size in shape]
    laid = b"".join(bytes_field(1, size) for size in sizes)
    tensor = _number_field(1, kind) + bytes_field(2, laid)
    return bytes_field(1, name.encode()) + bytes_field(2, bytes_field(1, tensor))


def _number_field(number: int, value: int) -> bytes:
    return written_number(number << 3) + written_number(value)


def check_file_size(model: bytes) -> None:
    """Refuse a graph that no ONNX file can hold."""
    if len(model) >= 2**31:
        raise StorageError(
            f"The graph takes {len(model) / 2**30:.1f} GiB, and ONNX files end at 2 GiB. Fit the run with a smaller "
            "network, or with fewer tags (--min-count)."
        )
