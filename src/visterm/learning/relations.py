"""The word relations of a run, part-of and is-a: read from files or WordNet, and saved with the run."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError, UserError
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.data.part_of import PART_OF_FILE, part_pairs, read_part_of, read_part_relations
from visterm.data.relations import IS_A_FILE, read_is_a, sibling_sets, write_pairs
from visterm.data.tag_rules import WORDNET, TagRules
from visterm.data.tag_senses import (
    TagSenses,
    WordNet,
    find_wordnet,
    is_a_of_synset,
    match_tags,
    read_mapping,
    write_mapping,
)
from visterm.data.tag_tree import TREE, TagTree, TreeColumns
from visterm.features.training_rows import TRAIN_SPLIT
from visterm.models.base import SideKnowledge

PART_OF, IS_A, SENSES = "part_of.csv", "isa.csv", "tag_synsets.csv"  # Files in the folder of a run
Source = str | os.PathLike[str]


class WordRelations(NamedTuple):
    """The given relations between words, including words that are not tags.

    Examples
    --------
    >>> tagger.fit("photos", tags="tags.csv", relations=WordRelations([("wheel", "car")]))  # doctest: +SKIP
    """

    part_of: Sequence[tuple[str, str]] = ()  # Part and whole
    is_a: Sequence[tuple[str, str]] = ()  # Child and parent
    senses: TagSenses | None = None  # How tags were matched with WordNet; None: not matched, or a run from disk
    tree: Sequence[tuple[str, str]] = ()  # Child and parent in the tree of the tags (`visterm.data.tag_tree`)

    @classmethod
    def read(
        cls,
        vocabulary: Vocabulary,
        *,
        part_of: Source | None = None,
        is_a: Source | None = None,
        mapping: Source | None = None,
        inherit: int | None = 1,
    ) -> Self:
        """Read relations from CSV files with two columns, or from WordNet.

        Raises DataError if a file or WordNet cannot be read, or has no relation of a tag; UserError if there is a
        mapping, but WordNet is not used.

        Parameters
        ----------
        vocabulary : Vocabulary
            The tags to look up in WordNet.
        part_of : path-like, optional
            A CSV of part,whole; WordNet's folder; or "wordnet", to look for the folder at its usual places.
        is_a : path-like, optional
            A CSV of child,parent, or WordNet as for `part_of`. None: from the WordNet of `part_of`, if any.
        mapping : path-like, optional
            The synsets of tags, see `match_tags`.
        inherit : int or None
            Number of is-a steps over which wholes inherit parts, see `wordnet_part_of`.
        """
        if mapping is not None and not any(map(is_wordnet, (part_of, is_a))):
            raise UserError(
                f"The mapping {mapping} maps tags to WordNet's synsets, but no relations come from WordNet.",
                setting="mapping", value=mapping,
                advice=f"Leave `mapping` out, or pass WordNet as `part_of`: its folder, or the word {WORDNET}.",
            )  # fmt: skip

        part_of_pairs: Sequence[tuple[str, str]] = ()
        senses = None
        if part_of is not None:
            wordnet_mapping = mapping if is_wordnet(part_of) else None
            source = None if part_of == WORDNET else part_of
            part_relations = read_part_relations(source, vocabulary, mapping=wordnet_mapping, inherit=inherit)
            part_of_pairs, senses = part_relations.relations, part_relations.senses
            if is_a is None and senses is not None and part_relations.wordnet is not None:
                return cls(part_of_pairs, _wordnet_is_a(part_relations.wordnet, senses), senses)

        if is_a is None:
            return cls(part_of_pairs)
        if is_wordnet(is_a):
            wordnet = WordNet(None if is_a == WORDNET else is_a)
            senses = match_tags(wordnet, vocabulary, mapping=mapping)
            is_a_pairs = _wordnet_is_a(wordnet, senses)
        else:
            is_a_pairs = read_is_a(is_a)
        sibling_sets(is_a_pairs, vocabulary)  # raises DataError if no relation has a tag
        return cls(part_of_pairs, is_a_pairs, senses)

    def part_of_columns(self, vocabulary: Vocabulary) -> NDArray[np.int64]:
        """Return the columns of (part, whole) among the tags, int64 of shape (n_pairs, 2); see `part_pairs`."""
        return part_pairs(self.part_of, vocabulary)

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
        part_of = self.part_of_columns(vocabulary) if self.part_of else None
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
            pairs = self.part_of_columns(vocabulary)
            n_tags = len(np.unique(pairs))
            parts.append(
                f"{count_of(len(pairs), 'part-of relation')} between {n_tags:,} of {count_of(len(vocabulary), 'tag')}"
            )
            unknown = sorted({f"'{word}'" for pair in self.part_of for word in pair if word not in vocabulary})
            if unknown and self.senses is None:
                ellipsis = ", ..." if len(unknown) > 3 else ""
                parts.append(
                    f"{len(unknown):,} words of the relations are not tags ({', '.join(unknown[:3])}{ellipsis})"
                )

        if self.is_a:
            n_siblings = int((np.diff(sibling_sets(self.is_a, vocabulary).indptr) > 1).sum())
            parts.append(f"{count_of(n_siblings, 'tag')} with siblings")
        if self.senses is not None:
            senses = self.senses
            parts.append(
                f"{len(senses) - len(senses.unmatched):,} matched with WordNet ({len(senses.ambiguous):,} of several "
                f"senses by the first), {len(senses.unmatched):,} not"
            )
        return "; ".join(parts) + "."

    def save(self, folder: Path) -> None:
        """Write the relations into the folder of a run."""
        if self.part_of:
            write_pairs(folder / PART_OF, PART_OF_FILE.columns, self.part_of)
        if self.is_a:
            write_pairs(folder / IS_A, IS_A_FILE.columns, self.is_a)
        if self.senses is not None:
            write_mapping(folder / SENSES, self.senses)
        if self.tree:
            write_pairs(folder / TREE, IS_A_FILE.columns, self.tree)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote; a missing file means no such relations."""
        part_of, is_a, tree = folder / PART_OF, folder / IS_A, folder / TREE
        return cls(
            read_part_of(part_of) if part_of.exists() else (),
            read_is_a(is_a) if is_a.exists() else (),
            tree=TagTree(read_is_a(tree)).pairs if tree.exists() else (),  # raises DataError for cycles
        )


def tags_to_learn(
    corpus: Corpus, min_count: int, aliases: Mapping[str, str] | None = None, words: Iterable[str] = ()
) -> Vocabulary:
    """Return the tags that a fit on a corpus will learn, before images are encoded, to match relations with them."""
    training = corpus.select(TRAIN_SPLIT) if any(corpus.splits) else corpus
    return Vocabulary.from_lists(training.tags, min_count=min_count, aliases=aliases).with_words(words)


def is_wordnet(source: Source | None) -> bool:
    """Return whether the source of relations is WordNet, and not a file."""
    return source is not None and (source == WORDNET or Path(source).is_dir())


def check_sources(rules: TagRules) -> None:
    """Check that the sources of relations exist and that the rules can be used together, before any long work.

    Raises DataError if a file or folder doesn't exist, or WordNet is not found; UserError if a rule is for WordNet, but
    WordNet is not used.
    """
    for rule, source in (("part_of", rules.part_of), ("isa", rules.isa)):
        if is_wordnet(source):
            find_wordnet(None if source == WORDNET else source)
        elif source is not None and not Path(source).is_file():
            raise DataError(
                f"There is no file or folder {source} of relations (the tag rule {rule}).",
                setting=f"tag_rules.{rule}", value=source,
                expected=f'a CSV, WordNet\'s folder, or "{WORDNET}" to look for it at its usual places',
            )  # fmt: skip
    if rules.tag_synsets is None:
        return
    if not (is_wordnet(rules.part_of) or is_wordnet(rules.isa)):
        raise UserError(
            "The tag rule tag_synsets maps tags to WordNet's synsets, but no relations come from WordNet.",
            setting="tag_rules.tag_synsets", value=rules.tag_synsets,
            advice=f'Add part_of = "{WORDNET}", or leave it out.',
        )  # fmt: skip
    read_mapping(rules.tag_synsets)  # raises DataError if the file is invalid


def read_relations(rules: TagRules, vocabulary: Vocabulary) -> WordRelations:
    """Read the relations that the tag rules name, for the tags of a vocabulary; there may be none."""
    if rules.part_of is None and rules.isa is None:
        return WordRelations()
    return WordRelations.read(vocabulary, part_of=rules.part_of, is_a=rules.isa, mapping=rules.tag_synsets)


def _wordnet_is_a(wordnet: WordNet, senses: TagSenses) -> list[tuple[str, str]]:
    """Return the direct is-a relations of tags, from the synsets that they were matched with."""
    return [
        relation
        for sense in senses
        if sense.synset is not None
        for relation in is_a_of_synset(wordnet, sense.tag, sense.synset)
    ]
