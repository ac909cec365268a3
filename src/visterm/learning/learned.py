"""What a fit has learned: the parts of a run, in memory, frozen."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.packing import learned_hash
from visterm.core.queries import inverse_frequencies
from visterm.core.tables import MODELS
from visterm.core.types import Matrix, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.data.tag_tree import TagTree, TreeColumns
from visterm.encoders.contract import AnyEncoder
from visterm.features.learned_images import LearnedImages
from visterm.learning.word_places import WordPlaces
from visterm.models.base import Annotator
from visterm.models.confidence.calibration import Calibration

if TYPE_CHECKING:
    from visterm.data.text_files import Reference
    from visterm.learning.relations import WordRelations


def _no_relations() -> WordRelations:
    from visterm.learning.relations import WordRelations

    return WordRelations()


@dataclass(frozen=True, kw_only=True, eq=False)
class Learned:
    """An encoder, a model, the vocabulary that they learned, and what was learned beside them.

    Attributes
    ----------
    vocabulary : Vocabulary
        The tags that it learned; none where nothing was learned yet.
    facts : dict
        Counts and figures of the fit, as ``visterm info`` shows them.
    skipped : list of Skipped
        Images that could not be read.
    learned_images : LearnedImages
        The names of the images that it learned from.
    relations : WordRelations
        Which tags are parts of which and kinds of what, as far as it knows.
    words : WordPlaces
        What it knows of words that are no tags: where their vectors come from, and those that were added.
    given : csr_array or None, shape (n_images, n_tags)
        For images known by number (the encoder ``ids``): the tags that it learned from, 1 given and -1 explicitly not.
    reference : Reference or None
        How common the tags are in the texts that words were weighed by; None: weighed by the training images.
    calibration : Calibration or None
        What makes confidences of scores; None of images known by number, and where there were too few images.
    """

    encoder: AnyEncoder
    model: Annotator
    vocabulary: Vocabulary = field(default_factory=lambda: Vocabulary.from_lists([]))
    facts: Mapping[str, Any] = field(default_factory=dict)
    skipped: Sequence[Skipped] = ()
    learned_images: LearnedImages = field(default_factory=LearnedImages)
    relations: WordRelations = field(default_factory=_no_relations)
    words: WordPlaces = field(default_factory=WordPlaces)
    given: sp.csr_array | None = None
    reference: Reference | None = None
    calibration: Calibration | None = None

    def changed(self, **parts: Any) -> Learned:
        """Return what was learned with other parts; all of it is then in memory."""
        return Learned(**{part.name: getattr(self, part.name) for part in fields(Learned)} | parts)

    def counts(self, images: int, features: int, *, held_out: int, tags_given: int) -> dict[str, object]:
        """Return the counts that every fit keeps with its run."""
        facts: dict[str, object] = {
            "images": images,
            "validation images": held_out,
            "skipped images": len(self.skipped),
            "tags": len(self.vocabulary),
            "tags given": tags_given,
            "features": features,
            "encoder fingerprint": self.encoder.fingerprint,
        }
        if self.vocabulary.aliases:
            facts["aliases"] = len(self.vocabulary.aliases)
        if self.tree is not None:
            facts["tags under others"] = int((np.diff(self.tree.above.indptr) > 1).sum())
        if self.reference is not None:
            facts["texts of the reference corpus"] = self.reference.n_texts
        if self.words.source is not None:
            facts["word vectors"] = self.words.source.name
            facts["tags without a word vector"] = len(self.words.without)
        return facts

    @cached_property
    def dictionary(self) -> Vocabulary:
        """The tags and, after them, the words that were added."""
        tags, words = self.vocabulary, self.words
        if not words.added:
            return tags
        counts = np.concatenate([tags.counts, np.zeros(len(words.added), np.int64)])
        return Vocabulary([*tags.tags, *words.added], counts, tags.aliases)

    @cached_property
    def idf(self) -> NDArray[np.float32]:
        """What the tags weigh in queries, shape (n_tags,)."""
        return inverse_frequencies(*(self.reference or (self.vocabulary.counts, self.facts.get("images", 0))))

    @cached_property
    def tree(self) -> TreeColumns | None:
        """The tree of the tags; None where they have none."""
        if not self.relations.tree:
            return None

        return TreeColumns(TagTree(self.relations.tree, self.vocabulary.aliases, grows=True), self.vocabulary)

    @property
    def fingerprint(self) -> str:
        """The name of the rows that it makes: of the encoder and of what the model learned."""
        parts = f"{self.encoder.fingerprint} {MODELS.name_of(self.model)} {learned_hash(self.model)}"
        return hashlib.sha256(parts.encode()).hexdigest()[:16]

    def tag_rows(self, tags: NDArray[np.int32]) -> Matrix:
        """Return the rows of some tags, V[tags], shape (n, width); CSR where V is, or is the identity."""
        V = self.model._tag_rows()
        return unit_vectors(tags, len(self.vocabulary)) if V is None else V[tags]


def unit_vectors(tags: NDArray[np.int32], n_tags: int) -> sp.csr_array:
    """Return the rows of some tags where V is the identity, float32 of shape (n, n_tags)."""
    parts = np.ones(len(tags), np.float32), tags, np.arange(len(tags) + 1)
    return sp.csr_array(parts, shape=(len(tags), n_tags))
