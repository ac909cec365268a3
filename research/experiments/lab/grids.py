"""Every combination of some values: the small grid that each side looks for its best in."""

from __future__ import annotations

from itertools import product
from typing import Any


def grid(**values: list[Any]) -> list[dict[str, Any]]:
    """Combine the values of all settings, the last one changing fastest."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
