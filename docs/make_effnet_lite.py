"""Write the graph of EfficientNet-Lite2 without weights, which the encoder appends; `--check` says if it is stale."""

import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from visterm.encoders.effnet_lite import GRAPH, HEAD_WIDTH, convolutions

OPSET, IR_VERSION = 13, 8  # Old versions, so that any onnxruntime of the last years opens the file
PIXEL_MEAN, PIXEL_STD = 127, 128  # Of all three colours, in training
CONSTANTS = {"pixel_mean": PIXEL_MEAN, "pixel_std": PIXEL_STD, "zero": 0, "six": 6}


def graph() -> bytes:
    """Return the graph: from pictures of uint8, (n, height, width, 3), to their last feature maps."""
    nodes = [
        helper.make_node("Cast", ["image"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["floats"], ["channels_first"], perm=[0, 3, 1, 2]),
        helper.make_node("Sub", ["channels_first", "pixel_mean"], ["centred"]),
        helper.make_node("Div", ["centred", "pixel_std"], ["scaled"]),
    ]
    x = block_input = "scaled"
    for step in convolutions():
        weights, output = [f"{step.name}.weight", f"{step.name}.bias"], f"{step.name}.output"
        n_groups = 1 if step.shape[1] > 1 else step.shape[0]  # a depthwise convolution has an input of width 1
        padding = {"auto_pad": "SAME_UPPER", "strides": [step.stride] * 2}
        nodes.append(helper.make_node("Conv", [x, *weights], [output], group=n_groups, **padding))
        x = output
        if not step.ends_block:
            nodes.append(helper.make_node("Clip", [x, "zero", "six"], [x := f"{step.name}.relu6"]))
            continue
        if step.adds_input:
            nodes.append(helper.make_node("Add", [x, block_input], [x := f"{step.name}.sum"]))
        block_input = x

    nodes[-1].output[0] = "features"
    pictures = helper.make_tensor_value_info("image", TensorProto.UINT8, ["n", "height", "width", 3])
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", HEAD_WIDTH, "rows", "columns"])
    constants = [numpy_helper.from_array(np.float32(value), name) for name, value in CONSTANTS.items()]
    body = helper.make_graph(nodes, "efficientnet_lite2", [pictures], [features], constants)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return bytes(model.SerializeToString(deterministic=True))


def main() -> int:
    """Write the graph, or only compare it."""
    is_fresh = GRAPH.exists() and GRAPH.read_bytes() == graph()
    if "--check" in sys.argv:
        return 0 if is_fresh else 1
    GRAPH.write_bytes(graph())
    return 0


if __name__ == "__main__":
    sys.exit(main())
