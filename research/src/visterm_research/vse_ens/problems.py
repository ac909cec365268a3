"""Problems of images known only by number, one tag of each held out: NUS-WIDE, Delicious, pairs drawn by Zipf's law."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from visterm.core.vocabulary import Vocabulary
from visterm.data.held_tags import hold_one_out
from visterm.data.relations import sibling_sets
from visterm.data.tag_formats.tables import read_table
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.comparison.run import Options
from visterm_research.comparison.sources import DELICIOUS, NUSWIDE, known_folders
from visterm_research.data.drawn_tags import draw_dictionary, draw_pairs
from visterm_research.data.mulan import read_mulan

VALID_IMAGES = 5_000
"""Images, of those with two tags left, of which a second tag is held out to choose settings by."""


def number_problems(options: Options) -> Iterator[Problem]:
    """Yield the problems of images known only by number: those of the folders, then pairs drawn by Zipf's law."""
    seed = options.seed
    for kind, folder in known_folders(options.data, (NUSWIDE, DELICIOUS)):
        yield (nuswide_problem if kind == NUSWIDE else delicious_tag_problem)(folder, seed=seed)
    yield zipf_problem(600, 120, seed=seed) if options.quick else zipf_problem(30_000, 5000, seed=seed)


def nuswide_problem(folder: Path, *, seed: int) -> Problem:
    """Read the tags of NUS-WIDE's images: ``labels.tsv`` with the columns row and labels."""
    records = read_table(folder / "labels.tsv", image_column="row", tags_column="labels", separator=",")
    lists = [record.tags for record in records]
    vocabulary = Vocabulary.from_lists(lists)
    Y = vocabulary.encode(lists)
    return held_tag_problem(
        "nuswide", "NUS-WIDE, the images with at least one of its concepts", Y, vocabulary.tags, seed
    )


def delicious_tag_problem(folder: Path, *, seed: int) -> Problem:
    """Read the tags of Delicious's pages, and leave the words of the pages alone."""
    parts = [read_mulan(folder / f"delicious-{part}.arff", folder / "delicious.xml") for part in ("train", "test")]
    Y = sp.csr_array(sp.vstack([part.Y for part in parts], format="csr"))
    tags = [tag.removeprefix("TAG_") for tag in parts[0].tags]
    return held_tag_problem("delicious-tags", "Delicious (Mulan): web pages by number", Y, tags, seed)


def zipf_problem(n_images: int, n_tags: int, *, seed: int) -> Problem:
    """Draw which images have which tags."""
    dictionary = draw_dictionary(n_tags, random_state=seed)
    Y = draw_pairs(n_images, dictionary, random_state=seed + 1)
    what = f"drawn from the seed {seed}: tags of Zipf's law in families"
    siblings = sibling_sets(dictionary.is_a(), Vocabulary(dictionary.names()))
    return held_tag_problem("zipf", what, Y, dictionary.names(), seed, siblings)


def held_tag_problem(
    name: str, what: str, Y: sp.csr_array, tags: list[str], seed: int, siblings: sp.csr_array | None = None
) -> Problem:
    """Hold out one tag of each image that has two or more, and of some a second one for validation.

    The protocol of the VSE-ens paper. What is held out for validation is not learned from for the final judgement
    either, so that all models see the same rows, but it is left out of the rankings there, as all known tags are.
    """
    rng = np.random.default_rng(seed)
    test = hold_one_out(Y, rng)
    valid = hold_one_out(test.rest, rng, at_most=VALID_IMAGES)
    X = sp.eye_array(Y.shape[0], dtype=np.float32, format="csr")
    return Problem(
        name,
        f"{what}; one tag held out of each of the {test.images.size:,} images with two or more, and a second one of "
        f"{valid.images.size:,} for validation",
        tags,
        Rows(X, valid.rest),
        Rows(sp.csr_array(X[valid.images]), valid.held, valid.known),
        Rows(sp.csr_array(X[test.images]), test.held, test.known),
        siblings=siblings,
        by_number=True,
    )
