"""HEIC photos, as telephones make them: read through pillow-heif where it is installed, named where it is not.

It is not an extra of visterm: its wheels hold GPL code, which this project does not bring along.
"""

from __future__ import annotations

import threading
from importlib import import_module
from importlib.util import find_spec

PACKAGE = "pillow_heif"
ADVICE = "HEIC without its reader: pip install pillow-heif"

_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"})
_HEAD = 64
_lock = threading.Lock()
_registered = False


def register_heif() -> None:
    """Let Pillow open HEIC files, at the first call, if pillow-heif is installed; it is looked for only once."""
    global _registered
    if _registered:
        return
    with _lock:
        if not _registered and find_spec(PACKAGE) is not None:
            import_module(PACKAGE).register_heif_opener(thumbnails=False)
        _registered = True


def is_heic(head: bytes) -> bool:
    """Return whether a file that begins so holds pictures coded with HEVC.

    Parameters
    ----------
    head : bytes
        The first bytes of the file: its ``ftyp`` box names a main brand and the brands that it is compatible with
        (ISO 14496-12, section 4.3; the brands are those of ISO 23008-12, annex B).
    """
    if head[4:8] != b"ftyp":
        return False
    box = head[: min(int.from_bytes(head[:4], "big"), _HEAD)]
    return any(box[at : at + 4] in _BRANDS for at in (8, *range(16, len(box) - 3, 4)))
