"""The true tags of drawn scenes, and how they hang together: kinds (is-a) and parts (part-of)."""

from __future__ import annotations

from visterm.demo.drawn.things import THINGS

_KINDS: dict[str, str] = {
    "tree": "oak birch pine palm",
    "flower": "tulip sunflower daisy",
    "plant": "tree flower cactus grass",
    "water": "sea lake river",
    "building": "house church tower castle barn skyscraper lighthouse windmill",
    "boat": "sailboat ship rowing_boat",
    "vehicle": "car bus lorry bicycle train aeroplane balloon boat",
    "bird": "gull duck owl penguin",
    "animal": "bird fish butterfly dog cat fox cow horse sheep pig elephant camel giraffe deer rabbit",
}
_PARTS: dict[str, str] = {
    "house": "chimney roof door window",
    "church": "roof steeple cross clock window door",
    "tower": "window door flag",
    "castle": "tower roof window door flag",
    "barn": "roof door window",
    "skyscraper": "antenna window",
    "lighthouse": "lamp roof door window",
    "windmill": "roof door window blade",
    "tent": "door",
    "car": "window door headlight wheel",
    "bus": "window door headlight wheel",
    "lorry": "trailer cabin window headlight wheel",
    "bicycle": "wheel handlebar saddle",
    "train": "funnel cabin window wheel",
    "aeroplane": "wing tail window",
    "balloon": "basket",
    "sailboat": "mast sail hull",
    "ship": "funnel window hull",
    "rowing_boat": "hull oar",
    "oak": "trunk leaves branch",
    "birch": "trunk leaves branch",
    "pine": "trunk leaves",
    "palm": "trunk leaves",
    "cactus": "branch",
    "tulip": "stem petal leaves",
    "sunflower": "stem petal leaves",
    "daisy": "stem petal leaves",
    "mushroom": "stem cap",
    "gull": "wing tail beak",
    "duck": "wing tail beak",
    "owl": "wing ear beak",
    "penguin": "wing beak",
    "fish": "tail fin",
    "butterfly": "wing",
    "person": "leg arm head hat",
    "dog": "leg tail head ear",
    "cat": "leg tail head ear",
    "fox": "leg tail head ear",
    "cow": "leg tail head ear horn",
    "horse": "leg tail head ear mane",
    "sheep": "leg tail head ear",
    "pig": "leg tail head ear",
    "elephant": "leg tail head ear trunk tusk",
    "camel": "leg tail head ear hump",
    "giraffe": "leg tail head ear horn",
    "deer": "leg tail head ear antlers",
    "rabbit": "leg tail head ear",
}
_LAND_AND_SKY = (
    "sky cloud sun moon star rainbow grass field desert snow road street mountain hill forest sea lake river beach "
    "island rock wave"
)
_STATES = "night sunset winter autumn rain fog red blue yellow white"
_MADE_OF: dict[str, str] = {"forest": "tree"}


def _split(words: str) -> list[str]:
    return [word.replace("_", " ") for word in words.split()]


IS_A: tuple[tuple[str, str], ...] = tuple(
    sorted((kind, above) for above, kinds in _KINDS.items() for kind in _split(kinds))
)
"""Pairs (kind, what it is a kind of), direct ones only."""

PART_OF: tuple[tuple[str, str], ...] = tuple(
    sorted((part, whole.replace("_", " ")) for whole, parts in _PARTS.items() for part in _split(parts))
)
"""Pairs (part, whole) as they are drawn."""

NOUNS: frozenset[str] = frozenset({*THINGS, *_split(_LAND_AND_SKY), *_KINDS})
"""Tags that name a whole thing, a kind of thing, or a stretch of land, water or sky."""

TRUE_TAGS: tuple[str, ...] = tuple(sorted({*NOUNS, *_split(_STATES), *(part for part, _ in PART_OF)}))
"""Every tag that can be true of a scene or of a part in it."""

_ABOVE: dict[str, str] = dict(IS_A)


def ancestors(tag: str) -> tuple[str, ...]:
    """Return all that a tag is a kind of, nearest first: of "oak", tree and plant."""
    found = []
    while tag in _ABOVE:
        tag = _ABOVE[tag]
        found.append(tag)
    return tuple(found)


def implied(tag: str) -> tuple[str, ...]:
    """Return all that is there where a tag is: what it is a kind of, and what it consists of (a forest: trees)."""
    made_of = _MADE_OF.get(tag)
    return ancestors(tag) if made_of is None else (*ancestors(tag), made_of, *ancestors(made_of))
