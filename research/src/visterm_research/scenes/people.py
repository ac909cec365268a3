"""Tags as people give them: each person has a language and habits, forgets much, mistypes some, and errs at times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random

from visterm.core.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSettings:
    """How far people's tags are from the true ones; every field but `people` is a chance between 0 and 1."""

    people: int = 60  # How many people share the library; a few of them took most of the photos
    # Chance that a person tags in German or French instead of English
    german: float = 0.12
    french: float = 0.08
    terse: float = 0.25  # Chance that a person gives only one to three tags a photo
    forget: float = 0.25  # Chance that a person who is not terse leaves a tag out
    # Chance that a tag is written with another word, in the plural, or wrongly
    synonym: float = 0.12
    plural: float = 0.1
    misspell: float = 0.04
    capital: float = 0.15  # Chance that a person writes tags with a capital, and half of that in capitals only
    wrong: float = 0.08  # Chance that a photo has one tag that is not true

    def __post_init__(self) -> None:
        if self.people < 1:
            raise UserError(f"people is {self.people!r}; expected 1 or more.")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "people" and not 0 <= value <= 1:
                raise UserError(f"{field.name} is {value!r}; expected a chance from 0 to 1.")
        if self.german + self.french > 1:
            raise UserError(f"german + french is {self.german + self.french}; expected at most 1.")


@dataclass(frozen=True, slots=True)
class Person:
    """Someone who tags photos: a language ("en", "de", "fr"), brief or not, and a way with capitals."""

    number: int
    language: str
    terse: bool
    case: str

    def write(self, tags: Sequence[str], rng: Random, noise: NoiseSettings, all_tags: Sequence[str]) -> tuple[str, ...]:
        """Return the tags that this person puts on a photo of which `tags` are true; never none where any is true."""
        kept = [tag for tag in tags if rng.random() >= noise.forget] or list(tags[:1])
        if self.terse:
            kept = rng.sample(list(tags), min(len(tags), rng.randint(1, 3)))
        rng.shuffle(kept)
        if kept and rng.random() < noise.wrong:
            kept.append(rng.choice([tag for tag in all_tags if tag not in tags]))
        return tuple(dict.fromkeys(self._spell(tag, rng, noise) for tag in kept))

    def _spell(self, tag: str, rng: Random, noise: NoiseSettings) -> str:
        spellings = SPELLINGS[tag]
        word, draw = tag, rng.random()
        if self.language == "de" and spellings.german:
            word = spellings.german
        elif self.language == "fr" and spellings.french:
            word = spellings.french
        elif draw < noise.misspell and spellings.misspellings:
            word = rng.choice(spellings.misspellings)
        elif noise.misspell <= draw < noise.misspell + noise.synonym and spellings.synonyms:
            word = rng.choice(spellings.synonyms)
        elif rng.random() < noise.plural and spellings.plural:
            word = spellings.plural
        if self.case == "capital":
            return word[0].upper() + word[1:]
        return word.upper() if self.case == "upper" and "ß" not in word else word


def person_behind(rng: Random, seed: int, noise: NoiseSettings) -> Person:
    """Return the person who took a photo: number `n` is drawn about ``1 / (n + 2)`` as often as the others."""
    number = rng.choices(range(noise.people), [1 / (n + 2) for n in range(noise.people)])[0]
    habits = Random(seed * 1_000_003 + number)
    language = habits.choices(("de", "fr", "en"), (noise.german, noise.french, 1 - noise.german - noise.french))[0]
    terse = habits.random() < noise.terse
    case = "plain"
    if habits.random() < noise.capital:
        case = habits.choice(("capital", "upper"))
    return Person(number, language, terse, case)


@dataclass(frozen=True, slots=True)
class Spellings:
    """How people write one true tag; fields may be empty."""

    plural: str
    synonyms: tuple[str, ...]
    misspellings: tuple[str, ...]
    german: str
    french: str

    def all(self) -> tuple[str, ...]:
        """Return every spelling, without repetition and without the true one unless a language shares it."""
        words = (self.plural, *self.synonyms, *self.misspellings, self.german, self.french)
        return tuple(dict.fromkeys(word for word in words if word))


def _read_spellings() -> dict[str, Spellings]:
    """Read ``spellings.txt``: true tag | plural | synonyms | misspellings | German | French, several with ``;``."""
    spellings = {}
    for line in Path(__file__).with_name("spellings.txt").read_text(encoding="utf-8").splitlines():
        tag, plural, synonyms, misspellings, german, french = (cell.strip() for cell in line.split("|"))
        several = [tuple(word.strip() for word in cell.split(";") if word.strip()) for cell in (synonyms, misspellings)]
        spellings[tag] = Spellings(plural, several[0], several[1], german, french)
    return spellings


SPELLINGS: dict[str, Spellings] = _read_spellings()  # The spellings of every true tag
GROUPS: dict[str, str] = {tag: tag for tag in SPELLINGS} | {
    word.casefold(): tag for tag, spellings in SPELLINGS.items() for word in spellings.all()
}
"""From every spelling, case-folded, to its true tag; no spelling belongs to two tags."""
