"""The word relations of a run, part-of and is-a: read from files, and saved with the run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.types import Place
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.data.relations import IS_A_FILE, PART_OF_FILE, part_pairs, read_related, sibling_sets, write_pairs
from visterm.data.tag_rules import TagRules
from visterm.data.tag_tree import TREE, TagTree, TreeColumns
from visterm.features.training_rows import TRAIN_SPLIT
from visterm.models.base import SideKnowledge

PART_OF, IS_A = "part_of.csv", "isa.csv"  # Files in the folder of a run


class WordRelations(NamedTuple):
    """The given relations between words, including words that are not tags.

    Examples
    --------
    >>> tagger.fit("photos", tags="tags.csv", relations=WordRelations([("wheel", "car")]))  # doctest: +SKIP
    """

    part_of: Sequence[tuple[str, str]] = ()  # Part and whole
    is_a: Sequence[tuple[str, str]] = ()  # Child and parent
    tree: Sequence[tuple[str, str]] = ()  # Child and parent in the tree of the tags (`visterm.data.tag_tree`)

    @classmethod
    def read(cls, vocabulary: Vocabulary, *, part_of: Place | None = None, is_a: Place | None = None) -> Self:
        """Read CSV files of part,whole and of child,parent.

        Raises DataError if a file cannot be read, or has no relation of a tag in `vocabulary`.
        """
        part_of_pairs: Sequence[tuple[str, str]] = () if part_of is None else read_related(part_of, PART_OF_FILE)
        is_a_pairs: Sequence[tuple[str, str]] = () if is_a is None else read_related(is_a, IS_A_FILE)
        try:
            part_pairs(part_of_pairs, vocabulary)
        except DataError as error:
            raise DataError(
                f"{part_of}: no line has two known tags, such as {', '.join(vocabulary.tags[:3])}. "
                f"The first pair is '{','.join(part_of_pairs[0])}'; expected part,whole."
            ) from error
        if is_a is not None:
            sibling_sets(is_a_pairs, vocabulary)  # raises DataError if no relation has a tag
        return cls(part_of_pairs, is_a_pairs)

    def restricted_to(self, vocabulary: Vocabulary) -> Self:
        """Return only the relations of tags in a vocabulary; there may be none."""
        part_of = [pair for pair in self.part_of if pair[0] in vocabulary and pair[1] in vocabulary]
        return self._replace(part_of=part_of, is_a=[pair for pair in self.is_a if pair[0] in vocabulary])

    def side_knowledge(
        self,
        vocabulary: Vocabulary,
        takes: Collection[str],
        *,
        blocks: Sequence[int] | None = None,
        word_vectors: NDArray[np.float32] | None = None,
    ) -> SideKnowledge:
        """Return the kinds of side knowledge that a model `takes`: relations, with `blocks` and `word_vectors`.

        Raises DataError if there are part-of relations, but not between two tags.
        """
        part_of = part_pairs(self.part_of, vocabulary) if self.part_of else None
        siblings, tree = None, None
        if "siblings" in takes and self.is_a:
            siblings = np.stack(sp.triu(sibling_sets(self.is_a, vocabulary), k=1).nonzero(), axis=1)
        if "tree" in takes and self.tree:
            tree = TreeColumns(TagTree(self.tree, vocabulary.aliases), vocabulary).pairs
        return SideKnowledge(part_of=part_of, siblings=siblings, tree=tree, blocks=blocks, word_vectors=word_vectors)

    def ancestor_columns(self, vocabulary: Vocabulary) -> NDArray[np.int64]:
        """Return pairs of columns, of a tag and of another tag that it is a kind of, over any number of is-a steps.

        The result, int64 of shape (n_pairs, 2), is sorted and unique; intermediate words need not be tags.
        """
        parents: defaultdict[str, set[str]] = defaultdict(set)
        for child, parent in self.is_a:
            parents[tag_key(child)].add(tag_key(parent))
        spellings: defaultdict[int, set[str]] = defaultdict(set)
        for spelling in (*vocabulary, *vocabulary.aliases):
            spellings[vocabulary.index(spelling)].add(tag_key(spelling))
        pairs = set()
        for column, keys in spellings.items():
            to_visit, ancestors = list(keys), set(keys)
            while to_visit:
                new_keys = parents.get(to_visit.pop(), set()) - ancestors
                ancestors |= new_keys
                to_visit.extend(new_keys)
            columns = (vocabulary.get(word) for word in ancestors)
            pairs |= {(column, other) for other in columns if other is not None and other != column}
        return np.array(sorted(pairs), np.int64).reshape(-1, 2)

    def summary(self, vocabulary: Vocabulary) -> str:
        """Return a line that summarizes the relations of the tags."""
        parts = []
        if self.part_of:
            pairs = part_pairs(self.part_of, vocabulary)
            tags_text = f"{len(np.unique(pairs)):,} of {count_of(len(vocabulary), 'tag')}"
            parts.append(f"{count_of(len(pairs), 'part-of relation')} between {tags_text}")
            if unknown := sorted({word for pair in self.part_of for word in pair if word not in vocabulary}):
                parts.append(f"{count_of(len(unknown), 'word')} not among the tags (such as '{unknown[0]}')")
        if self.is_a:
            n_siblings = int((np.diff(sibling_sets(self.is_a, vocabulary).indptr) > 1).sum())
            parts.append(f"{count_of(n_siblings, 'tag')} with siblings")
        return "; ".join(parts) + "."

    def save(self, folder: Path) -> None:
        """Write the relations into the folder of a run."""
        formats = {PART_OF: PART_OF_FILE, IS_A: IS_A_FILE, TREE: IS_A_FILE}
        for (name, file_format), pairs in zip(formats.items(), self, strict=True):
            if pairs:
                write_pairs(folder / name, file_format.columns, pairs)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote; a missing file means no such relations."""
        part_of, is_a, tree = folder / PART_OF, folder / IS_A, folder / TREE
        return cls(
            read_related(part_of, PART_OF_FILE) if part_of.exists() else (),
            read_related(is_a, IS_A_FILE) if is_a.exists() else (),
            tree=TagTree(read_related(tree, IS_A_FILE)).pairs if tree.exists() else (),  # raises DataError for cycles
        )


def tags_to_learn(corpus: Corpus, min_count: int, aliases: Mapping[str, str]) -> Vocabulary:
    """Return the tags that a fit on a corpus will learn, before images are encoded, to match relations with them."""
    training = corpus.select(TRAIN_SPLIT) if any(corpus.splits) else corpus
    return Vocabulary.from_lists(training.tags, min_count=min_count, aliases=aliases)


def check_sources(rules: TagRules) -> None:
    """Check that the files of relations exist, before any long work. Raises DataError otherwise."""
    for rule, source in (("part_of", rules.part_of), ("isa", rules.isa)):
        if source is not None and not Path(source).is_file():
            raise DataError(
                f"There is no file {source} of relations (the tag rule {rule}).",
                setting=f"tag_rules.{rule}", value=source, expected="a CSV",
                advice="`visterm wordnet` of visterm-research writes one from WordNet.",
            )  # fmt: skip
