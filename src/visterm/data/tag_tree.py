"""The tree of a library's tags: which tag lies under which, from paths such as ``animals/dog/husky`` or from a table.

A tag may lie under several others, as long as no way leads in a circle. A photo of a tag has all tags above it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary, clean_tag, tag_key
from visterm.core.wording import count_of, ends_of
from visterm.data.relations import PairFormat, read_pairs

T = TypeVar("T", bound=Any)
TREE = "tree.csv"  # The file in the folder of a run
PATHS = "paths"  # In place of a table: tags are paths
TREE_FILE = PairFormat("tree", ("child", "parent"), "husky,dog", "under")
MOST_LEVELS = 100  # People's trees have ten; what is written of each tag grows with them
SLASH, WRITTEN_SLASH = "/", "|"  # What parts a path, and what stands for it in a name: ``music/AC|DC``


class TagTree:
    """Tags under tags; spellings fold as they do wherever tags are looked for, and so do aliases.

    Parameters
    ----------
    pairs : iterable of (str, str)
        Child and parent.
    aliases : mapping of str to str, optional
        Other spellings and the tags that they mean.
    grows : bool
        Whether a new tag that is a path in the tree lies where that says: ``animals/dog/pug`` under dog.

    Attributes
    ----------
    pairs : list of (str, str)
        Child and parent, each pair once; of several parents of a tag, paths lead over the first.

    Raises
    ------
    DataError
        If tags lie under each other in a circle, or in more than `MOST_LEVELS`.
    """

    def __init__(
        self, pairs: Iterable[tuple[str, str]] = (), aliases: Mapping[str, str] | None = None, *, grows: bool = False
    ) -> None:
        self._grows = grows
        self._last: tuple[tuple[str, ...], TagTree] | None = None  # What `with_paths` returned, and of which tags
        self._meant = meant = {tag_key(alias): clean_tag(tag) for alias, tag in (aliases or {}).items()}
        canonical = [tuple(meant.get(tag_key(tag), clean_tag(tag)) for tag in pair) for pair in pairs]
        once = {(tag_key(child), tag_key(parent)): (child, parent) for child, parent in reversed(canonical)}
        self.pairs: list[tuple[str, str]] = list(reversed(once.values()))
        self._shown: dict[str, str] = {}
        self._paths_of: dict[str, list[str]] = {}
        self._parents: defaultdict[str, list[str]] = defaultdict(list)
        for child, parent in self.pairs:
            self._parents[self._key(child)].append(self._key(parent))
        self._levels = self._find_levels()

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def _key(self, tag: str) -> str:
        key = tag_key(tag)
        if key in self._meant:
            key = tag_key(self._meant[key])
        self._shown.setdefault(key, tag)
        return key

    def _find_levels(self) -> dict[str, int]:
        """Return the level of each tag of the tree, 1 of the topmost; refuse circles and too many levels."""
        levels: dict[str, int] = {}
        try:
            for key in TopologicalSorter(self._parents).static_order():
                levels[key] = 1 + max((levels[over] for over in self._parents.get(key, ())), default=0)
        except CycleError as error:
            circle = [self._shown[key] for key in reversed(error.args[1])]
            raise DataError(
                f"Tags lie under each other in a circle of {len(circle) - 1:,}: {ends_of(circle, ' < ')}. "
                "Take out one of these lines of the tree."
            ) from None

        path = [max(levels, key=levels.__getitem__)] if levels else []
        if path and levels[path[0]] > MOST_LEVELS:
            while over := self._parents.get(path[-1]):
                path.append(max(over, key=levels.__getitem__))
            raise _too_many_levels([self._shown[key] for key in path])
        return levels

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        children: defaultdict[str, list[str]] = defaultdict(list)
        for child, parents in self._parents.items():
            for parent in parents:
                children[parent].append(child)
        return dict(children)

    def parents(self, tag: str) -> list[str]:
        """Return the tags right above a tag, in the order of the pairs."""
        return [self._shown[key] for key in self._over(self._key(tag))]

    def children(self, tag: str) -> list[str]:
        """Return the tags right under a tag, in the order of the pairs."""
        return [self._shown[key] for key in self._children.get(self._key(tag), ())]

    def above(self, tag: str) -> list[str]:
        """Return all tags above a tag, the nearest first."""
        return self._reached(tag, self._over)

    def below(self, tag: str) -> list[str]:
        """Return all tags under a tag, the nearest first."""
        return self._reached(tag, lambda key: self._children.get(key, ()))

    def _is_new(self, key: str) -> bool:
        return key not in self._parents and key not in self._children

    def _over(self, key: str) -> Sequence[str]:
        if self._grows and 0 < key.count(SLASH) < MOST_LEVELS and self._is_new(key):
            over = self._key(self._shown[key].rpartition(SLASH)[0])
            return [over] if 0 < self._level(over) < MOST_LEVELS else ()
        return self._parents.get(key, ())

    def _level(self, key: str) -> int:
        """Return the level of a tag of the tree, or of a new one that is a path in it; 0 of any other."""
        if key not in self._levels:
            over = self._over(key)
            self._levels[key] = 1 + self._level(over[0]) if over else 0
        return self._levels[key]

    def _reached(self, tag: str, steps: Callable[[str], Sequence[str]]) -> list[str]:
        reached = {self._key(tag): None}
        for key in (waiting := list(reached)):
            new = [other for other in dict.fromkeys(steps(key)) if other not in reached]
            reached.update(dict.fromkeys(new))
            waiting += new
        return [self._shown[key] for key in waiting[1:]]

    def path(self, tag: str) -> list[str]:
        """Return a tag after the tags above it, the topmost first; of several parents by the first."""
        path = [self._key(tag)]
        while parents := self._over(path[-1]):
            path.append(parents[0])
        return [self._shown[key] for key in reversed(path)]

    def grown(self, tags: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return what new tags that are paths in the tree are called, and the tag above each; those above them first.

        ``animals/dog/pug`` is called pug, under dog; if the tree has another pug, ``dog/pug``. Tags on the way there
        that are new, too, are among them.
        """
        new = dict.fromkeys(each for tag in tags if SLASH in tag for each in self.with_parents([tag]))
        named: dict[str, tuple[str, str]] = {}
        names_in_use = self._parents.keys() | self._children.keys() | self._meant.keys()
        for tag in (each for each in new if self._is_new(self._key(each)) and self._over(self._key(each))):
            above, last = self.parents(tag)[0], tag.rpartition(SLASH)[2].replace(WRITTEN_SLASH, SLASH)
            parent = named[above][0] if above in named else above
            name = last if tag_key(last) not in names_in_use else SLASH.join((parent, last))
            named[tag] = (name if tag_key(name) not in names_in_use else tag), parent
            names_in_use |= {tag_key(name)}
        return named

    def with_paths(self, tags: Iterable[str]) -> TagTree:
        """Return the tree with new tags that are paths in it, under what these say; itself if there is none."""
        tags = tuple(tags)
        if self._last is None or self._last[0] != tags:  # a catalogue asks of the same ones again and again
            tree = self
            if grown := self.grown(tags):
                tree = TagTree([*self.pairs, *((tag, self.parents(tag)[0]) for tag in grown)], self._meant, grows=True)
                for tag, (name, _) in grown.items():
                    tree._paths_of.setdefault(tag_key(name), []).append(tag)
            self._last = tags, tree
        return self._last[1]

    def paths_of(self, name: str) -> list[str]:
        """Return the new tags (`with_paths`) that are called so, as they are written."""
        return self._paths_of.get(tag_key(name), [])

    def paths(self) -> dict[str, str]:
        """Return the paths of all tags that lie under others, as texts, and what each is called."""
        paths = (self.path(child) for child, _ in self.pairs)
        return {path_text(own_names(path)): path[-1] for path in paths}

    def with_parents(self, tags: Iterable[str]) -> list[str]:
        """Return tags, and before each the tags above it; none twice."""
        return self._with(tags, self.above)

    def with_children(self, tags: Iterable[str]) -> list[str]:
        """Return tags, and before each the tags under it; none twice."""
        return self._with(tags, self.below)

    def follows(self, positive_tags: Iterable[str], denied: Iterable[str]) -> set[str]:
        """Return the keys of the tags that an image has for sure, by those that were given, and surely has not."""
        return {tag_key(tag) for tag in (*self.with_parents(positive_tags), *self.with_children(denied))}

    def completed(
        self, tags: Iterable[Iterable[str]], negatives: Iterable[Iterable[str]]
    ) -> tuple[list[list[str]], list[list[str]]]:
        """Return the tags of images with those above them, and what images explicitly have not with all under it."""
        return [self.with_parents(given) for given in tags], [self.with_children(denied) for denied in negatives]

    def _with(self, tags: Iterable[str], others: Callable[[str], list[str]]) -> list[str]:
        return list({tag_key(each): each for tag in tags for each in (*reversed(others(tag)), tag)}.values())


class TreeColumns:
    """A tree in the columns of a vocabulary; words in between that are no tags of it are passed over.

    Attributes
    ----------
    words : TagTree
    above : csr_array of float32, shape (n_tags, n_nodes)
        1 where the node of the column is the tag of the row, or lies above it; nodes are the tags, then what lies above
        a tag and is none.
    below : csr_array of float32, shape (n_tags, n_tags)
        1 where the tag of the column is that of the row, or lies under it.
    """

    def __init__(self, words: TagTree, vocabulary: Vocabulary) -> None:
        n_tags = len(vocabulary)
        pairs, others = [(tag, tag) for tag in range(n_tags)], dict[str, int]()
        for column, tag in enumerate(vocabulary.tags):
            for each in words.above(tag) if words.parents(tag) else ():
                known = vocabulary.get(each)
                pairs.append((column, others.setdefault(each, n_tags + len(others)) if known is None else known))
        rows, columns = np.array(pairs, np.int64).reshape(-1, 2).T
        self.words = words
        ones, shape = np.ones(len(pairs), np.float32), (n_tags, n_tags + len(others))
        self.above = as_csr(sp.csr_array((ones, (rows, columns)), shape=shape))
        self.below = as_csr(sp.csr_array(self.above[:, :n_tags].T))
        self._parents = np.flatnonzero(np.diff(self.below.indptr) > 1)
        self._under = self.below[self._parents]

    @property
    def pairs(self) -> NDArray[np.int64]:
        """Each tag with each one above it, by columns, shape (n_pairs, 2)."""
        above, under = self.below.tocoo().coords
        pairs: NDArray[np.int64] = np.stack([under, above], axis=1)[under != above].astype(np.int64)
        return pairs

    def has_under(self, tags: NDArray[np.integer]) -> bool:
        """Return whether any of some tags, by column, has others under it."""
        return bool(np.isin(tags, self._parents).any())

    def raised(self, values: NDArray[T]) -> NDArray[T]:
        """Return values of all tags, shape (..., n_tags), none below the largest of the tags under it."""
        if not len(self._parents):
            return values
        raised: NDArray[T] = values.copy()
        under = self._under
        raised[..., self._parents] = np.maximum.reduceat(values[..., under.indices], under.indptr[:-1], axis=-1)
        return raised

    def write_steps(self, steps: Any, values: str) -> str:
        """Add the steps of `raised` to an ONNX graph; `values` and the result are tensors, (n_images, n_tags)."""
        n_tags, n_parents = len(self.below.indptr) - 1, len(self._parents)
        if not n_parents:
            return values
        lists = np.split(self._under.indices, self._under.indptr[1:-1])
        width = max(map(len, lists))
        under = np.stack([np.pad(tags, (0, width - len(tags)), mode="edge") for tags in lists]).astype(np.int64)
        best = steps.add("MaxPool", steps.columns(values, under), kernel_shape=[width])
        best = steps.add("Reshape", best, np.array([-1, n_parents]))
        chosen = np.arange(n_tags)
        chosen[self._parents] = n_tags + np.arange(n_parents)
        return str(steps.columns(steps.add("Concat", values, best, axis=1), chosen))

    def completed(self, Y: sp.csr_array) -> sp.csr_array:
        """Return tags of images, shape (n_images, n_tags) and above 0, with all tags above them.

        Where a tag is below 0, explicitly not there, so are the tags under it, unless they were given.
        """
        positive = as_csr((Y > 0).astype(np.float32) @ self.above[:, : Y.shape[1]]) > 0
        denied = as_csr((Y < 0).astype(np.float32) @ self.below) > 0
        signs = positive.astype(np.float32) - denied.astype(np.float32) + denied.multiply(positive).astype(np.float32)
        return as_csr(signs)


def tree_of_paths(tag_lists: Sequence[Iterable[str]]) -> tuple[TagTree, dict[str, str]]:
    """Return the tree of tags that are paths, and what each path is called in it.

    A tag is called by the last part of its path: ``animals/dog/husky`` is ``husky``, under ``dog``, under ``animals``.
    If several paths end in the same word, each is called by as much of its end as tells them apart: ``birds/crane``
    and ``machines/crane``. A tag without a ``/`` is the one that ends so, if there is just one. In a name, ``|`` stands
    for a ``/``, as digiKam writes ``AC|DC``.
    """
    written = dict.fromkeys(tag for tags in tag_lists for tag in map(clean_tag, tags) if SLASH in tag)
    paths = {tag: tuple(part.replace(WRITTEN_SLASH, SLASH) for part in parts_of(tag)) for tag in written}
    tree, names = tree_of_places(paths.values())
    by_text = {path_text(path): name for path, name in names.items() if len(path) > 1}
    return tree, by_text | {tag: names[path] for tag, path in paths.items() if path}


def tree_of_places(paths: Iterable[tuple[str, ...]]) -> tuple[TagTree, dict[tuple[str, ...], str]]:
    """Return the tree of tags that are each said with those above it, the topmost first, and what they are called.

    Names are those of `tree_of_paths`, and there is one of each place, and of those above it, as they are spelled.
    """
    nodes: dict[tuple[str, ...], tuple[str, ...]] = {}  # By their keys, the spelling that came first
    spelled: dict[tuple[str, ...], tuple[str, ...]] = {}
    for path in paths:
        if len(path) > MOST_LEVELS:
            raise _too_many_levels(path[::-1])
        keys: tuple[str, ...] = ()
        for n in range(1, len(path) + 1):
            keys = spelled[path[:n]] = spelled.get(path[:n]) or (*keys, tag_key(path[n - 1]))
            nodes.setdefault(keys, path[:n])
    ends: defaultdict[tuple[str, ...], int] = defaultdict(int)

    for node in nodes:
        for n in range(1, len(node) + 1):
            ends[node[-n:]] += 1
    names = {}
    for node, parts in nodes.items():
        n = next((n for n in range(1, len(node) + 1) if ends[node[-n:]] == 1), len(node))
        names[node] = SLASH.join(parts[-n:])
    tree = TagTree((names[node], names[node[:-1]]) for node in nodes if len(node) > 1)
    return tree, {path: names[keys] for path, keys in spelled.items()}


def path_text(path: Iterable[str]) -> str:
    """Return a tag with those above it as a path, as digiKam writes it: a ``/`` in a name is ``|``."""
    return SLASH.join(part.replace(SLASH, WRITTEN_SLASH) for part in path)


def ends_in(path: str, tag: str) -> bool:
    """Return whether a text may be the path of a tag: ``animals/dog`` that of dog."""
    return tag_key(path).replace(WRITTEN_SLASH, SLASH).endswith(SLASH + tag_key(tag).replace(WRITTEN_SLASH, SLASH))


def suffixes(path: Sequence[str]) -> Iterator[str]:
    """Yield what a tag with those above it may be called in a tree, and so may each of these."""
    yield from (SLASH.join(path[start:stop]) for stop in range(1, len(path) + 1) for start in range(stop))


def own_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the tags of a path by their own names: (birds, crane) of birds and ``birds/crane``."""
    parts: list[str] = []
    for name in names:
        starts = (SLASH.join(parts[-n:]) + SLASH for n in range(min(len(parts), name.count(SLASH)), 0, -1))
        start = next((len(one) for one in starts if tag_key(name[: len(one)]) == tag_key(one)), 0)
        parts.append(name[start:] or name)
    return tuple(parts)


def _too_many_levels(names: Sequence[str]) -> DataError:
    return DataError(
        f"Tags lie under each other in {len(names):,} levels: {ends_of(names, ' < ')}; expected at most {MOST_LEVELS}. "
        "Leave some of them out of the tree."
    )


def read_tree(path: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Read a CSV (or, by its suffix .tsv, tab-separated file) of child,parent. Raises DataError as `read_pairs`."""
    return [(pair.first, pair.second) for pair in read_pairs(path, TREE_FILE)]


def tree_summary(tree: TagTree) -> str:
    """Describe a tree in a line, and which tags lie under several others."""
    children = dict.fromkeys(child for child, _ in tree.pairs)
    several = [child for child in children if len(tree.parents(child)) > 1]
    n_parents = len({tag_key(parent) for _, parent in tree.pairs})
    summary = f"Tree: {count_of(len(children), 'tag')} under {n_parents:,} others"
    if several:
        both = " and ".join(f"'{parent}'" for parent in tree.parents(several[0]))
        example = f"such as '{several[0]}' under {both}"
        summary += f"; {len(several):,} of them under more than one ({example}), whose photos have all of these"
    return f"{summary}."


def parts_of(path: str) -> tuple[str, ...]:
    """Return the tags of a path, the topmost first; empty parts are left out."""
    return tuple(part for part in map(clean_tag, path.split(SLASH)) if part)
