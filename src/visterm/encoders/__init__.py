"""From images to feature rows; the encoders' classes by name."""

from visterm.core.registry import lazy_classes
from visterm.core.tables import ENCODERS

__getattr__, __dir__ = lazy_classes("visterm.encoders", ENCODERS.classes)
