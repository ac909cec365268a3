"""Models that score tags for images: a base contract, a folder for each family, and the classes by name."""

from visterm.core.registry import lazy_classes
from visterm.core.tables import MODELS

__getattr__, __dir__ = lazy_classes("visterm.models", MODELS.classes)
