"""What a scene can hold: things and their painters, kinds and parts as tags, and the queries that these make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from visterm_research.scenes import buildings, creatures, plants, vehicles
from visterm_research.scenes.animals import QUADRUPEDS
from visterm_research.scenes.canvas import NAMED, Sketch

PER_LENGTH = 150  # Queries of two words, and of three, at most


@dataclass(frozen=True, slots=True)
class Thing:
    """A thing that can be put into a scene."""

    paint: Callable[[Sketch], None]  # Paints it into a sketch whose unit is about the thing's height
    size: float  # Its unit, as a share of the picture's short side, where it is a main subject in the foreground
    where: str = "land"  # "land", "water", "air" or "deep" (under water)
    aside: float = 1.0  # How much smaller it is where it is not a main subject: people and flowers beside a house


_ANIMAL_SIZES = {
    "horse": 0.46, "cow": 0.46, "elephant": 0.56, "camel": 0.46, "giraffe": 0.34, "deer": 0.44, "dog": 0.48, "cat": 0.5,
    "fox": 0.46, "sheep": 0.4, "pig": 0.42, "rabbit": 0.52,
}  # fmt: skip

THINGS: dict[str, Thing] = {
    "house": Thing(buildings.house, 0.55),
    "church": Thing(buildings.church, 0.62),
    "tower": Thing(buildings.tower, 0.66),
    "castle": Thing(buildings.castle, 0.62),
    "barn": Thing(buildings.barn, 0.56),
    "skyscraper": Thing(buildings.skyscraper, 0.75),
    "lighthouse": Thing(buildings.lighthouse, 0.66),
    "windmill": Thing(buildings.windmill, 0.62),
    "tent": Thing(buildings.tent, 0.4),
    "bridge": Thing(buildings.bridge, 0.44, "water"),
    "car": Thing(vehicles.car, 0.34, aside=0.65),
    "bus": Thing(vehicles.bus, 0.34),
    "lorry": Thing(vehicles.lorry, 0.32),
    "bicycle": Thing(vehicles.bicycle, 0.44),
    "train": Thing(vehicles.train, 0.34),
    "aeroplane": Thing(vehicles.aeroplane, 0.32, "air", 0.5),
    "balloon": Thing(vehicles.balloon, 0.46, "air"),
    "sailboat": Thing(vehicles.sailboat, 0.52, "water"),
    "ship": Thing(vehicles.ship, 0.32, "water"),
    "rowing boat": Thing(vehicles.rowing_boat, 0.34, "water"),
    "oak": Thing(plants.oak, 0.7),
    "birch": Thing(plants.birch, 0.7),
    "pine": Thing(plants.pine, 0.7),
    "palm": Thing(plants.palm, 0.72),
    "cactus": Thing(plants.cactus, 0.56),
    "tulip": Thing(plants.tulip, 0.56, aside=0.5),
    "sunflower": Thing(plants.sunflower, 0.66),
    "daisy": Thing(plants.daisy, 0.56),
    "mushroom": Thing(plants.mushroom, 0.48, aside=0.4),
    "gull": Thing(creatures.gull, 0.26, "air", 0.6),
    "duck": Thing(creatures.duck, 0.34, "water", 0.6),
    "owl": Thing(creatures.owl, 0.58),
    "penguin": Thing(creatures.penguin, 0.5),
    "fish": Thing(creatures.fish, 0.34, "deep"),
    "butterfly": Thing(creatures.butterfly, 0.34, "air"),
    "person": Thing(creatures.person, 0.6, aside=0.6),
    **{name: Thing(QUADRUPEDS[name], size) for name, size in _ANIMAL_SIZES.items()},
}
"""Every thing by its name, which is also its tag."""


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
    **dict.fromkeys(("dog", "cat", "fox", "sheep", "pig", "rabbit"), "leg tail head ear"),
    **dict.fromkeys(("cow", "giraffe"), "leg tail head ear horn"),
    "horse": "leg tail head ear mane",
    "elephant": "leg tail head ear trunk tusk",
    "camel": "leg tail head ear hump",
    "deer": "leg tail head ear antlers",
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


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and how many pictures of the split have all its words among their true tags."""

    words: tuple[str, ...]  # One to three true tags, sorted
    split: str
    n_relevant: int  # 1 or more

    @property
    def text(self) -> str:
        """The query as it is typed: words with a space inside are quoted."""
        return " ".join(f'"{word}"' if " " in word else word for word in self.words)


def queries_of(tags: Iterable[Sequence[str]], *, split: str = "") -> tuple[Query, ...]:
    """List the queries of one to three words that pictures can answer, given the true tags of each.

    All single tags but colours are queries; of pairs and triples those that the most evenly spread choice of
    `PER_LENGTH` takes, from the frequent to the rare. Words of which one follows from another ("oak tree", "forest
    tree") make no query; nor do colours, which are said of the thing that was painted, while a searcher may see them
    anywhere.
    """
    lists = [sorted(set(words) - NAMED.keys()) for words in tags]
    found: list[Query] = []
    for length in (1, 2, 3):
        counts = Counter(words for listed in lists for words in combinations(listed, length))
        above = {words: {kind for word in words for kind in implied(word)} for words in counts}
        ranked = sorted((-count, words) for words, count in counts.items() if above[words].isdisjoint(words))
        if length > 1 and len(ranked) > PER_LENGTH:
            ranked = [ranked[i * len(ranked) // PER_LENGTH] for i in range(PER_LENGTH)]
        found += [Query(words, split, -count) for count, words in ranked]
    return tuple(found)
