"""The word relations of a run: which tags are parts of which, and kinds of what; read, and kept with the run."""

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
from visterm.features.training_rows import LEARNED
from visterm.models.base import SideKnowledge

PART_OF, IS_A, SENSES = "part_of.csv", "isa.csv", "tag_synsets.csv"  # Files in the folder of a run
Source = str | os.PathLike[str]


class WordRelations(NamedTuple):
    """Relations between words, as they were given; those with words that are no tags too.

    Examples
    --------
    >>> tagger.fit("photos", tags="tags.csv", relations=WordRelations([("wheel", "car")]))  # doctest: +SKIP
    """

    part_of: Sequence[tuple[str, str]] = ()  # Part and whole
    is_a: Sequence[tuple[str, str]] = ()  # Child and parent
    senses: TagSenses | None = None  # How tags were matched with WordNet; None: not, or in a run that was opened
    tree: Sequence[tuple[str, str]] = ()  # Child and parent of the tags' own tree (`visterm.data.tag_tree`)

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
        """Read relations from files of two columns, or from WordNet.

        Raises DataError if a file or WordNet cannot be used, or has nothing to say of the tags; UserError if there is a
        mapping, and nothing is read from WordNet.

        Parameters
        ----------
        vocabulary : Vocabulary
            The tags to look up in WordNet.
        part_of : path-like, optional
            A CSV of part,whole; WordNet's folder; or "wordnet", to look for that at its usual places.
        is_a : path-like, optional
            Likewise, a CSV of child,parent. None: from the WordNet of `part_of`, if that is one.
        mapping : path-like, optional
            Which synsets tags mean, see `match_tags`.
        inherit : int or None
            Over how many steps of is-a wholes inherit parts, see `wordnet_part_of`.
        """
        if mapping is not None and not any(map(is_wordnet, (part_of, is_a))):
            raise UserError(
                f"The mapping {mapping} is of tags to WordNet's synsets, and no relations come from WordNet.",
                setting="mapping", value=mapping,
                advice=f"Leave `mapping` out, or pass WordNet as `part_of`: its folder, or the word {WORDNET}.",
            )  # fmt: skip

        parts: Sequence[tuple[str, str]] = ()
        senses = None
        if part_of is not None:
            of_wordnet = mapping if is_wordnet(part_of) else None
            source = None if part_of == WORDNET else part_of
            part_relations = read_part_relations(source, vocabulary, mapping=of_wordnet, inherit=inherit)
            parts, senses = part_relations.relations, part_relations.senses
            if is_a is None and senses is not None and part_relations.wordnet is not None:
                return cls(parts, _wordnet_is_a(part_relations.wordnet, senses), senses)

        if is_a is None:
            return cls(parts)
        if is_wordnet(is_a):
            wordnet = WordNet(None if is_a == WORDNET else is_a)
            senses = match_tags(wordnet, vocabulary, mapping=mapping)
            kinds = _wordnet_is_a(wordnet, senses)
        else:
            kinds = read_is_a(is_a)
        sibling_sets(kinds, vocabulary)  # refuses relations without any tag
        return cls(parts, kinds, senses)

    def pairs(self, vocabulary: Vocabulary) -> NDArray[np.int64]:
        """Return the columns of (part, whole) among the tags, int64 of shape (n_pairs, 2); see `part_pairs`."""
        return part_pairs(self.part_of, vocabulary)

    def among(self, vocabulary: Vocabulary) -> Self:
        """Return those that say something of other tags than were learned: none is refused for saying nothing."""
        part_of = [pair for pair in self.part_of if pair[0] in vocabulary and pair[1] in vocabulary]
        return self._replace(part_of=part_of, is_a=[pair for pair in self.is_a if pair[0] in vocabulary])

    def side_of(
        self,
        vocabulary: Vocabulary,
        takes: Collection[str],
        *,
        blocks: Sequence[int] | None = None,
        word_vectors: NDArray[np.float32] | None = None,
    ) -> SideKnowledge:
        """Return what they say of the tags, as far as a model `takes` it, with blocks of features and word vectors.

        Raises DataError if none of the part-of relations is between two tags.
        """
        part_of = self.pairs(vocabulary) if self.part_of else None
        siblings, above = None, None
        if "siblings" in takes and self.is_a:
            siblings = np.stack(sp.triu(sibling_sets(self.is_a, vocabulary), k=1).nonzero(), axis=1)
        if "tree" in takes and self.tree:
            above = TreeColumns(TagTree(self.tree, vocabulary.aliases), vocabulary).pairs
        return SideKnowledge(part_of=part_of, siblings=siblings, tree=above, blocks=blocks, word_vectors=word_vectors)

    def kinds(self, vocabulary: Vocabulary) -> NDArray[np.int64]:
        """Return the columns of tags and of other tags that they are a kind of, over any number of steps of is-a.

        int64 of shape (n_pairs, 2), sorted, each pair once; steps may lead over words that are no tags.
        """
        above: defaultdict[str, set[str]] = defaultdict(set)
        for child, parent in self.is_a:
            above[tag_key(child)].add(tag_key(parent))
        spellings: defaultdict[int, set[str]] = defaultdict(set)
        for spelling in (*vocabulary, *vocabulary.aliases):
            spellings[vocabulary.index(spelling)].add(tag_key(spelling))
        pairs = set()
        for column, keys in spellings.items():
            waiting, seen = list(keys), set(keys)
            while waiting:
                fresh = above.get(waiting.pop(), set()) - seen
                seen |= fresh
                waiting.extend(fresh)
            columns = (vocabulary.get(word) for word in seen)
            pairs |= {(column, other) for other in columns if other is not None and other != column}
        return np.array(sorted(pairs), np.int64).reshape(-1, 2)

    def summary(self, vocabulary: Vocabulary) -> str:
        """Describe in a line what they say of the tags."""
        parts = []
        if self.part_of:
            pairs = self.pairs(vocabulary)
            n_tags = len(np.unique(pairs))
            parts.append(
                f"{count_of(len(pairs), 'part-of relation')} between {n_tags:,} of {count_of(len(vocabulary), 'tag')}"
            )
            others = sorted({f"'{word}'" for pair in self.part_of for word in pair if word not in vocabulary})
            if others and self.senses is None:
                more = ", ..." if len(others) > 3 else ""
                parts.append(f"{len(others):,} words of the relations are no tags ({', '.join(others[:3])}{more})")

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
        """Write what there is into the folder of a run."""
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
        """Read what `save` wrote; without files there are no relations."""
        part_of, is_a, tree = folder / PART_OF, folder / IS_A, folder / TREE
        return cls(
            read_part_of(part_of) if part_of.exists() else (),
            read_is_a(is_a) if is_a.exists() else (),
            tree=TagTree(read_is_a(tree)).pairs if tree.exists() else (),  # which refuses circles
        )


def tags_to_learn(
    corpus: Corpus, min_count: int, aliases: Mapping[str, str] | None = None, words: Iterable[str] = ()
) -> Vocabulary:
    """Return the tags that a corpus will be learned by, before its images are encoded: to match relations with."""
    learned = corpus.select(LEARNED) if any(corpus.splits) else corpus
    return Vocabulary.from_lists(learned.tags, min_count=min_count, aliases=aliases).with_words(words)


def is_wordnet(source: Source | None) -> bool:
    """Return whether relations come from WordNet, and not from a file."""
    return source is not None and (source == WORDNET or Path(source).is_dir())


def check_sources(rules: TagRules) -> None:
    """Refuse sources of relations that are not there, and rules without a meaning, before any long work.

    Raises DataError if there is no such file or folder, or WordNet is at none of its usual places; UserError if a rule
    is for WordNet, and nothing is read from there.
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
            "The tag rule tag_synsets says what tags mean in WordNet, and no relations come from there.",
            setting="tag_rules.tag_synsets", value=rules.tag_synsets,
            advice=f'Add part_of = "{WORDNET}", or leave it out.',
        )  # fmt: skip
    read_mapping(rules.tag_synsets)  # refuses what is no such file


def read_relations(rules: TagRules, vocabulary: Vocabulary) -> WordRelations:
    """Read the relations that tag rules name, among the tags of a vocabulary; none if they name none."""
    if rules.part_of is None and rules.isa is None:
        return WordRelations()
    return WordRelations.read(vocabulary, part_of=rules.part_of, is_a=rules.isa, mapping=rules.tag_synsets)


def _wordnet_is_a(wordnet: WordNet, senses: TagSenses) -> list[tuple[str, str]]:
    """Return what tags are directly a kind of, by the meanings that they were matched with."""
    return [
        relation
        for sense in senses
        if sense.synset is not None
        for relation in is_a_of_synset(wordnet, sense.tag, sense.synset)
    ]
