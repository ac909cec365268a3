"""The Numba kernels: functions of arrays that import only numpy and numba."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_NAMES = {
    "dot": "add_at dot_at",
    "nearest": "PADDING_SCORE add_by_word keep_word nearest_words prepare_codebook",
    "passive_aggressive": "MIN_DISTANCE_SHARE draw_triplet",
    "pixels": "N_PATTERNS colour_codes colour_table gray_levels",
    "random": "GOLDEN draw_below draw_unit mix stream_of",
    "row_moves": "move_rows",
    "rows": "Rows add_row dense_rows embed row_dot row_squares sparse_rows",
    "sorted_lists": "nth_absent",
    "topk": "top_k",
    "warp": "Loss PairBatch",
}
"""Names that plug-ins may use, by module. Kernels do not import `visterm.core`, which has a helper for this."""


def __getattr__(name: str) -> Any:
    """Import a kernel at its first use."""
    for module, names in _NAMES.items():
        if name in names.split():
            return getattr(import_module(f"visterm.kernels.{module}"), name)
    raise AttributeError(f"module 'visterm.kernels' has no attribute '{name}'")
