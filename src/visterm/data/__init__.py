"""Reading data: image files, tag files, corpora."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visterm.core.registry import lazy_names

if TYPE_CHECKING:
    from visterm.data.corpus import Corpus
    from visterm.data.data_sets import LabelledRows, read_data_set, read_mulan
    from visterm.data.images import ImageLike, read_image
    from visterm.data.learned_vectors import learn_word_vectors
    from visterm.data.pillow import resized
    from visterm.data.relations import PairFormat, PartOf, part_pairs, read_pairs, sibling_sets, write_pairs
    from visterm.data.tag_formats.tables import read_table
    from visterm.data.tag_queries import MAX_SUBSETS, Queries, hold_one_out, queries_of_tags, relevant_images
    from visterm.data.word_vectors import WordVectors, vectors_of_tags, write_word_vectors

# Public names for plug-ins, by module: see docs/add_a_model.md.
_NAMES = {
    "corpus": "Corpus",
    "data_sets": "LabelledRows read_data_set read_mulan",
    "images": "ImageLike read_image",
    "learned_vectors": "learn_word_vectors",
    "pillow": "resized",
    "relations": "PairFormat PartOf part_pairs read_pairs sibling_sets write_pairs",
    "tag_formats.tables": "read_table",
    "tag_queries": "MAX_SUBSETS Queries hold_one_out queries_of_tags relevant_images",
    "word_vectors": "WordVectors vectors_of_tags write_word_vectors",
}

__getattr__, __dir__ = lazy_names("visterm.data", _NAMES)
