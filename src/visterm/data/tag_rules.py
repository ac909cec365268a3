"""Tag rules from ``tags.toml``: how to clean and relate tags and how to read their file; and the cleaning itself."""

from __future__ import annotations

import json
import os
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

from visterm.core.errors import DataError, TagFileError
from visterm.core.registry import unknown
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.core.wording import count_of, join_ends
from visterm.core.writing import write_whole
from visterm.data.corpus import Corpus
from visterm.data.tag_formats.record import separator_pattern
from visterm.data.tag_formats.tables import USER_COLUMNS, TableOptions
from visterm.data.text_files import read_text

TRAINING_SPLIT = "train"  # The split to learn from, of which images may be removed; without splits, all images
_PATHS = ("part_of", "isa")

# A TOML file, a mapping with its keys and values, or None
Rules: TypeAlias = "str | os.PathLike[str] | Mapping[str, object] | TagRules | None"

_DRAFT = """\
# Rules for tags: visterm fit PHOTOS --tags FILE --tag-rules THIS_FILE -o RUN
# Delete lines that are wrong; remove the # before rules that you want.
# stop_tags = ["nikon", "untitled"]  # not learned
# max_share = 0.5                    # leave out tags of more than half of the photos
# per_user = 3                       # learn from at most 3 photos of one owner with the same tags
# part_of = "part_of.csv"            # which tags are parts of which: a CSV of part,whole
# isa = "isa.csv"                    # which tags are kinds of which: a CSV of child,parent

[aliases]  # spelling = the tag that it means"""


@dataclass(frozen=True, kw_only=True)
class TagRules:
    """How to clean and relate the tags of a library before learning, and how to read their file.

    Examples
    --------
    >>> TagRules.of({"max_share": 0.5, "aliases": {"nyc": "new york"}}).stop_tags
    ()
    """

    stop_tags: tuple[str, ...] = ()  # Tags that are not learned, together with their aliases
    max_share: float | None = None  # Leave out tags of more than this share of the training images
    # Learn from at most this many images of one owner with the same tags: bulk uploads. The owner is read from
    # the column ``user``, ``owner`` or ``photographer``.
    per_user: int | None = None
    part_of: str | None = None  # Part-of relations: a CSV of part,whole
    isa: str | None = None  # Is-a relations: a CSV of child,parent
    image_column: str | None = None  # Column of images in the tag file; None: the usual names
    tags_column: str | None = None  # Column of tags in the tag file; None: the usual names
    # Separator of tags in a cell: a text, several characters such as ``;,``, or a pattern. None: a semicolon or comma.
    separator: str | None = None
    # Alias -> tag: images with the alias get the tag, and searches for either find the tag
    aliases: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, rules: Rules) -> TagRules:
        """Return the rules from a file or a mapping with the same keys; default rules for None.

        Paths in a file are relative to its folder. Raises TagFileError, which names the key and the value, if the file
        cannot be read, a key is unknown, or a value is invalid.
        """
        if isinstance(rules, TagRules):
            return rules
        if rules is None:
            return cls()
        if isinstance(rules, Mapping):
            return cls._from_values(dict(rules), "tag_rules")
        path = Path(rules)

        try:
            values = tomllib.loads(read_text(path, "file of tag rules"))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise TagFileError(f'{path} is not TOML: {error}. Put texts in quotes: stop_tags = ["nikon"].') from error

        result = cls._from_values(values, str(path))
        paths: dict[str, Any] = {
            name: str(path.parent / value) for name in _PATHS if (value := getattr(result, name)) is not None
        }
        return replace(result, **paths)

    @classmethod
    def _from_values(cls, values: dict[str, Any], source: str) -> Self:
        for name, value in values.items():
            if name not in _EXPECTED:
                raise TagFileError(f"{source}: {unknown('rule', name, [*_EXPECTED])}", setting="tag_rules")
            is_valid, expected = _EXPECTED[name]
            if not is_valid(value):
                problem = f"{source}: {name} is {value!r:.60}."
                raise TagFileError(problem, setting="tag_rules", value=value, expected=expected)
        if "separator" in values:
            separator_pattern(values["separator"])  # raises UserError if the separator is invalid
        by_key = {tag_key(tag): clean_tag(tag) for tag in reversed(list(values.get("stop_tags", ())))}
        paths = {name: os.fspath(values[name]) for name in _PATHS if name in values}
        aliases = _resolve_aliases(values.get("aliases", {}), source)
        return cls(**{**values, **paths, "stop_tags": tuple(by_key.values())[::-1], "aliases": aliases})

    def columns(self) -> TableOptions:
        """Return the options for reading the tag file."""
        return {"image_column": self.image_column, "tags_column": self.tags_column, "separator": self.separator}

    @property
    def prunes(self) -> bool:
        """Return whether the rules may remove tags or images."""
        return bool(self.stop_tags) or self.max_share is not None or self.per_user is not None


class Alias(NamedTuple):
    """A suggested alias: a spelling, the tag that it means, and the reason for the suggestion."""

    alias: str
    tag: str
    reason: str = ""


def write_draft(path: str | os.PathLike[str], aliases: Iterable[Alias]) -> None:
    """Write a file of tag rules with these aliases, each with its reason; the other rules are comments."""
    lines = [_DRAFT, *(f"{_quoted(a.alias)} = {_quoted(a.tag)}  # {a.reason}" for a in aliases)]
    write_whole(Path(path), ("\n".join(lines) + "\n").encode())


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_path(value: object) -> bool:
    return isinstance(value, os.PathLike) or _is_text(value)


def _is_tags(value: object) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and all(isinstance(v, str) and clean_tag(v) for v in value)


# Rule -> check of its value, and the expected value for the message
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
    "part_of": (_is_path, "a CSV of part,whole"),
    "isa": (_is_path, "a CSV of child,parent"),
    "image_column": (_is_text, "the name of a column"),
    "tags_column": (_is_text, "the name of a column"),
    "separator": (lambda value: isinstance(value, str), "a text such as ';', or a pattern such as '[;|]'"),
    "aliases": (
        lambda value: isinstance(value, Mapping) and _is_tags([*value, *value.values()]),
        'a table of spellings and tags, such as {"nyc" = "new york"}',
    ),
}


def _resolve_aliases(aliases: Mapping[str, str], source: str) -> dict[str, str]:
    """Follow chains of aliases: return the tag of each alias that is not itself an alias.

    Raises TagFileError if an alias means itself or two tags, or aliases form a cycle.
    """
    tag_of: dict[str, str] = {}
    spellings: dict[str, str] = {}
    for alias, tag in ((clean_tag(alias), clean_tag(tag)) for alias, tag in aliases.items()):
        key = tag_key(alias)
        if key == tag_key(tag):
            raise TagFileError(f"{source}: aliases: {alias!r} means itself. Leave it out.")
        if tag_key(tag_of.setdefault(key, tag)) != tag_key(tag):
            raise TagFileError(f"{source}: aliases: {alias!r} means {tag_of[key]!r} and {tag!r}. Leave one out.")
        spellings.setdefault(key, alias)

    try:
        order = list(TopologicalSorter({key: [tag_key(tag)] for key, tag in tag_of.items()}).static_order())
    except CycleError as error:
        cycle = error.args[1][::-1]
        raise TagFileError(
            f"{source}: aliases mean each other: {join_ends(cycle, ' → ')} ({len(cycle) - 1:,} aliases). Leave one of "
            "them out."
        ) from None

    final_tags: dict[str, str] = {}
    for key in filter(tag_of.__contains__, order):
        final_tags[key] = final_tags.get(tag_key(tag_of[key]), tag_of[key])
    return {alias: final_tags[key] for key, alias in spellings.items()}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


class Pruned(NamedTuple):
    """The result of `prune`: the remaining corpus, and what was left out."""

    corpus: Corpus
    remarks: list[str]  # Lines that say what was left out, and which rules had no effect
    facts: dict[str, int]  # Counts of what was left out, which are stored with a run


def prune(corpus: Corpus, rules: TagRules, aliases: Mapping[str, str]) -> Pruned:
    """Leave out tags and repeated images that would dominate a model.

    First, stop tags with their aliases (an alias that is a stop tag is left out alone). Then, if more than `per_user`
    images of a user have the same tags, all but `per_user` of them, evenly spaced in the order of names: 500 photos
    that were uploaded and tagged together do not outweigh the rest. Images of unknown users are kept. Last, tags that
    are too frequent in the remaining images. Tags are left out of all images, and so of the vocabulary; images only if
    the model would learn from them (the split "train", or all without splits). `aliases` maps spellings to tags, which
    are counted together. Raises DataError if `per_user` is set and no user is known, or if no tag is left.
    """
    tag_of_alias = {tag_key(alias): tag_key(tag) for alias, tag in aliases.items()}
    remaining = corpus
    remarks: list[str] = []
    facts: dict[str, int] = {}
    steps: tuple[tuple[str, Any, Callable[[Corpus, Any, Mapping[str, str]], tuple[Corpus, str, int]]], ...] = (
        ("stop tags", rules.stop_tags or None, _drop_stop_tags),
        ("images left out per user", rules.per_user, _drop_repeats),
        ("too frequent tags", rules.max_share, _drop_frequent),
    )

    for name, value, drop in steps:
        if value is not None:
            remaining, remark, facts[name] = drop(remaining, value, tag_of_alias)
            remarks.append(remark)
    if remarks and not any(remaining.tags[i] for i in _training_indices(remaining)) and any(corpus.tags):
        raise DataError(f"No tag is left to learn. {' '.join(remarks)}")
    return Pruned(remaining, remarks, facts)


def _drop_stop_tags(corpus: Corpus, stop_tags: Collection[str], tag_of: Mapping[str, str]) -> tuple[Corpus, str, int]:
    """Leave out stop tags; return the corpus, a remark, and the number of tags."""
    by_key = {tag_key(tag): tag for tag in stop_tags}
    training_images = _training_indices(corpus)
    learned_keys = {tag_key(tag) for i in training_images for tag in corpus.tags[i]}
    matching_keys = {key for key in learned_keys if key in by_key or tag_of.get(key) in by_key}
    # A rule also has an effect if only an alias of its tag is on an image
    used_keys = {key if key in by_key else tag_of[key] for key in matching_keys}
    dropped_keys = matching_keys | by_key.keys() | {alias for alias, tag in tag_of.items() if tag in by_key}
    remaining = _drop_tags(corpus, dropped_keys)
    n_images = sum(len(remaining.tags[i]) < len(corpus.tags[i]) for i in training_images)
    remark = (
        f"Stop tags: {count_of(len(used_keys), 'tag')} of {count_of(n_images, 'image')} "
        f"{'is' if len(used_keys) == 1 else 'are'} not learned"
    )
    unused_tags = [tag for key, tag in by_key.items() if key not in used_keys]
    if unused_tags:
        remark += f"; {count_of(len(unused_tags), 'line')} (such as '{unused_tags[0]}') match no tag of the images"
    return remaining, f"{remark}.", len(used_keys)


def _drop_repeats(corpus: Corpus, per_user: int, tag_of: Mapping[str, str]) -> tuple[Corpus, str, int]:
    training_images = _training_indices(corpus)
    same_tags: defaultdict[tuple[str, frozenset[str]], list[int]] = defaultdict(list)
    for i in training_images:
        if (user := corpus.users[i]) is not None:
            same_tags[user, frozenset(_keys(corpus.tags[i], tag_of))].append(i)

    n_unknown = len(training_images) - sum(map(len, same_tags.values()))
    if not same_tags:
        problem = "The tag rule per_user needs to know whose photos they are."
        expected = f"a column {', '.join(USER_COLUMNS[:-1])} or {USER_COLUMNS[-1]} of the tags, or no such rule"
        raise DataError(problem, setting="tag_rules", value=per_user, expected=expected)
    dropped_images: set[int] = set()
    large_groups = {group: images for group, images in same_tags.items() if len(images) > per_user}
    for images in large_groups.values():
        sorted_images = sorted(images, key=lambda i: corpus.names[i])
        # Evenly from the first image to the last; for `per_user` 1, the first
        positions = [i * (len(images) - 1) // max(1, per_user - 1) for i in range(per_user)]
        dropped_images.update(set(images) - {sorted_images[i] for i in positions})

    remark = f"Per user: {len(dropped_images):,} of {count_of(len(training_images), 'image')} left out"
    if large_groups:
        (user, _), largest_group = max(large_groups.items(), key=lambda item: (len(item[1]), item[0][0]))
        remark += f", such as of '{user}', who gave {count_of(len(largest_group), 'image')} the same tags"
    if n_unknown:
        remark += f"; {count_of(n_unknown, 'image')} of unknown users all kept"
    remaining = [i for i in range(len(corpus)) if i not in dropped_images]
    return corpus.subset(remaining), f"{remark}.", len(dropped_images)


def _drop_frequent(corpus: Corpus, max_share: float, tag_of: Mapping[str, str]) -> tuple[Corpus, str, int]:
    training_images = _training_indices(corpus)
    counts = Counter(key for i in training_images for key in _keys(corpus.tags[i], tag_of))
    sorted_counts = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    frequent_tags = {key: count for key, count in sorted_counts if count / len(training_images) > max_share}
    keys = frequent_tags.keys() | {alias for alias, tag in tag_of.items() if tag in frequent_tags}
    remaining = _drop_tags(corpus, keys)
    examples = [f"'{key}' ({count:,})" for key, count in frequent_tags.items()][:5]
    remark = (
        f"Too frequent: {count_of(len(frequent_tags), 'tag')} on more than {max_share:.4g} of "
        f"{count_of(len(training_images), 'image')} {'is' if len(frequent_tags) == 1 else 'are'} not learned"
    )
    if examples:
        remark += f": {', '.join(examples)}{', ...' * (len(frequent_tags) > len(examples))}"
    return remaining, f"{remark}.", len(frequent_tags)


def _training_indices(corpus: Corpus) -> list[int]:
    if not any(corpus.splits):
        return list(range(len(corpus)))
    return [i for i, split in enumerate(corpus.splits) if split == TRAINING_SPLIT]


def _keys(tags: Collection[str], tag_of: Mapping[str, str]) -> set[str]:
    """Return the keys of tags, with aliases replaced by their tags."""
    return {tag_of.get(key, key) for key in map(tag_key, tags)}


def _drop_tags(corpus: Corpus, keys: Collection[str]) -> Corpus:
    def drop(tags: list[str]) -> list[str]:
        return [tag for tag in tags if tag_key(tag) not in keys]

    return replace(corpus, tags=list(map(drop, corpus.tags)), negatives=list(map(drop, corpus.negatives)))
