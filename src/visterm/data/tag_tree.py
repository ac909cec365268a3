"""The tree of a library's tags: which tag is under which, from paths such as ``animals/dog/husky`` or from a table.

A tag may have several parents, as long as there is no cycle. A photo with a tag also has all tags above it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary, clean_tag, tag_key
from visterm.core.wording import count_of, join_ends

T = TypeVar("T", bound=Any)
TREE = "tree.csv"  # File name in a run's folder
PATHS = "paths"  # Instead of a table: the tags are paths
MAX_LEVELS = 100  # People's trees have about ten levels; each tag's stored path grows with the depth
SLASH, WRITTEN_SLASH = "/", "|"  # Separates the parts of a path, and replaces a slash within a name: ``music/AC|DC``


class TagTree:
    """A hierarchy of tags; spellings and aliases are matched as in every tag lookup.

    Parameters
    ----------
    pairs : iterable of (str, str)
        Child and parent.
    aliases : mapping of str to str, optional
        Other spellings and the tags that they mean.
    grows : bool
        Whether a new tag that is a path in the tree gets the parent in that path: ``animals/dog/pug`` is under dog.

    Attributes
    ----------
    pairs : list of (str, str)
        Child and parent, each pair once; if a tag has several parents, its path uses the first.

    Raises
    ------
    DataError
        If the pairs form a cycle, or the tree has more than `MAX_LEVELS` levels.
    """

    def __init__(
        self, pairs: Iterable[tuple[str, str]] = (), aliases: Mapping[str, str] | None = None, *, grows: bool = False
    ) -> None:
        self._grows = grows
        self._latest_result: tuple[tuple[str, ...], TagTree] | None = None  # Arguments and result of `with_paths`
        self._aliases = tag_of_alias = {tag_key(alias): clean_tag(tag) for alias, tag in (aliases or {}).items()}
        cleaned_pairs = [tuple(tag_of_alias.get(tag_key(tag), clean_tag(tag)) for tag in pair) for pair in pairs]
        unique_pairs = {(tag_key(child), tag_key(parent)): (child, parent) for child, parent in reversed(cleaned_pairs)}
        self.pairs: list[tuple[str, str]] = list(reversed(unique_pairs.values()))
        self._names: dict[str, str] = {}
        self._paths_of: dict[str, list[str]] = {}
        self._parents: defaultdict[str, list[str]] = defaultdict(list)
        self._children: defaultdict[str, list[str]] = defaultdict(list)
        for child, parent in self.pairs:
            self._parents[self._key(child)].append(self._key(parent))
            self._children[self._key(parent)].append(self._key(child))
        self._levels = self._find_levels()

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def _key(self, tag: str) -> str:
        key = tag_key(tag)
        if key in self._aliases:
            key = tag_key(self._aliases[key])
        self._names.setdefault(key, tag)
        return key

    def _find_levels(self) -> dict[str, int]:
        """Return the level of each tag in the tree, 1 for the topmost; refuse cycles and too many levels."""
        levels: dict[str, int] = {}
        try:
            for key in TopologicalSorter(self._parents).static_order():
                levels[key] = 1 + max((levels[parent] for parent in self._parents.get(key, ())), default=0)
        except CycleError as error:
            cycle = [self._names[key] for key in reversed(error.args[1])]
            raise DataError(
                f"Tags lie under each other in a circle of {len(cycle) - 1:,}: {join_ends(cycle, ' < ')}. "
                "Remove one of these lines of the tree."
            ) from None

        deepest = max(levels, key=levels.__getitem__, default="")
        if levels and levels[deepest] > MAX_LEVELS:
            raise _too_many_levels(self._names[deepest], levels[deepest])
        return levels

    def parents(self, tag: str) -> list[str]:
        """Return the parents of a tag, in the order of the pairs."""
        return [self._names[key] for key in self._parent_keys(self._key(tag))]

    def children(self, tag: str) -> list[str]:
        """Return the children of a tag, in the order of the pairs."""
        return [self._names[key] for key in self._children.get(self._key(tag), ())]

    def above(self, tag: str) -> list[str]:
        """Return all ancestors of a tag, the nearest first."""
        return self._relatives(tag, self._parent_keys)

    def below(self, tag: str) -> list[str]:
        """Return all descendants of a tag, the nearest first."""
        return self._relatives(tag, lambda key: self._children.get(key, ()))

    def _is_new(self, key: str) -> bool:
        return key not in self._parents and key not in self._children

    def _parent_keys(self, key: str) -> Sequence[str]:
        if self._grows and 0 < key.count(SLASH) < MAX_LEVELS and self._is_new(key):
            parent = self._key(self._names[key].rpartition(SLASH)[0])
            return [parent] if 0 < self._level(parent) < MAX_LEVELS else ()
        return self._parents.get(key, ())

    def _level(self, key: str) -> int:
        """Return the level of a tag in the tree, or of a new tag that is a path in it; 0 for any other tag."""
        if key not in self._levels:
            parents = self._parent_keys(key)
            self._levels[key] = 1 + self._level(parents[0]) if parents else 0
        return self._levels[key]

    def _relatives(self, tag: str, neighbours: Callable[[str], Sequence[str]]) -> list[str]:
        reached_keys = {self._key(tag): None}
        for key in (queue := list(reached_keys)):
            new_keys = [neighbour for neighbour in dict.fromkeys(neighbours(key)) if neighbour not in reached_keys]
            reached_keys.update(dict.fromkeys(new_keys))
            queue += new_keys
        return [self._names[key] for key in queue[1:]]

    def path(self, tag: str) -> list[str]:
        """Return the path to a tag, the topmost tag first; if a tag has several parents, the path uses the first."""
        path = [self._key(tag)]
        while parents := self._parent_keys(path[-1]):
            path.append(parents[0])
        return [self._names[key] for key in reversed(path)]

    def new_names(self, tags: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return the name and the parent of each new tag that is a path in the tree, parents first.

        ``animals/dog/pug`` is named pug, under dog; if the tree has another pug, it is named ``dog/pug``. Tags in the
        middle of a path may be new too.
        """
        new_paths = dict.fromkeys(path for tag in tags if SLASH in tag for path in self.with_parents([tag]))
        names_and_parents: dict[str, tuple[str, str]] = {}
        names_in_use = self._parents.keys() | self._children.keys() | self._aliases.keys()
        for tag in (path for path in new_paths if self._is_new(self._key(path)) and self._parent_keys(self._key(path))):
            parent_path, last_part = self.parents(tag)[0], tag.rpartition(SLASH)[2].replace(WRITTEN_SLASH, SLASH)
            parent = names_and_parents[parent_path][0] if parent_path in names_and_parents else parent_path
            name = last_part if tag_key(last_part) not in names_in_use else SLASH.join((parent, last_part))
            names_and_parents[tag] = (name if tag_key(name) not in names_in_use else tag), parent
            names_in_use |= {tag_key(name)}
        return names_and_parents

    def with_paths(self, tags: Iterable[str]) -> TagTree:
        """Return the tree with new tags added where their paths say; the tree itself if no tag is new."""
        tags = tuple(tags)
        if self._latest_result is None or self._latest_result[0] != tags:  # a catalogue often passes the same tags
            tree = self
            if new_tags := self.new_names(tags):
                pairs = [*self.pairs, *((tag, self.parents(tag)[0]) for tag in new_tags)]
                tree = TagTree(pairs, self._aliases, grows=True)
                for tag, (name, _) in new_tags.items():
                    tree._paths_of.setdefault(tag_key(name), []).append(tag)
            self._latest_result = tags, tree
        return self._latest_result[1]

    def paths_of(self, name: str) -> list[str]:
        """Return the new tags (see `with_paths`) that have this name, as they were written."""
        return self._paths_of.get(tag_key(name), [])

    def paths(self) -> dict[str, str]:
        """Return path as text -> name of the tag, for each tag that has a parent."""
        return {path_text(own_names(path)): path[-1] for path in (self.path(child) for child, _ in self.pairs)}

    def with_parents(self, tags: Iterable[str]) -> list[str]:
        """Return each tag after its ancestors, without repetitions."""
        return self._with(tags, self.above)

    def implied_by(self, tags: Iterable[str]) -> dict[str, str]:
        """Return each tag above one of an image's tags that is not among them -> the first tag that implies it."""
        keys = {self._key(tag): tag for tag in tags}
        implied = {above: tag for tag in reversed(keys.values()) for above in self.above(tag)}
        return {above: tag for above, tag in reversed(implied.items()) if self._key(above) not in keys}

    def with_children(self, tags: Iterable[str]) -> list[str]:
        """Return each tag after its descendants, without repetitions."""
        return self._with(tags, self.below)

    def follows(self, positive_tags: Iterable[str], denied: Iterable[str]) -> set[str]:
        """Return the keys of positive tags and their ancestors, and of denied tags and their descendants."""
        return {tag_key(tag) for tag in (*self.with_parents(positive_tags), *self.with_children(denied))}

    def completed(
        self, tags: Iterable[Iterable[str]], negatives: Iterable[Iterable[str]]
    ) -> tuple[list[list[str]], list[list[str]]]:
        """Return the tags of images with all their ancestors, and the denied tags with all their descendants."""
        return [self.with_parents(given) for given in tags], [self.with_children(denied) for denied in negatives]

    def _with(self, tags: Iterable[str], relatives: Callable[[str], list[str]]) -> list[str]:
        return list({tag_key(name): name for tag in tags for name in (*reversed(relatives(tag)), tag)}.values())


class TreeColumns:
    """A tree in the columns of a vocabulary; tags of the tree outside the vocabulary only connect other tags.

    Attributes
    ----------
    words : TagTree
    above : csr_array of float32, shape (n_tags, n_nodes)
        1 where the column's node is the row's tag or one of its ancestors. The nodes are the tags, then the ancestors
        that are not in the vocabulary.
    below : csr_array of float32, shape (n_tags, n_tags)
        1 where the column's tag is the row's tag or one of its descendants.
    """

    def __init__(self, words: TagTree, vocabulary: Vocabulary) -> None:
        n_tags = len(vocabulary)
        pairs, nodes = [(tag, tag) for tag in range(n_tags)], dict[str, int]()
        for column, tag in enumerate(vocabulary.tags):
            for ancestor in words.above(tag) if words.parents(tag) else ():
                index = vocabulary.get(ancestor)
                pairs.append((column, nodes.setdefault(ancestor, n_tags + len(nodes)) if index is None else index))
        rows, columns = np.array(pairs, np.int64).reshape(-1, 2).T
        self.words = words
        ones, shape = np.ones(len(pairs), np.float32), (n_tags, n_tags + len(nodes))
        self.above = as_csr(sp.csr_array((ones, (rows, columns)), shape=shape))
        self.below = as_csr(sp.csr_array(self.above[:, :n_tags].T))
        self._parents = np.flatnonzero(np.diff(self.below.indptr) > 1)
        self._descendants = self.below[self._parents]

    @property
    def pairs(self) -> NDArray[np.int64]:
        """Columns of each tag and each of its ancestors, shape (n_pairs, 2)."""
        ancestors, descendants = self.below.tocoo().coords
        pairs: NDArray[np.int64] = np.stack([descendants, ancestors], axis=1)[descendants != ancestors].astype(np.int64)
        return pairs

    def has_under(self, tags: NDArray[np.integer]) -> bool:
        """Return whether a tag in one of these columns has descendants."""
        return bool(np.isin(tags, self._parents).any())

    def raised(self, values: NDArray[T]) -> NDArray[T]:
        """Return values of tags, shape (..., n_tags), each raised to the maximum value of the tag's descendants."""
        if not len(self._parents):
            return values
        result: NDArray[T] = values.copy()
        rows = self._descendants
        result[..., self._parents] = np.maximum.reduceat(values[..., rows.indices], rows.indptr[:-1], axis=-1)
        return result

    def write_steps(self, steps: Any, values: str) -> str:
        """Add the steps of `raised` to an ONNX graph; `values` and the result name (n_images, n_tags) tensors."""
        n_tags, n_parents = len(self.below.indptr) - 1, len(self._parents)
        if not n_parents:
            return values
        lists = np.split(self._descendants.indices, self._descendants.indptr[1:-1])
        width = max(map(len, lists))
        descendants = np.stack([np.pad(tags, (0, width - len(tags)), mode="edge") for tags in lists]).astype(np.int64)
        maxima = steps.add("MaxPool", steps.columns(values, descendants), kernel_shape=[width])
        maxima = steps.add("Reshape", maxima, np.array([-1, n_parents]))
        columns = np.arange(n_tags)
        columns[self._parents] = n_tags + np.arange(n_parents)
        return str(steps.columns(steps.add("Concat", values, maxima, axis=1), columns))

    def completed(self, Y: sp.csr_array) -> sp.csr_array:
        """Return the tags of images, shape (n_images, n_tags), with all ancestors of tags above 0.

        All descendants of a denied tag (below 0) are denied too, unless they are above 0.
        """
        positive = as_csr((Y > 0).astype(np.float32) @ self.above[:, : Y.shape[1]]) > 0
        denied = as_csr((Y < 0).astype(np.float32) @ self.below) > 0
        signs = positive.astype(np.float32) - denied.astype(np.float32) + denied.multiply(positive).astype(np.float32)
        return as_csr(signs)


def tree_of_paths(tag_lists: Sequence[Iterable[str]]) -> tuple[TagTree, dict[str, str]]:
    """Return the tree of tags that are paths, and the name of each path in it.

    The name is the last part of the path: ``animals/dog/husky`` is ``husky``, under ``dog``, under ``animals``. If
    several paths end in the same word, the names include enough parents to differ: ``birds/crane`` and
    ``machines/crane``. A tag without a ``/`` is the path that ends with it, if only one path does. In a name, ``|``
    replaces ``/``, as digiKam writes ``AC|DC``.
    """
    path_tags = dict.fromkeys(tag for tags in tag_lists for tag in map(clean_tag, tags) if SLASH in tag)
    paths = {tag: tuple(part.replace(WRITTEN_SLASH, SLASH) for part in parts_of(tag)) for tag in path_tags}
    tree, names = tree_of_places(paths.values())
    by_text = {path_text(path): name for path, name in names.items() if len(path) > 1}
    return tree, by_text | {tag: names[path] for tag, path in paths.items() if path}


def tree_of_places(paths: Iterable[tuple[str, ...]]) -> tuple[TagTree, dict[tuple[str, ...], str]]:
    """Return the tree of tags that are given as paths, the topmost tag first, and the name of each path.

    Names are as in `tree_of_paths`; every path and every parent path has a name, in each of its spellings.
    """
    nodes: dict[tuple[str, ...], tuple[str, ...]] = {}  # Keys of a path -> its first spelling
    keys_of: dict[tuple[str, ...], tuple[str, ...]] = {}
    for path in paths:
        if len(path) > MAX_LEVELS:
            raise _too_many_levels(path[-1], len(path))
        keys: tuple[str, ...] = ()
        for n in range(1, len(path) + 1):
            keys = keys_of[path[:n]] = keys_of.get(path[:n]) or (*keys, tag_key(path[n - 1]))
            nodes.setdefault(keys, path[:n])
    suffix_counts: defaultdict[tuple[str, ...], int] = defaultdict(int)

    for node in nodes:
        for n in range(1, len(node) + 1):
            suffix_counts[node[-n:]] += 1
    names = {}
    for node, parts in nodes.items():
        n = next((n for n in range(1, len(node) + 1) if suffix_counts[node[-n:]] == 1), len(node))
        names[node] = SLASH.join(parts[-n:])
    tree = TagTree((names[node], names[node[:-1]]) for node in nodes if len(node) > 1)
    return tree, {path: names[keys] for path, keys in keys_of.items()}


def path_text(path: Iterable[str]) -> str:
    """Return a path as text, as digiKam writes it: a ``/`` in a name becomes ``|``."""
    return SLASH.join(part.replace(SLASH, WRITTEN_SLASH) for part in path)


def ends_in(path: str, tag: str) -> bool:
    """Return whether a text may be the path of a tag, as ``animals/dog`` may be the path of dog."""
    return tag_key(path).replace(WRITTEN_SLASH, SLASH).endswith(SLASH + tag_key(tag).replace(WRITTEN_SLASH, SLASH))


def suffixes(path: Sequence[str]) -> Iterator[str]:
    """Yield every name that a tag of this path, or one of its ancestors, may have in a tree."""
    yield from (SLASH.join(path[start:stop]) for stop in range(1, len(path) + 1) for start in range(stop))


def own_names(names: Iterable[str]) -> tuple[str, ...]:
    """Remove parent names from the tags of a path: (birds, ``birds/crane``) -> (birds, crane)."""
    parts: list[str] = []
    for name in names:
        prefixes = (SLASH.join(parts[-n:]) + SLASH for n in range(min(len(parts), name.count(SLASH)), 0, -1))
        prefix_length = next((len(prefix) for prefix in prefixes if tag_key(name[: len(prefix)]) == tag_key(prefix)), 0)
        parts.append(name[prefix_length:] or name)
    return tuple(parts)


def _too_many_levels(tag: str, n_levels: int) -> DataError:
    advice = "Leave some of them out of the tree."
    return DataError(f"The tag '{tag}' is on level {n_levels:,} of the tree; expected at most {MAX_LEVELS}. {advice}")


def tree_summary(tree: TagTree) -> str:
    """Describe a tree in one line."""
    children = dict.fromkeys(child for child, _ in tree.pairs)
    ambiguous = [child for child in children if len(tree.parents(child)) > 1]
    n_parents = len({tag_key(parent) for _, parent in tree.pairs})
    note = f"; {len(ambiguous):,} of them under more than one, such as '{ambiguous[0]}'" if ambiguous else ""
    return f"Tree: {count_of(len(children), 'tag')} under {n_parents:,} others{note}."


def parts_of(path: str) -> tuple[str, ...]:
    """Return the tags of a path, the topmost first; empty parts are left out."""
    return tuple(part for part in map(clean_tag, path.split(SLASH)) if part)
