"""Text towers with random weights for tests: transformers' CLIP and SigLIP, small, as ONNX, with real tokenizers.

Importing this needs torch and transformers.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tiny_networks import colour_network
from torch_libraries import torch_library

transformers = torch_library("transformers")

TEXTS = [
    "a photo of a husky in the snow",
    "polar bear, ice and sea",
    "Wörter für Bilder: Île-de-France!",
    "sky 1234567890",
]
WIDTH = {"clip": 16, "siglip": 32}
LENGTH = {"clip": 77, "siglip": 64}


class TinyTower(NamedTuple):
    """A text tower as torch has it, and the tokenizer as transformers has it."""

    module: Any
    tokenizer: Any
    length: int

    def rows(self, texts: list[str]) -> np.ndarray:
        """Return transformers' rows of texts, of length 1."""
        given = self.tokenizer(
            texts, padding="max_length", truncation=True, max_length=self.length, return_tensors="pt"
        )
        with torch.inference_mode():
            rows = self.module(given["input_ids"]).numpy()
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class _Tower(torch.nn.Module):
    def __init__(self, model: Any, output: str) -> None:
        super().__init__()
        self.model, self.output = model, output

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(input_ids=ids.long()), self.output)


def clip_tokenizer() -> Tokenizer:
    """Train a tokenizer of CLIP's make: pairs of bytes, small letters, a start and an end."""
    tokenizer = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = ["!", "<|startoftext|>", "<|endoftext|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS * 3,
        trainers.BpeTrainer(vocab_size=700, special_tokens=special, initial_alphabet=alphabet, show_progress=False,
                            end_of_word_suffix="</w>"),
    )  # fmt: skip
    start, end = (tokenizer.token_to_id(token) for token in special[1:])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|startoftext|> $A <|endoftext|>", special_tokens=[("<|startoftext|>", start), ("<|endoftext|>", end)]
    )
    return tokenizer


def siglip_tokenizer() -> Tokenizer:
    """Train a tokenizer of SigLIP 2's make (Gemma's): a mark for spaces, bytes for what is unknown, an end."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.train_from_iterator(
        [text.lower() for text in TEXTS] * 3,
        trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", tokenizer.token_to_id("<eos>"))]
    )
    return tokenizer


def write_towers(folder: Path, kind: str) -> TinyTower:
    """Write towers of the kind "clip" or "siglip", a tokenizer, and networks.toml with the row "tiny"."""
    tokenizer = clip_tokenizer() if kind == "clip" else siglip_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id("<|endoftext|>" if kind == "clip" else "<eos>")
    shape = {
        "vocab_size": tokenizer.get_vocab_size(), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": LENGTH[kind], "eos_token_id": end, "pad_token_id": 0,
        "attn_implementation": "eager", "projection_dim": WIDTH[kind], "projection_size": WIDTH[kind],
    }  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "clip":
            model = transformers.CLIPTextModelWithProjection(transformers.CLIPTextConfig(bos_token_id=1, **shape))
            module, name, dtype = _Tower(model, "text_embeds"), "text", torch.int32
        else:
            model = transformers.SiglipTextModel(transformers.SiglipTextConfig(bos_token_id=2, **shape))
            module, name, dtype = _Tower(model, "pooler_output"), "input_ids", torch.int64
        for part, parameter in module.named_parameters():
            if parameter.ndim == 2:  # so large that each token counts
                torch.nn.init.normal_(parameter, std=0.1 if "position" in part else 0.3)
    ids = torch.full((1, LENGTH[kind]), end, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter that needs no other package
        torch.onnx.export(
            module.eval(), (ids,), str(folder / "text.onnx"), input_names=[name], output_names=["embedding"],
            dynamic_axes={name: {0: "texts"}}, dynamo=False, opset_version=17,
        )  # fmt: skip
    weights = np.random.default_rng(0).normal(size=(3, WIDTH[kind])).astype(np.float32)
    colour_network(folder / "image.onnx", dtype="float32", weights=weights)
    (folder / "networks.toml").write_text(
        f"""
[tiny]
good_for = "tests"
licence = "MIT"
image = {{ file = "image.onnx" }}
encoder = {{ views = "whole", root = false, centre = false }}
text = {{ file = "text.onnx", tokenizer = "tokenizer.json", length = {LENGTH[kind]}, pad_id = 0, \
canonicalise = {"true" if kind == "siglip" else "false"} }}

[blind]
good_for = "tests"
licence = "MIT"
image = {{ file = "image.onnx" }}
"""
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="!" if kind == "clip" else "<pad>"
    )
    return TinyTower(module, fast, LENGTH[kind])
