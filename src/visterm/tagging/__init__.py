"""The tagger: an encoder, a model and a vocabulary, from fitting to explaining."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visterm.core.registry import lazy_names

if TYPE_CHECKING:
    from visterm.learning.part_settings import make_model
    from visterm.learning.validation import EarlyStopping

_NAMES = {"visterm.learning.part_settings": "make_model", "visterm.learning.validation": "EarlyStopping"}
"""Names for plug-ins, by module: docs/add_a_model.md."""

__getattr__, __dir__ = lazy_names("visterm.tagging", _NAMES)
