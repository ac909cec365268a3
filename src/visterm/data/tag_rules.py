"""Tag rules: what cleans and relates tags and how their file is written, in ``tags.toml``; and the cleaning itself."""

from __future__ import annotations

import json
import os
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

from visterm.core.errors import DataError, TagFileError
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.core.wording import count_of, ends_of
from visterm.core.writing import write_whole
from visterm.data.corpus import Corpus
from visterm.data.tag_formats.record import separator_pattern
from visterm.data.tag_formats.tables import USER_COLUMNS, TableOptions
from visterm.data.text_files import read_text

WORDNET = "wordnet"  # In place of a file of relations: WordNet, at one of its usual places
LEARNED = "train"  # The split that is learned from, and so may lose images; without splits, all rows are
_PATHS = ("part_of", "isa", "tag_synsets")

# A TOML file, its keys and values, or none
Rules: TypeAlias = "str | os.PathLike[str] | Mapping[str, object] | TagRules | None"

_DRAFT = """\
# Rules for tags: visterm fit PHOTOS --tags FILE --tag-rules THIS_FILE -o RUN
# Delete lines that are wrong; remove the # before rules that you want.
# stop_tags = ["nikon", "untitled"]  # not learned
# max_share = 0.5                    # leave out tags of more than half of the photos
# per_user = 3                       # learn from at most 3 photos of one owner with the same tags
# part_of = "wordnet"                # which tags are parts of which: or a CSV of part,whole
# isa = "wordnet"                    # which tags are kinds of which: or a CSV of child,parent

[aliases]  # spelling = the tag that it means"""


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
        result = cls._checked(values, str(path))
        beside: dict[str, Any] = {
            name: str(path.parent / value) for name in _PATHS if (value := getattr(result, name)) not in (None, WORDNET)
        }
        return replace(result, **beside)

    @classmethod
    def _checked(cls, values: dict[str, Any], source: str) -> Self:
        for name, value in values.items():
            if name not in _EXPECTED:
                similar = get_close_matches(name, _EXPECTED, 1)
                advice = f"Did you mean {similar[0]!r}?" if similar else f"Expected {', '.join(_EXPECTED)}."
                raise TagFileError(f"{source}: there is no rule {name!r}.", setting="tag_rules", advice=advice)
            is_valid, expected = _EXPECTED[name]
            if not is_valid(value):
                problem = f"{source}: {name} is {value!r:.60}."
                raise TagFileError(problem, setting="tag_rules", value=value, expected=expected)
        if "separator" in values:
            separator_pattern(values["separator"])  # refuses one that can't be used
        by_key = {tag_key(tag): clean_tag(tag) for tag in reversed(list(values.get("stop_tags", ())))}
        paths = {name: os.fspath(values[name]) for name in _PATHS if name in values}
        aliases = _resolved(values.get("aliases", {}), source)
        return cls(**{**values, **paths, "stop_tags": tuple(by_key.values())[::-1], "aliases": aliases})

    def columns(self) -> TableOptions:
        """Return how the tag file is written."""
        return {"image_column": self.image_column, "tags_column": self.tags_column, "separator": self.separator}

    @property
    def prunes(self) -> bool:
        """Return whether a tag or an image is left out."""
        return bool(self.stop_tags) or self.max_share is not None or self.per_user is not None


class Alias(NamedTuple):
    """A spelling, the tag that it means, and why it is thought to mean it."""

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


class Pruned(NamedTuple):
    """What is left of a corpus, and what was left out."""

    corpus: Corpus
    remarks: list[str]  # What was left out, and what could not be: a line each
    facts: dict[str, int]  # Counts of the same, to be kept with a run


def prune(corpus: Corpus, rules: TagRules, aliases: Mapping[str, str]) -> Pruned:
    """Leave out tags and repeated images of a corpus that a model would learn too much from.

    In this order: stop tags (one that is an alias alone, one that has aliases with them); images of one user above
    `per_user`, so that 500 photos that were uploaded and tagged as one do not outweigh the rest: they are taken evenly
    from all of them in the order of their names, and images whose user is not known are all kept; tags that are too
    frequent among the images left. The tags go from all images, so that they are in no vocabulary. Images go only from
    those that are learned from (of the split "train", or all, where there are no splits). `aliases` are spellings and
    the tags that they mean, which are counted together. Raises DataError if a cap for each user is asked for and no
    user is known, or if no tag is left.
    """
    meant = {tag_key(alias): tag_key(tag) for alias, tag in aliases.items()}
    remaining = corpus
    remarks: list[str] = []
    facts: dict[str, int] = {}
    if rules.stop_tags:
        remaining, remark, facts["stop tags"] = _without_stop_tags(remaining, rules.stop_tags, meant)
        remarks.append(remark)

    if rules.per_user is not None:
        remaining, remark, facts["images left out per user"] = _capped(remaining, rules.per_user, meant)
        remarks.append(remark)
    if rules.max_share is not None:
        remaining, remark, facts["too frequent tags"] = _without_frequent(remaining, rules.max_share, meant)
        remarks.append(remark)
    if remarks and not any(remaining.tags[i] for i in _learned(remaining)) and any(corpus.tags):
        raise DataError(f"No tag is left to learn. {' '.join(remarks)}")
    return Pruned(remaining, remarks, facts)


def _without_stop_tags(corpus: Corpus, stop_tags: Collection[str], meant: Mapping[str, str]) -> tuple[Corpus, str, int]:
    """Leave out stop tags; return what is left, a remark, and the number of tags."""
    listed = {tag_key(tag): tag for tag in stop_tags}
    learned = _learned(corpus)
    learned_keys = {tag_key(tag) for i in learned for tag in corpus.tags[i]}
    stopped = {key for key in learned_keys if key in listed or meant.get(key) in listed}
    # An alias of a listed tag stands for its line too: the tag itself need not be on an image.
    used = {key if key in listed else meant[key] for key in stopped}
    dropped = stopped | listed.keys() | {alias for alias, tag in meant.items() if tag in listed}
    remaining = _without(corpus, dropped)
    n_images = sum(len(remaining.tags[i]) < len(corpus.tags[i]) for i in learned)
    remark = (
        f"Stop tags: {count_of(len(used), 'tag')} of {count_of(n_images, 'image')} "
        f"{'is' if len(used) == 1 else 'are'} not learned"
    )
    unused = [tag for key, tag in listed.items() if key not in used]
    if unused:
        remark += f"; {count_of(len(unused), 'line')} (such as '{unused[0]}') of no tag of the images"
    return remaining, f"{remark}.", len(used)


def _capped(corpus: Corpus, per_user: int, meant: Mapping[str, str]) -> tuple[Corpus, str, int]:
    learned = _learned(corpus)
    alike: defaultdict[tuple[str, frozenset[str]], list[int]] = defaultdict(list)
    for i in learned:
        if (user := corpus.users[i]) is not None:
            alike[user, frozenset(_keys(corpus.tags[i], meant))].append(i)

    n_unknown = len(learned) - sum(map(len, alike.values()))
    if not alike:
        problem = "The tag rule per_user needs to know whose photos they are."
        expected = f"a column {', '.join(USER_COLUMNS[:-1])} or {USER_COLUMNS[-1]} of the tags, or no such rule"
        raise DataError(problem, setting="tag_rules", value=per_user, expected=expected)
    dropped: set[int] = set()
    over = {of: images for of, images in alike.items() if len(images) > per_user}

    for images in over.values():
        in_order = sorted(images, key=lambda i: corpus.names[i])
        # Evenly from the first to the last; a single one is the first.
        positions = [i * (len(images) - 1) // max(1, per_user - 1) for i in range(per_user)]
        dropped.update(set(images) - {in_order[i] for i in positions})
    remark = f"Per user: {len(dropped):,} of {count_of(len(learned), 'image')} left out"
    if over:
        (user, _), most = max(over.items(), key=lambda item: (len(item[1]), item[0][0]))
        n_users = len({user for user, _ in over})
        example = "; ".join(corpus.tags[most[0]]) or "no tag"
        remark += (
            f", as {count_of(n_users, 'user')} gave more than {count_of(per_user, 'image')} the same tags (such as "
            f"'{user}', {count_of(len(most), 'image')}: {example})"
        )
    if n_unknown:
        remark += f"; {count_of(n_unknown, 'image')} of no known user all kept"
    remaining = [i for i in range(len(corpus)) if i not in dropped]
    return corpus.subset(remaining), f"{remark}.", len(dropped)


def _without_frequent(corpus: Corpus, max_share: float, meant: Mapping[str, str]) -> tuple[Corpus, str, int]:
    learned = _learned(corpus)
    counts = Counter(key for i in learned for key in _keys(corpus.tags[i], meant))
    by_count = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    frequent = {key: count for key, count in by_count if count / len(learned) > max_share}
    remaining = _without(corpus, frequent.keys() | {alias for alias, tag in meant.items() if tag in frequent})
    examples = [f"'{key}' ({count:,})" for key, count in frequent.items()][:5]
    remark = (
        f"Too frequent: {count_of(len(frequent), 'tag')} on more than {max_share:.4g} of "
        f"{count_of(len(learned), 'image')} {'is' if len(frequent) == 1 else 'are'} not learned"
    )
    if examples:
        remark += f": {', '.join(examples)}{', ...' * (len(frequent) > len(examples))}"
    return remaining, f"{remark}.", len(frequent)


def _learned(corpus: Corpus) -> list[int]:
    if not any(corpus.splits):
        return list(range(len(corpus)))
    return [i for i, split in enumerate(corpus.splits) if split == LEARNED]


def _keys(tags: Collection[str], meant: Mapping[str, str]) -> set[str]:
    """Return the keys of tags, of aliases those of what they mean."""
    keys = map(tag_key, tags)
    return {meant.get(key, key) for key in keys}


def _without(corpus: Corpus, dropped: Collection[str]) -> Corpus:
    def kept(tags: list[str]) -> list[str]:
        return [tag for tag in tags if tag_key(tag) not in dropped]

    return replace(corpus, tags=list(map(kept, corpus.tags)), negatives=list(map(kept, corpus.negatives)))
