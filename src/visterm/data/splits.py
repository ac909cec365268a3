"""Names of splits, spelled one way: "train", "valid", "test", and whatever else a tag file says."""

from __future__ import annotations

_ALIASES = {
    "training": "train",
    "val": "valid",
    "validation": "valid",
    "dev": "valid",
    "testing": "test",
}
STANDARD = frozenset({"train", "valid", "test"})


def split_name(text: str | None) -> str | None:
    """Return the one spelling of a split; None where nothing is said."""
    name = (text or "").strip().casefold()
    return _ALIASES.get(name, name) or None
