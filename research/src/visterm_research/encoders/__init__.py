"""Encoders that the papers compare with, and networks of torch; their classes by name."""

from functools import partial

from visterm.core.registry import RESEARCH, lazy_names
from visterm.encoders import ENCODERS

__getattr__, __dir__ = lazy_names("visterm_research.encoders", {}, partial(ENCODERS.classes, RESEARCH))
