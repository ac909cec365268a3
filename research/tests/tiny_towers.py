"""Networks of timm and open_clip with small random weights in local files, for tests; importing this needs torch."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from visterm_research.encoders.open_clip_model import open_clip
from visterm_research.encoders.timm import timm

CLIP_NAME = "tiny-towers"
CLIP_CONFIG = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}


def timm_weights(path: Path, name: str = "test_vit", *, n_classes: int = 7, seed: int = 0) -> Path:
    """Write random weights of a network of timm as safetensors, and give their path."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = timm.create_model(name, num_classes=n_classes)
    save_file(model.state_dict(), path)
    return path


def clip_weights(path: Path, *, seed: int = 0) -> Path:
    """Write random weights of small towers, which open_clip then knows as `CLIP_NAME`, and give their path."""
    config = path.with_name(f"{CLIP_NAME}.json")
    config.write_text(json.dumps(CLIP_CONFIG))
    open_clip.add_model_config(config)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = open_clip.CLIP(**CLIP_CONFIG)
    save_file({name: each.contiguous() for name, each in model.state_dict().items()}, path)
    return path
