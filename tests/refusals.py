"""What errors say, checked by their parts and not by their sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from visterm.core.errors import UserError, VistermError

ANY = object()


@contextmanager
def refused(setting: str | None = None, *, value: Any = ANY, error: type[VistermError] = UserError) -> Iterator[Any]:
    """Expect an error about a setting, and about this value of it.

    The error says what is accepted or what to do, in a text that names no option of the command line by itself.
    """
    with pytest.raises(error) as info:
        yield info
    refusal: VistermError = info.value
    assert refusal.setting == setting, f"{setting} expected, but: {refusal}"
    assert value is ANY or refusal.value == value, f"{setting} = {value} expected, but: {refusal}"
    assert refusal.expected or refusal.advice, f"It does not say what to do: {refusal}"
