"""Models that the papers compare with, a folder for each family; their classes by name."""

from functools import partial

from visterm.core.registry import RESEARCH, lazy_names
from visterm.models import MODELS

__getattr__, __dir__ = lazy_names("visterm_research.models", {}, partial(MODELS.classes, RESEARCH))
