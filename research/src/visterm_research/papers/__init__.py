"""What the papers report, typed in once: a JSON file for each, with its tables and where in the paper they stand."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any


@cache
def read_paper(name: str) -> SimpleNamespace:
    """Read what a paper reports: ``PAPER`` is its reference, ``TABLE_1`` and so on its tables, ``notes`` their places.

    Keys that are JSON themselves, such as ``"0.5"`` and ``"[100, 200]"``, come out as numbers and tuples.

    Parameters
    ----------
    name : str
        Of the file beside this one.
    """
    text = files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    return SimpleNamespace(**_read(json.loads(text)))


def _read(value: Any) -> Any:
    """Turn lists into tuples and keys that are JSON into values."""
    if isinstance(value, dict):
        return {_key(key): _read(one) for key, one in value.items()}
    return tuple(map(_read, value)) if isinstance(value, list) else value


def _key(text: str) -> Any:
    try:
        return _read(json.loads(text))
    except ValueError:
        return text
