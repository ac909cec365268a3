"""Pruning a dictionary that people made: stop tags, tags that are on too many images, and one person's bulk uploads."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from visterm.core.errors import DataError
from visterm.core.vocabulary import tag_key
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.data.tag_formats.tables import USER_COLUMNS

LEARNED = "train"  # The split that is learned from, and so may lose images; without splits, all rows are
_N_SHOWN = 5


class Pruned(NamedTuple):
    """What is left of a corpus, and what was left out."""

    corpus: Corpus
    remarks: list[str]  # What was left out, and what could not be: a line each
    facts: dict[str, int]  # Counts of the same, to be kept with a run


def prune(
    corpus: Corpus,
    *,
    stop_tags: Collection[str] = (),
    max_share: float | None = None,
    per_user: int | None = None,
    aliases: Mapping[str, str] | None = None,
) -> Pruned:
    """Leave out tags and repeated images of a corpus that a model would learn too much from.

    In this order: stop tags; images of one user above `per_user`; tags that are too frequent among the images left. The
    tags go from all images, so that they are in no vocabulary. Images go only from those that are learned from (of the
    split "train", or all, where there are no splits): those of other splits are all kept. No language is preferred.
    Raises UserError if a number cannot be used; DataError if a cap for each user is asked for and no user is known, or
    if no tag is left.

    Parameters
    ----------
    corpus : Corpus
    stop_tags : collection of str
        Not learned, in any case. One that is an alias is left out alone, one that has aliases with them.
    max_share : float, optional
        Tags of more than this share of the images that are learned from are left out.
    per_user : int, optional
        Of the images of one user (`Corpus.users`) with the same tags, learn from at most this many, so that 500
        photos that were uploaded and tagged as one do not outweigh the rest. They are taken evenly from all of them in
        the order of their names. Images whose user is not known are all kept.
    aliases : mapping of str to str, optional
        Spellings and the tags that they mean (`visterm.data.tag_rules`): tags that mean the same are counted
        together.
    """
    meant = {tag_key(alias): tag_key(tag) for alias, tag in (aliases or {}).items()}
    left = corpus
    remarks: list[str] = []
    facts: dict[str, int] = {}
    if stop_tags:
        left, remark, facts["stop tags"] = _without_stop_tags(left, stop_tags, meant)
        remarks.append(remark)
    if per_user is not None:
        left, remark, facts["images left out per user"] = _capped(left, per_user, meant)
        remarks.append(remark)
    if max_share is not None:
        left, remark, facts["too frequent tags"] = _without_frequent(left, max_share, meant)
        remarks.append(remark)
    if remarks and not any(left.tags[i] for i in _learned(left)) and any(corpus.tags):
        raise DataError(f"No tag is left to learn. {' '.join(remarks)}")
    return Pruned(left, remarks, facts)


def _without_stop_tags(corpus: Corpus, stop_tags: Collection[str], meant: Mapping[str, str]) -> tuple[Corpus, str, int]:
    """Leave out stop tags; return what is left, a remark, and the number of tags."""
    listed = {tag_key(tag): tag for tag in stop_tags}
    learned = _learned(corpus)
    there = {tag_key(tag) for i in learned for tag in corpus.tags[i]}
    stopped = {key for key in there if key in listed or meant.get(key) in listed}
    # An alias of a listed tag stands for its line too: the tag itself need not be on an image.
    used = {key if key in listed else meant[key] for key in stopped}
    dropped = stopped | listed.keys() | {alias for alias, tag in meant.items() if tag in listed}
    left = _without(corpus, dropped)
    n_images = sum(len(left.tags[i]) < len(corpus.tags[i]) for i in learned)
    remark = (
        f"Stop tags: {count_of(len(used), 'tag')} of {count_of(n_images, 'image')} "
        f"{'is' if len(used) == 1 else 'are'} not learned"
    )
    unused = [tag for key, tag in listed.items() if key not in used]
    if unused:
        remark += f"; {count_of(len(unused), 'line')} (such as '{unused[0]}') of no tag of the images"
    return left, f"{remark}.", len(used)


def _capped(corpus: Corpus, per_user: int, meant: Mapping[str, str]) -> tuple[Corpus, str, int]:
    """Leave out images above the cap for each user; return what is left, a remark, and the number of images."""
    learned = _learned(corpus)
    alike: defaultdict[tuple[str, frozenset[str]], list[int]] = defaultdict(list)
    for i in learned:
        user = corpus.users[i]
        if user is not None:
            alike[user, frozenset(_keys(corpus.tags[i], meant))].append(i)
    n_unknown = len(learned) - sum(map(len, alike.values()))
    if not alike:
        raise DataError(
            "The tag rule per_user needs to know whose photos they are: the tags have no column "
            f"{', '.join(USER_COLUMNS[:-1])} or {USER_COLUMNS[-1]}. Call it so, or leave the rule out."
        )
    dropped: set[int] = set()
    over = {of: found for of, found in alike.items() if len(found) > per_user}
    for found in over.values():
        in_order = sorted(found, key=lambda i: corpus.names[i])
        # Evenly from the first to the last; a single one is the first.
        places = [i * (len(found) - 1) // max(1, per_user - 1) for i in range(per_user)]
        dropped.update(set(found) - {in_order[place] for place in places})
    remark = f"Per user: {len(dropped):,} of {count_of(len(learned), 'image')} left out"
    if over:
        (user, _), most = max(over.items(), key=lambda item: (len(item[1]), item[0][0]))
        n_users = len({user for user, _ in over})
        shown = "; ".join(corpus.tags[most[0]]) or "no tag"
        remark += (
            f", as {count_of(n_users, 'user')} gave more than {count_of(per_user, 'image')} the same tags (such as "
            f"'{user}', {count_of(len(most), 'image')}: {shown})"
        )
    if n_unknown:
        remark += f"; {count_of(n_unknown, 'image')} of no known user all kept"
    kept = [i for i in range(len(corpus)) if i not in dropped]
    return corpus.subset(kept), f"{remark}.", len(dropped)


def _without_frequent(corpus: Corpus, max_share: float, meant: Mapping[str, str]) -> tuple[Corpus, str, int]:
    """Leave out tags that are on too many images; return what is left, a remark, and the number of tags."""
    learned = _learned(corpus)
    counts = Counter(key for i in learned for key in _keys(corpus.tags[i], meant))
    by_count = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    frequent = {key: count for key, count in by_count if count / len(learned) > max_share}
    left = _without(corpus, frequent.keys() | {alias for alias, tag in meant.items() if tag in frequent})
    shown = [f"'{key}' ({count:,})" for key, count in frequent.items()][:_N_SHOWN]
    remark = (
        f"Too frequent: {count_of(len(frequent), 'tag')} on more than {max_share:.4g} of "
        f"{count_of(len(learned), 'image')} {'is' if len(frequent) == 1 else 'are'} not learned"
    )
    if shown:
        remark += f": {', '.join(shown)}{', ...' * (len(frequent) > len(shown))}"
    return left, f"{remark}.", len(frequent)


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
