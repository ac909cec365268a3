"""A WordNet of a few synsets in files of its format, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

LICENCE = "  1 This database was made up by hand for these tests, in WordNet's format.  \n"


def write_wordnet(folder: Path, synsets: Sequence[tuple[str, Sequence[str], str]], exceptions: str = "") -> None:
    """Write ``data.noun``, ``index.noun`` and ``noun.exc``.

    A synset is its words, its pointers ("animal": a hypernym; "%p leg": of this symbol), each to the first synset with
    that first word, and its gloss. Places do not change the lengths of lines, so that they are found first.
    """
    place: dict[str, int] = {}
    zeros = {words.split()[0]: 0 for words, _, _ in synsets}
    at = len(LICENCE)
    for words, pointers, gloss in synsets:
        place.setdefault(words.split()[0], at)
        at += len(_line(0, zeros, words, pointers, gloss))
    data = LICENCE
    senses: dict[str, list[int]] = {}
    for words, pointers, gloss in synsets:
        for word in words.split():
            senses.setdefault(word.lower(), []).append(len(data))
        data += _line(len(data), place, words, pointers, gloss)
    index = LICENCE + "".join(
        f"{word} n {len(there)} 2 @ ~ {len(there)} 0 {' '.join(f'{offset:08d}' for offset in there)}  \n"
        for word, there in sorted(senses.items())
    )
    folder.mkdir(exist_ok=True)
    for name, text in (("data.noun", data), ("index.noun", index), ("noun.exc", exceptions)):
        (folder / name).write_text(text, encoding="utf-8", newline="")


def _line(at: int, place: dict[str, int], words: str, pointers: Sequence[str], gloss: str) -> str:
    names = words.split()
    targets = [(pointer.split()[-1], pointer.rpartition(" ")[0] or "@") for pointer in pointers]
    targets.append((next(iter(place)), "~"))  # a hyponym, which no reader wants
    parts = [f"{at:08d} 05 n {len(names):02x}", *(f"{name} 0" for name in names), f"{len(targets):03d}"]
    return " ".join([*parts, *(f"{symbol} {place[to]:08d} n 0000" for to, symbol in targets), f"| {gloss}  \n"])
