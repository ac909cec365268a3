"""How well `visterm tags --suggest` tells misspellings and plurals from other words of a similar spelling.

    python tag_suggestions.py figures/tag_suggestions.json    # 20 libraries of 1,500 photos
    python tag_suggestions.py results.json --libraries 1 --pairs 600 --photos 30000

The libraries are planted. Words are drawn from syllables, so that by their letters nobody can tell what they mean. Each
word has a direction in feature space near that of its topic; a photo shows a few words of one or two topics, and its
features are their sum with noise. Of the words, ``--pairs`` also stand there in another spelling: two in three
misspelled on a share of their photos (1 to 40 %), one in three in the plural (10 to 60 %). As many other words have a
neighbour: another word with photos of its own, a slip or two away. For every fourth such pair the neighbour also stands
there in the plural, which must go to its own singular (horses to horse, not to house).

The results, with photos and without, are the share of the suggestions that are right (precision), the share of the
planted pairs that are suggested (recall), of both misspellings and plurals, and how many pairs of neighbours were
taken for one word. The vectors of the tags are those of ridge regression.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.vocabulary import Vocabulary
from visterm.models.blend.kept import tag_vectors
from visterm.models.linear.ridge import Ridge
from visterm.tagging.tag_groups import alias_pairs, aliases_of, kind_of_slip

LETTERS = "bcdfghklmnprstvz"
VOWELS = "aeiou"
DIM, TOPICS = 64, 8


class Library(NamedTuple):
    """A planted library.

    Attributes
    ----------
    vocabulary : Vocabulary
    U : ndarray of float32, shape (n_photos, 64)
        Features.
    Y : csr_array of float64, shape (n_photos, n_tags)
        Ones where a photo has a tag.
    means : dict of str to str
        Misspellings and plurals, and the words that they mean.
    neighbours : list of pairs of str
        Different words that are a slip or two apart.
    """

    vocabulary: Vocabulary
    U: NDArray[np.float32]
    Y: sp.csr_array
    means: dict[str, str]
    neighbours: list[tuple[str, str]]


def planted(n_pairs: int, n_photos: int, seed: int) -> Library:
    """Draw a library."""
    rng = np.random.default_rng(seed)
    used: set[str] = set()
    words = [_new_word(rng, used) for _ in range(5 * n_pairs)]
    near = {word: _slipped(rng, word, used) for word in words[n_pairs : 2 * n_pairs]}
    concepts = [*words, *near.values()]
    other: dict[str, tuple[str, float]] = {}
    for number, word in enumerate(words[:n_pairs]):
        if number % 3:
            other[word] = _slipped(rng, word, used), float(np.exp(rng.uniform(np.log(0.01), np.log(0.4))))
        else:
            other[word] = _plural(word, used), rng.uniform(0.1, 0.6)
    for word in list(near.values())[::4]:
        other[word] = _plural(word, used), rng.uniform(0.1, 0.6)
    topic = rng.integers(TOPICS, size=len(concepts))
    directions = 2 * rng.normal(size=(TOPICS, DIM))[topic] + rng.normal(size=(len(concepts), DIM))
    weights = 1 / (5 + rng.permutation(len(concepts)))
    of_topic = [np.flatnonzero(topic == number) for number in range(TOPICS)]
    features = rng.normal(size=(n_photos, DIM)) * 3
    tag_lists = []
    for photo in range(n_photos):
        topics = rng.choice(TOPICS, rng.integers(1, 3), replace=False)
        choice = np.concatenate([of_topic[number] for number in topics])
        n_shown = min(len(choice), rng.integers(2, 7))
        shown = rng.choice(choice, n_shown, replace=False, p=weights[choice] / weights[choice].sum())
        features[photo] += directions[shown].sum(axis=0)
        spelled = ((concepts[i], *other.get(concepts[i], ("", 0.0))) for i in shown)
        tag_lists.append([variant if rng.random() < share else word for word, variant, share in spelled])
    vocabulary = Vocabulary.from_lists(tag_lists)
    there = set(vocabulary)
    means = {variant: word for word, (variant, _) in other.items() if {variant, word} <= there}
    pairs = [pair for pair in near.items() if there.issuperset(pair)]
    Y = sp.csr_array(vocabulary.encode(tag_lists), dtype=np.float64)
    return Library(vocabulary, features.astype(np.float32), Y, means, pairs)


def measured(libraries: Sequence[Library], *, photos: bool) -> dict[str, Any]:
    """Return how right the suggestions are, with the photos or by the tag vectors alone."""
    counts: Counter[str] = Counter()
    for library in libraries:
        V = tag_vectors(Ridge().fit(library.U, sp.csr_array(library.Y, dtype=np.float32)))
        pairs = alias_pairs(library.vocabulary, V, *((library.Y, library.U) if photos else ()))
        found = {alias.alias: alias.tag for alias in aliases_of(library.vocabulary, pairs)}

        def is_found(pair: tuple[str, str], found: dict[str, str] = found) -> bool:
            return found.get(pair[0]) == pair[1] or found.get(pair[1]) == pair[0]

        counts["suggestions"] += len(found)
        counts["neighbours"] += sum(map(is_found, library.neighbours))
        for other, word in library.means.items():
            kind = "plurals" if other.endswith("s") else "misspellings"
            counts[kind] += 1
            counts[f"right {kind}"] += is_found((other, word))
    right = counts["right plurals"] + counts["right misspellings"]
    return {
        "suggestions": counts["suggestions"],
        "precision": right / max(1, counts["suggestions"]),
        "recall": right / (counts["plurals"] + counts["misspellings"]),
        "recall of misspellings": counts["right misspellings"] / counts["misspellings"],
        "recall of plurals": counts["right plurals"] / counts["plurals"],
        "neighbours taken for one word": counts["neighbours"],
    }


def _new_word(rng: np.random.Generator, used: set[str]) -> str:
    """Draw a word of two to four syllables that does not end in -s and isn't used yet."""
    while True:
        syllables = ["".join(rng.choice(list(kind)) for kind in (LETTERS, VOWELS)) for _ in range(rng.integers(2, 5))]
        word = "".join(syllables) + rng.choice(["", "n", "r", "t", "l"])
        if word not in used and f"{word}s" not in used:
            used.add(word)
            return word


def _slipped(rng: np.random.Generator, word: str, used: set[str]) -> str:
    """Return a word with one slip, or in one of five cases two, behind its first letter."""
    while True:
        slipped = word
        for _ in range(1 + (rng.random() < 0.2 and len(word) > 6)):
            at = int(rng.integers(1, len(slipped)))
            kind = rng.integers(4)
            letter = rng.choice(list(LETTERS + VOWELS))
            if kind == 0:
                slipped = slipped[:at] + slipped[at + 1 :]
            elif kind == 1:
                slipped = slipped[:at] + letter + slipped[at:]
            elif kind == 2:
                slipped = slipped[:at] + letter + slipped[at + 1 :]
            else:
                slipped = slipped[: at - 1] + slipped[at : at + 1] + slipped[at - 1 : at] + slipped[at + 1 :]
        is_other = slipped not in used and not slipped.endswith("s") and len(slipped) > 3 and slipped[0] == word[0]
        if is_other and kind_of_slip(word, slipped) is not None:
            used.add(slipped)
            return slipped


def _plural(word: str, used: set[str]) -> str:
    used.add(f"{word}s")
    return f"{word}s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where the results are written, as JSON")
    parser.add_argument("--libraries", type=int, default=20, help="how many libraries (20)")
    parser.add_argument("--pairs", type=int, default=30, help="planted pairs, and pairs of neighbours, of each (30)")
    parser.add_argument("--photos", type=int, default=1500, help="photos of each (1,500)")
    parser.add_argument("--seed", type=int, default=0, help="of the first library")
    chosen = parser.parse_args()
    libraries = [planted(chosen.pairs, chosen.photos, chosen.seed + n) for n in range(chosen.libraries)]
    results = {
        "libraries": chosen.libraries,
        "photos": chosen.photos * chosen.libraries,
        "tags": sum(len(library.vocabulary) for library in libraries),
        "planted pairs": sum(len(library.means) for library in libraries),
        "neighbours": sum(len(library.neighbours) for library in libraries),
        "with photos": measured(libraries, photos=True),
        "without photos": measured(libraries, photos=False),
    }
    chosen.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
