"""Write the graph of EfficientNet-Lite2 without weights, which the encoder appends, and the names of its classes.

`--check` says if one of them is stale. The names are those of WordNet, in the order of the package timm.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from visterm.encoders.effnet_lite import CLASSES, GRAPH

OPSET, IR_VERSION = 13, 8  # Old versions, so that any onnxruntime of the last years opens the file
PIXEL_MEAN, PIXEL_STD = 127, 128  # Of all three colours, in training
CONSTANTS = {"pixel_mean": PIXEL_MEAN, "pixel_std": PIXEL_STD, "zero": 0, "six": 6}


STEM_WIDTH: Final = 32
STAGES: Final = ((3, 1, 1, 16, 1), (3, 2, 6, 24, 3), (5, 2, 6, 48, 3), (3, 2, 6, 88, 4), (5, 1, 6, 120, 4),
                 (5, 2, 6, 208, 5), (3, 1, 6, 352, 1))  # fmt: skip
"""Side of the kernels, stride of the first block, expansion, width and number of blocks, for each stage."""
HEAD_WIDTH: Final = 1280


class Convolution(NamedTuple):
    """A convolution, by its name in the file of weights."""

    name: str
    shape: tuple[int, int, int, int]  # Of the kernels: width of the output, width of the input of a group, sides
    stride: int = 1
    ends_block: bool = False  # Whether it is the last of its block, which no ReLU6 follows
    adds_input: bool = False  # Whether the block's input is added to the convolution's output


def convolutions() -> Iterator[Convolution]:
    """Yield the convolutions from the picture to the last feature map."""
    yield Convolution("_conv_stem", (STEM_WIDTH, 3, 3, 3), 2)
    width, block = STEM_WIDTH, 0
    for side, stride, expansion, stage_width, n_blocks in STAGES:
        for i in range(n_blocks):
            name, inner_width = f"_blocks.{block}.", expansion * width
            if expansion > 1:
                yield Convolution(f"{name}_expand_conv", (inner_width, width, 1, 1))
            depthwise = inner_width, 1, side, side
            yield Convolution(f"{name}_depthwise_conv", depthwise, stride if i == 0 else 1)

            project = stage_width, inner_width, 1, 1
            yield Convolution(f"{name}_project_conv", project, ends_block=True, adds_input=i > 0)
            width, block = stage_width, block + 1
    yield Convolution("_conv_head", (HEAD_WIDTH, width, 1, 1))


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
