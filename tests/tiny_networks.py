"""ONNX networks of a few numbers, written for tests: mean colours, maps and tokens of one image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ELEMENTS = {"uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}
WEIGHTS = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, -1]], np.float32)


def colour_network(
    path: Path,
    *,
    dtype: str = "uint8",
    channels_last: bool = True,
    size: int | str | tuple[int | str, int | str] = 8,
    batch: int | str = "N",
    weights: np.ndarray = WEIGHTS,
    outputs: tuple[str, ...] = ("features",),
    channels: int | str = 3,
    metadata: dict[str, str] | None = None,
    weights_beside: str | None = None,
) -> Path:
    """Write a network whose outputs follow from the mean colour of an image, and give its path.

    Outputs that can be asked for: "features", "embedding" and "logits" (mean colour times `weights`), "negated" (minus
    that), "maps" (the pixels times `weights`, as laid out in the input), "maps_first" (channels first, always),
    "tokens" (the rows of the picture), "nothing" (features over zero), "total" (one number for all images) and
    "likened" (features over the largest of all images that go through together).
    `weights_beside` names a file for the weights.
    """
    sides = size if isinstance(size, tuple) else (size, size)
    shape = [batch, *sides, channels] if channels_last else [batch, channels, *sides]
    to_last = helper.make_node("Identity" if channels_last else "Transpose", ["floats"], ["pixels"])
    if not channels_last:
        to_last.attribute.append(helper.make_attribute("perm", [0, 2, 3, 1]))
    nodes = [
        helper.make_node("Cast", ["image"], ["floats"], to=TensorProto.FLOAT),
        to_last,
        helper.make_node("MatMul", ["pixels", "weights"], ["maps_last"]),
        helper.make_node("ReduceMean", ["maps_last"], ["tokens_made"], axes=[2], keepdims=0),
        helper.make_node("ReduceMean", ["tokens_made"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("ReduceMax", ["mean"], ["largest"], keepdims=1),
    ]
    making = {
        "negated": helper.make_node("Neg", ["mean"], ["negated"]),
        "maps": helper.make_node("Identity", ["maps_last"], ["maps"])
        if channels_last
        else helper.make_node("Transpose", ["maps_last"], ["maps"], perm=[0, 3, 1, 2]),
        "maps_first": helper.make_node("Transpose", ["maps_last"], ["maps_first"], perm=[0, 3, 1, 2]),
        "tokens": helper.make_node("Identity", ["tokens_made"], ["tokens"]),
        "nothing": helper.make_node("Div", ["mean", "zero"], ["nothing"]),
        "likened": helper.make_node("Div", ["mean", "largest"], ["likened"]),
        "total": helper.make_node("ReduceSum", ["mean"], ["total"], keepdims=0),
    }
    nodes += [making.get(name) or helper.make_node("Identity", ["mean"], [name]) for name in outputs]
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("image", ELEMENTS[dtype], shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.zeros(1, np.float32), "zero")],
    )
    return _save(graph, path, metadata, weights_beside)


def greedy_network(path: Path, n_numbers: int, *, runs: bool) -> Path:
    """Write a network that makes a tensor of any size: of a number of its own, or with `runs` of what goes in."""
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["mean"], axes=[1, 2], keepdims=0),
        helper.make_node("ReduceSum", ["image"], ["sum"], keepdims=0),
        helper.make_node("Expand", ["sum" if runs else "one", "size"], ["large"]),
        helper.make_node("ReduceSum", ["large"], ["total"], keepdims=0),
        helper.make_node("Add", ["mean", "total"], ["features"]),
    ]
    graph = helper.make_graph(
        nodes,
        "greedy",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 8, 8, 3])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.array([n_numbers], np.int64), "size"),
            numpy_helper.from_array(np.ones(1, np.float32), "one"),
        ],
    )
    return _save(graph, path)


def sum_network(path: Path, *, inputs: dict[str, list[int]]) -> Path:
    """Write a network that adds up whatever float inputs it has: not a network of images."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    graph = helper.make_graph(
        [helper.make_node("Sum", list(inputs), ["sum"])],
        "sum",
        values,
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, None)],
    )
    return _save(graph, path)


def _save(
    graph: onnx.GraphProto, path: Path, metadata: dict[str, str] | None = None, weights_beside: str | None = None
) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, metadata or {})
    if weights_beside is not None:
        (path.parent / weights_beside).unlink(missing_ok=True)  # onnx would write behind what is there
    onnx.save(model, path, save_as_external_data=weights_beside is not None, location=weights_beside, size_threshold=0)
    return path
