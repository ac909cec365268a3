"""A photo library drawn from a seed, in which all is known: objects, parts, relations, and which tag means which."""

from visterm_research.scenes.library import DrawnLibrary, DrawnPicture, draw_library, read_drawn_library
from visterm_research.scenes.people import GROUPS, SPELLINGS, NoiseSettings, Spellings
from visterm_research.scenes.scene import DrawnObject, Part, Scene, draw_scene
from visterm_research.scenes.things import IS_A, NOUNS, PART_OF, TRUE_TAGS, Query, ancestors, implied, queries_of

__all__ = [
    "GROUPS", "IS_A", "NOUNS", "PART_OF", "SPELLINGS", "TRUE_TAGS", "DrawnLibrary", "DrawnObject", "DrawnPicture",
    "NoiseSettings", "Part", "Query", "Scene", "Spellings", "ancestors", "draw_library", "draw_scene", "implied",
    "queries_of", "read_drawn_library",
]  # fmt: skip
