"""Data sets that benchmarks learn from: Corel5k and Delicious as features and tags, and drawn ones of a drawn shape."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from visterm.core.vocabulary import Vocabulary
from visterm.data import read_mulan
from visterm.data.corpus import Corpus
from visterm.data.tag_queries import hold_one_out
from visterm.encoders.named import make_encoder
from visterm.features.training_rows import encode_corpus
from visterm.metrics import average_precisions
from visterm_research.comparison.image_problems import unit_rows
from visterm_research.data.drawn_tags import draw_dictionary, draw_pairs, draw_visterms
from visterm_research.scenes import draw_library


@dataclass
class Rows:
    """Rows to learn from, and rows to judge by; `known` are tags that rankings leave out."""

    X: Any  # None: by number
    Y: sp.csr_array
    judged: Any  # Features, or numbers of images
    right: sp.csr_array
    known: sp.csr_array | None = None

    def judge(self, model: Any) -> float:
        """Return MAP over the judged images."""
        blocks = model.score_blocks(self.features(self.judged))
        scores = np.concatenate([block for _, block in blocks])
        return float(np.nanmean(average_precisions(scores, self.right, exclude=self.known)))

    def features(self, judged: Any) -> Any:
        """Return the rows of judged images."""
        return judged if self.X is not None else sp.eye_array(self.Y.shape[0], dtype=np.float32, format="csr")[judged]


@dataclass
class Problem:
    """A data set, parted twice: to choose by, and for the end."""

    name: str
    source: str
    about: str
    choose: Rows
    final: Rows


def chosen_by(name: str, only: Sequence[str]) -> bool:
    """Return whether a name has one of these parts; without parts, all are chosen."""
    return not only or any(part in name for part in only)


def nuswide(folder: Path) -> sp.csr_array:
    """Return the tags of NUS-WIDE's images."""
    lines = (folder / "labels.tsv").read_text(encoding="utf-8").splitlines()[1:]
    lists = [line.split("\t")[1].split(",") for line in lines]
    return sp.csr_array(Vocabulary.from_lists(lists).encode(lists))


def drawn_scenes(cache: Path, n_scenes: int) -> tuple[Any, sp.csr_array]:
    """Return visterms and people's tags of drawn scenes, from the cache if they are there."""
    path = cache / "scenes.npz"
    if not path.exists():
        library, made = draw_library(cache / "scenes", n_scenes=n_scenes, seed=5), make_encoder("visterms", {}, {})
        corpus = Corpus.read(library.images, library.tags_file)
        made.fit(corpus.images)
        X, Y, _ = encode_corpus(made, corpus, Vocabulary.from_lists(corpus.tags, min_count=2))
        np.savez_compressed(path, X=sp.csr_array(X).toarray(), Y=sp.csr_array(Y).toarray())
    with np.load(path) as arrays:
        return sp.csr_array(arrays["X"]), sp.csr_array(arrays["Y"] > 0, dtype=np.float32)


def with_features(name: str, source: str, X: Any, Y: Any, X_test: Any, Y_test: Any) -> Problem:
    """Hold a tenth of the training rows out to choose by."""
    order = np.random.default_rng(0).permutation(Y.shape[0])
    held, kept = np.sort(order[: len(order) // 10]), np.sort(order[len(order) // 10 :])
    Y, Y_test = sp.csr_array(Y), sp.csr_array(Y_test)
    about = f"{Y.shape[0]:,} images × {X.shape[1]:,} features, {Y.shape[1]:,} tags, {Y.nnz:,} pairs"
    return Problem(name, source, about, Rows(X[kept], Y[kept], X[held], Y[held]), Rows(X, Y, X_test, Y_test))


def by_number(name: str, source: str, Y: sp.csr_array, at_most: int = 2_000) -> Problem:
    """Hold out one tag of some images for the end, and of the rest to choose by."""
    final = hold_one_out(Y, np.random.default_rng(0), at_most=at_most)
    choose = hold_one_out(final.rest, np.random.default_rng(1), at_most=at_most)
    about = f"{Y.shape[0]:,} images × {Y.shape[1]:,} tags, {Y.nnz:,} pairs"
    both = (Rows(None, held.rest, held.images, held.held, held.known) for held in (choose, final))
    return Problem(name, source, about, *both)


def drawn_pairs(rng: np.random.Generator, n_images: int) -> sp.csr_array:
    """Draw pairs of a shape that is drawn, too."""
    n_tags, shape = int(np.exp(rng.uniform(np.log(300), np.log(10_000)))), drawn_shape(rng)
    return draw_pairs(n_images, draw_dictionary(n_tags, exponent=shape.pop("exponent"), random_state=rng), **shape)


def drawn_features(rng: np.random.Generator, n_images: int) -> Problem:
    """Draw visterms of a shape that is drawn, too; a fifth of the images is for the end."""
    n_tags = int(np.exp(rng.uniform(np.log(100), np.log(1_000))))
    drawn = draw_visterms(n_images, n_tags, **drawn_shape(rng))
    n = n_images * 4 // 5
    rows = (sp.csr_array(part) for part in (drawn.X[:n], drawn.Y[:n], drawn.X[n:], drawn.Y[n:]))
    return with_features("drawn, features", "drawn visterms", *rows)


def drawn_shape(rng: np.random.Generator) -> dict[str, Any]:
    """Draw tags an image, skew and noise."""
    tags_an_image, exponent, noise = rng.uniform((2, 0.5, 0.05), (12, 1.1, 0.3))
    return {"tags_an_image": tags_an_image, "exponent": exponent, "noise": noise, "random_state": rng}


def blobs(folder: Path) -> list[Any]:
    """Read Corel5k's blobs as visterms are: √tf · idf, rows of unit length."""
    tables = []
    for name in ("blobs.tsv", "labels.tsv"):
        with open(folder / name, encoding="utf-8") as lines:
            tables.append({row["image"]: row for row in csv.DictReader(lines, delimiter="\t")})
    images = [[i for i in tables[0] if i in tables[1] and tables[1][i]["split"] == part] for part in ("train", "test")]
    tags = [[tables[1][image]["labels"].split(",") for image in part] for part in images]
    vocabulary = Vocabulary.from_lists(tags[0])
    words = [[[int(word) for word in tables[0][image]["blobs"].split()] for image in part] for part in images]
    n_words = 1 + max(word for part in words for image in part for word in image)
    found, seen = [], np.zeros(0)
    for part, own in zip(words, tags, strict=True):
        at = np.repeat(np.arange(len(part)), [len(image) for image in part])
        columns = np.concatenate([np.asarray(image, np.int64) for image in part])
        counts = sp.csr_array((np.ones(at.size), (at, columns)), shape=(len(part), n_words))
        if not seen.size:
            seen = np.maximum(1, np.bincount(counts.indices, minlength=n_words))
        counts.data = np.sqrt(counts.data) * np.log(len(words[0]) / seen)[counts.indices]
        known = [[tag for tag in each if tag in set(vocabulary.tags)] for each in own]
        found += [unit_rows(counts), vocabulary.encode(known)]
    return found


def delicious(shared: Path) -> list[Any]:
    """Return words of length 1 and tags of Delicious' training and test pages."""
    folder = shared / "data" / "delicious"
    parts = [read_mulan(folder / f"delicious-{part}.arff", folder / "delicious.xml") for part in ("train", "test")]
    return [matrix for part in parts for matrix in (unit_rows(part.X), part.Y)]


def corel5k(shared: Path, cache: Path, kind: str) -> list[Any]:
    """Return Corel5k's features ("network", "visterms" or "blobs") and tags, of training and test photos."""
    folder, network = shared / "data" / "corel5k", f"onnx:{shared / 'models' / 'mobilenet_v2.onnx'}"
    if kind == "blobs":
        return blobs(folder)
    encoder, params = (network, {"output": "features"}) if kind == "network" else ("visterms", {})
    return encoded(folder, encoder, params, cache / kind)


def stacked(matrices: Sequence[Any]) -> tuple[Any, sp.csr_array]:
    """Join features, tags, features, tags, ... of several parts."""
    X, Y = matrices[::2], [sp.csr_array(part) for part in matrices[1::2]]
    return sp.csr_array(sp.vstack(X)) if sp.issparse(X[0]) else np.vstack(X), sp.csr_array(sp.vstack(Y))


def encoded(folder: Path, encoder: str, params: dict[str, Any], cache: Path) -> list[Any]:
    """Return features and tags of Corel5k's training and test photos, from the cache if they are there."""
    path = cache.with_suffix(".npz")
    if not path.exists():
        corpus = Corpus.read(folder / "images", folder / "labels.tsv")
        train, test = corpus.select("train"), corpus.select("test")
        vocabulary, made = Vocabulary.from_lists(train.tags), make_encoder(encoder, params, {"random_state": 0})
        made.fit(train.images)
        rows = [matrix for part in (train, test) for matrix in encode_corpus(made, part, vocabulary)[:2]]
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, *(m.toarray() if sp.issparse(m) else m for m in rows))
    with np.load(path) as held:
        arrays = [held[f"arr_{number}"] for number in range(4)]
    return [sp.csr_array(m) if np.count_nonzero(m) < 0.1 * m.size else m for m in arrays]
