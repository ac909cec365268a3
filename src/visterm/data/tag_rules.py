"""Tag rules: what cleans and relates tags and how a tag file is written, in one file, ``tags.toml``."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

from visterm.core.errors import TagFileError
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.core.wording import ends_of
from visterm.core.writing import whole_file
from visterm.data.tag_files import TableOptions
from visterm.data.tag_formats.record import separator_pattern
from visterm.data.text_files import read_text

WORDNET = "wordnet"  # In place of a file of relations: WordNet, at one of its usual places


@dataclass(frozen=True, kw_only=True)
class TagRules:
    """What to do with the tags of a library before they are learned, and how their file is written.

    Examples
    --------
    >>> TagRules.of({"max_share": 0.5, "aliases": {"nyc": "new york"}}).stop_tags
    ()
    """

    stop_tags: tuple[str, ...] = ()  # Tags that are not learned. One that has aliases is left out with them.
    max_share: float | None = None  # Leave out tags of more than this share of the training images
    # Learn from at most this many images of one owner with the same tags: more are bulk uploads. The owner is read from
    # the column ``user``, ``owner`` or ``photographer``.
    per_user: int | None = None
    # Which tags are parts of which: a CSV of part,whole, WordNet's folder, or "wordnet" to look for it
    part_of: str | None = None
    # Which tags are kinds of which: a CSV of child,parent, WordNet's folder, or "wordnet". None: from the WordNet of
    # `part_of`, if that is one.
    isa: str | None = None
    # With WordNet: a CSV of tag,synset with the meaning of tags. None: the most frequent meaning.
    tag_synsets: str | None = None
    image_column: str | None = None  # Column of the tag file that has the images; None: the usual names
    tags_column: str | None = None  # Column of the tag file that has the tags; None: the usual names
    # What separates tags in a cell: a text, several such as ``;,``, or a pattern. None: a semicolon or a comma.
    separator: str | None = None
    # Spellings and the tags that they mean: images with either have the tag, and searches for either find it
    aliases: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, rules: Rules) -> TagRules:
        """Return the rules of a file, of a mapping with the same keys, or none for None.

        Paths in a file start from its folder. Raises TagFileError, which names the key and the value, if the file
        cannot be read, a key is unknown, or a value cannot be used.
        """
        if isinstance(rules, TagRules):
            return rules
        if rules is None:
            return cls()
        if isinstance(rules, Mapping):
            return cls._checked(dict(rules), "tag_rules")
        path = Path(rules)
        try:
            values = tomllib.loads(read_text(path, "file of tag rules"))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise TagFileError(f'{path} is no TOML: {error}. Texts stand in quotes: stop_tags = ["nikon"].') from error
        found = cls._checked(values, str(path))
        beside: dict[str, Any] = {
            name: str(path.parent / value)
            for name in ("part_of", "isa", "tag_synsets")
            if (value := getattr(found, name)) not in (None, WORDNET)
        }
        return replace(found, **beside)

    @classmethod
    def _checked(cls, values: dict[str, Any], source: str) -> Self:
        """Check each value, and return the rules; `source` begins the messages."""
        names = [rule.name for rule in fields(cls)]
        for name in values:
            if name not in names:
                near = get_close_matches(name, names, 1)
                advice = f"Did you mean {near[0]!r}?" if near else f"Expected {', '.join(names)}."
                raise TagFileError(f"{source}: there is no rule {name!r}. {advice}")
        checked = {}
        for name, value in values.items():
            is_valid, expected = _EXPECTED[name]
            if not is_valid(value):
                raise TagFileError(f"{source}: {name} is {value!r:.60}; expected {expected}.")
            checked[name] = value
        if "separator" in checked:
            separator_pattern(checked["separator"])  # refuses one that can't be used
        if "stop_tags" in checked:
            by_key = {tag_key(tag): clean_tag(tag) for tag in reversed(checked["stop_tags"])}
            checked["stop_tags"] = tuple(by_key.values())[::-1]
        if "aliases" in checked:
            checked["aliases"] = _resolved(checked["aliases"], source)
        for name in ("part_of", "isa", "tag_synsets"):
            if name in checked:
                checked[name] = os.fspath(checked[name])
        return cls(**checked)

    def columns(self) -> TableOptions:
        """Return how the tag file is written."""
        return {"image_column": self.image_column, "tags_column": self.tags_column, "separator": self.separator}

    @property
    def prunes(self) -> bool:
        """Return whether a tag or an image is left out."""
        return bool(self.stop_tags) or self.max_share is not None or self.per_user is not None


# A TOML file, its keys and values, or none
Rules: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | TagRules | None"


class Alias(NamedTuple):
    """A spelling, the tag that it means, and why it is thought to mean it."""

    alias: str
    tag: str
    reason: str = ""


def write_draft(path: str | os.PathLike[str], aliases: Iterable[Alias]) -> None:
    """Write a file of tag rules with these aliases, each with its reason; the other rules are comments."""
    lines = [_DRAFT, *(f"{_quoted(a.alias)} = {_quoted(a.tag)}  # {a.reason}" for a in aliases)]
    with whole_file(Path(path)) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")


_DRAFT = """\
# Rules for tags: visterm fit PHOTOS --tags FILE --tag-rules THIS_FILE -o RUN
# Delete lines that are wrong; remove the # before rules that you want.
# stop_tags = ["nikon", "untitled"]  # not learned
# max_share = 0.5                    # leave out tags of more than half of the photos
# per_user = 3                       # learn from at most 3 photos of one owner with the same tags
# part_of = "wordnet"                # which tags are parts of which: or a CSV of part,whole
# isa = "wordnet"                    # which tags are kinds of which: or a CSV of child,parent

[aliases]  # spelling = the tag that it means"""


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_path(value: Any) -> bool:
    return isinstance(value, os.PathLike) or _is_text(value)


def _is_tags(value: Any) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and all(isinstance(v, str) and clean_tag(v) for v in value)


# What refuses a value of each rule, and what the message says instead
_EXPECTED = {
    "stop_tags": (_is_tags, 'a list of tags, such as ["nikon", "untitled"]'),
    "max_share": (
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1,
        "a number above 0 and up to 1, such as 0.5",
    ),
    "per_user": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1,
        "a whole number of 1 or more",
    ),
    "part_of": (_is_path, f'a CSV of part,whole, the folder of WordNet, or "{WORDNET}"'),
    "isa": (_is_path, f'a CSV of child,parent, the folder of WordNet, or "{WORDNET}"'),
    "tag_synsets": (_is_path, "a CSV of tag,synset"),
    "image_column": (_is_text, "the name of a column"),
    "tags_column": (_is_text, "the name of a column"),
    "separator": (lambda value: isinstance(value, str), "a text such as ';', or a pattern such as '[;|]'"),
    "aliases": (
        lambda value: isinstance(value, Mapping) and _is_tags([*value, *value.values()]),
        'a table of spellings and tags, such as {"nyc" = "new york"}',
    ),
}


def _resolved(aliases: Mapping[str, str], source: str) -> dict[str, str]:
    """Return the tag that each alias means in the end: a tag that is no alias.

    Raises TagFileError if an alias means itself or two tags, or aliases go round in a circle.
    """
    meant: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for alias, tag in ((clean_tag(alias), clean_tag(tag)) for alias, tag in aliases.items()):
        key = tag_key(alias)
        if key == tag_key(tag):
            raise TagFileError(f"{source}: aliases: {alias!r} means itself. Leave it out.")
        if tag_key(meant.setdefault(key, tag)) != tag_key(tag):
            raise TagFileError(f"{source}: aliases: {alias!r} means {meant[key]!r} and {tag!r}. Leave one out.")
        spelled.setdefault(key, alias)
    try:
        order = list(TopologicalSorter({key: [tag_key(tag)] for key, tag in meant.items()}).static_order())
    except CycleError as error:
        circle = error.args[1][::-1]
        raise TagFileError(
            f"{source}: aliases mean each other: {ends_of(circle, ' → ')} ({len(circle) - 1:,} aliases). Leave one of "
            "them out."
        ) from None
    ends: dict[str, str] = {}
    for key in filter(meant.__contains__, order):
        ends[key] = ends.get(tag_key(meant[key]), meant[key])
    return {alias: ends[key] for key, alias in spelled.items()}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
