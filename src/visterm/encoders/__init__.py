"""Encoders turn images into feature rows; their classes by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visterm.core.registry import lazy_names
from visterm.core.tables import ENCODERS

if TYPE_CHECKING:  # `as`: type checkers take these names as public
    from visterm.core.checks import stack_rows
    from visterm.encoders.base import Encoder, Images, Pixels
    from visterm.encoders.blocks import (
        COLOUR_SPACES,
        MAX_COLOURS,
        MAX_VALUE,
        BlockCutter,
        FindNearest,
        WordFinder,
        assign_words,
        cells_of_overlap,
        check_levels,
        check_numbers,
        learn_codebook,
        learn_palette,
        pixel_codes,
        weights_of_levels,
    )
    from visterm.encoders.by_name import DataSetRows as DataSetRows
    from visterm.encoders.by_name import FeatureRows as FeatureRows
    from visterm.encoders.by_name import Ids as Ids
    from visterm.encoders.by_name import Precomputed as Precomputed
    from visterm.encoders.chain import Chain as Chain
    from visterm.encoders.chain import NestedEncoder
    from visterm.encoders.contract import AnyEncoder
    from visterm.encoders.immich import Immich as Immich
    from visterm.encoders.named import DEFAULT_ENCODER, make_encoder
    from visterm.encoders.network import NetworkEncoder
    from visterm.encoders.onnx import Onnx as Onnx
    from visterm.encoders.preparation import Preparation, as_size, pooled
    from visterm.encoders.torch_loading import torch_device
    from visterm.encoders.visterms import COLOUR_IMAGES, OVERLAP
    from visterm.encoders.visterms import Visterms as Visterms
    from visterm.encoders.word_rows import check_prompts, sentence_vectors, unit_rows

_NAMES = {
    "base": "Encoder Images Pixels stack_rows",
    "blocks": "BlockCutter COLOUR_SPACES FindNearest MAX_COLOURS MAX_VALUE WordFinder assign_words cells_of_overlap "
    "check_levels check_numbers learn_codebook learn_palette pixel_codes weights_of_levels",
    "chain": "NestedEncoder",
    "contract": "AnyEncoder",
    "named": "DEFAULT_ENCODER make_encoder",
    "network": "NetworkEncoder",
    "preparation": "Preparation as_size pooled",
    "torch_loading": "torch_device",
    "visterms": "COLOUR_IMAGES OVERLAP Visterms",
    "word_rows": "check_prompts sentence_vectors unit_rows",
}
"""Names that plug-ins may use, by module: docs/add_a_model.md."""

__doc__ = f"""Encoders turn images into feature rows.

`visterm.fit` takes them by name or as objects: ``encoder="visterms"``, ``encoder=Visterms(max_side=256)``. They are
also transformers of scikit-learn. Your own encoder is a subclass of `Encoder` with `_encode_batch`. For features that
you have already: pass the matrix to `visterm.fit`, or a file (`Precomputed`).

{ENCODERS.class_list()}

Examples
--------
>>> X = visterm.encoders.Visterms().fit_transform(frame["path"])  # doctest: +SKIP
"""

__getattr__, __dir__ = lazy_names("visterm.encoders", _NAMES, ENCODERS.classes)
