"""Every promise of an encoder, kept by the encoders of this package: the contract suite of visterm, run on them."""

from contracts.test_every_encoder import *  # noqa: F403
from contracts.test_every_encoder import ARGUMENTS

RESEARCH = True


def timm_arguments(folder):
    from tiny_towers import timm_weights

    return {"network": "test_vit", "weights": str(timm_weights(folder / "vit.safetensors"))}


def open_clip_arguments(folder):
    from tiny_towers import CLIP_NAME, clip_weights

    return {"network": CLIP_NAME, "weights": str(clip_weights(folder / "towers.safetensors"))}


ARGUMENTS |= {"timm": timm_arguments, "open_clip": open_clip_arguments}
