"""Small vision towers with random weights, in torch and as ONNX networks; importing this needs transformers."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from torch_libraries import torch_library

hf = torch_library("transformers")

SIDE = 32
SMALL = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": SIDE,
    "patch_size": 8, "attn_implementation": "eager",
}  # fmt: skip


class Tower(torch.nn.Module):
    """A tower that takes pictures, and gives those of its outputs that are named."""

    def __init__(self, model: torch.nn.Module, outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.outputs = model, outputs

    def forward(self, pictures: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.model(pixel_values=pictures)
        return tuple(getattr(found, name) for name in self.outputs)


def made(kind: str) -> Tower:
    """Return a tower like those of CLIP, SigLIP or DINOv2, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        if kind == "clip":
            model = hf.CLIPVisionModelWithProjection(hf.CLIPVisionConfig(**SMALL, projection_dim=16))
            return Tower(model, ("image_embeds",)).eval()
        if kind == "siglip":
            return Tower(
                hf.SiglipVisionModel(hf.SiglipVisionConfig(**SMALL)), ("last_hidden_state", "pooler_output")
            ).eval()
        return Tower(hf.Dinov2Model(hf.Dinov2Config(**SMALL)), ("last_hidden_state", "pooler_output")).eval()


def export(tower: Tower, path: Path) -> Path:
    """Write a tower as an ONNX network that takes any number of pictures."""
    names = list(tower.outputs)
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter that needs no further package, and of tracing
        torch.onnx.export(
            tower,
            (torch.zeros(2, 3, SIDE, SIDE),),
            str(path),
            input_names=["pixel_values"],
            output_names=names,
            dynamic_axes={name: {0: "batch"} for name in ("pixel_values", *names)},
            opset_version=17,
            dynamo=False,
        )
    return path
