"""Write the graph of EfficientNet-Lite2 without weights, which the encoder appends, and the names of its classes.

`--check` says if one of them is stale. The names are those of WordNet, in the order of the package timm.
"""

import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from visterm.encoders.effnet_lite import CLASSES, GRAPH, HEAD_WIDTH, convolutions

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


def classes() -> str:
    """Return a line for each class: its first name that no other class has, or nothing."""
    spec = find_spec("timm")
    assert spec is not None
    folder = Path(str(spec.origin)).parent / "data" / "_info"
    lines = (folder / "imagenet_synset_to_lemma.txt").read_text(encoding="utf-8").splitlines()
    names_of = dict(line.split(maxsplit=1) for line in lines)
    names = [names_of[synset].split(", ") for synset in (folder / "imagenet_synsets.txt").read_text().split()]
    counts = Counter(name.casefold() for group in names for name in group)
    return "".join(next((name for name in group if counts[name.casefold()] == 1), "") + "\n" for group in names)


def main() -> int:
    """Write both files, or only compare them."""
    if "--check" in sys.argv:
        return 0 if GRAPH.read_bytes() == graph() and CLASSES.read_text(encoding="utf-8") == classes() else 1
    GRAPH.write_bytes(graph())
    CLASSES.write_text(classes(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
