"""One set of defaults on data of different make: ours beside the rivals' best over grids of their own.

Corel5k (visterms, features of a network, blobs), Delicious (words as features, and by number), NUS-WIDE by number, and
two drawn families, with features and by number, whose shape is drawn anew in each run (`--seed` repeats one). For each
source of data the defaults are chosen on the others, by validation rows, and then meet its test rows. A rival meets the
test rows with all of its grid, and the best counts. By number one tag an image is held out, else a tenth of the rows.

    python benchmarks/defaults.py ../shared --cache CACHE --lightfm-python RIVALS/bin/python \
        --pecos-python PECOS/bin/python --json docs/figures/defaults.json
"""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.child import Child, RivalError
from harness.grids import grid
from harness.judged import Judge
from harness.race import Limits, explore
from harness.runs import machine, options, say, write
from harness.sides import Theirs, hand_over
from train_by_number import nuswide, warm_up

from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.held_tags import hold_one_out
from visterm.encoders.named import make_encoder
from visterm.features.training_rows import encode_corpus
from visterm_research.comparison.image_problems import unit_rows
from visterm_research.data.drawn_tags import draw_dictionary, draw_pairs, draw_visterms
from visterm_research.data.mulan import read_mulan

CANDIDATES: list[dict[str, Any]] = [{}, {"learning_rate": 0.1}, {"max_norm": 1.3}]
"""Settings that could be the defaults for everything: those that are, and others near."""

LIGHTFM = grid(learning_rate=[0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1])
BPR = grid(learning_rate=[0.01, 0.05], regularization=[0.01, 0.05])
RIDGE = grid(alpha=[0.1, 0.3, 1.0, 3.0, 10.0])
PECOS = grid(tree=[False, True], cost=[0.3, 1.0])

JUDGED = 2_000  # Images of a set by number whose held-out tags are judged
NUS_IMAGES = 60_000


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
        return Judge(self.right, self.known).scores(scores)

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


def with_features(name: str, source: str, X: Any, Y: Any, X_test: Any, Y_test: Any) -> Problem:
    """Hold a tenth of the training rows out to choose by."""
    order = np.random.default_rng(0).permutation(Y.shape[0])
    held, kept = np.sort(order[: len(order) // 10]), np.sort(order[len(order) // 10 :])
    Y, Y_test = sp.csr_array(Y), sp.csr_array(Y_test)
    about = f"{Y.shape[0]:,} images × {X.shape[1]:,} features, {Y.shape[1]:,} tags, {Y.nnz:,} pairs"
    return Problem(name, source, about, Rows(X[kept], Y[kept], X[held], Y[held]), Rows(X, Y, X_test, Y_test))


def by_number(name: str, source: str, Y: sp.csr_array) -> Problem:
    """Hold out one tag of some images for the end, and of the rest to choose by."""
    final = hold_one_out(Y, np.random.default_rng(0), at_most=JUDGED)
    choose = hold_one_out(final.rest, np.random.default_rng(1), at_most=JUDGED)
    about = f"{Y.shape[0]:,} images × {Y.shape[1]:,} tags, {Y.nnz:,} pairs"
    both = (Rows(None, held.rest, held.images, held.held, held.known) for held in (choose, final))
    return Problem(name, source, about, *both)


def problems(shared: Path, cache: Path, seed: int, *, quick: bool) -> Iterator[Problem]:
    """Yield the data sets; in a quick run only drawn ones, small."""
    rng = np.random.default_rng(seed)
    yield by_number("drawn, by number", "drawn pairs", drawn_pairs(rng, 1_500 if quick else 12_500))
    yield drawn_features(rng, 800 if quick else 4_000)
    if quick:
        return
    corel, delicious = shared / "data" / "corel5k", shared / "data" / "delicious"
    yield with_features("Corel5k, blobs", "corel5k", *blobs(corel))
    Y = nuswide(shared / "data" / "nuswide")
    some = np.sort(np.random.default_rng(0).permutation(Y.shape[0])[:NUS_IMAGES])
    yield by_number("NUS-WIDE, by number", "nuswide", sp.csr_array(Y[some]))
    network = f"onnx:{shared / 'models' / 'mobilenet_v2.onnx'}"
    encoders: dict[str, tuple[str, dict[str, Any]]] = {
        "network": (network, {"output": "features"}),
        "visterms": ("visterms", {}),
    }
    for name, (encoder, params) in encoders.items():
        yield with_features(f"Corel5k, {name}", "corel5k", *encoded(corel, encoder, params, cache / name))
    parts = [
        read_mulan(delicious / f"delicious-{part}.arff", delicious / "delicious.xml") for part in ("train", "test")
    ]
    rows = [matrix for part in parts for matrix in (unit_rows(part.X), part.Y)]
    yield with_features("Delicious, words", "delicious", *rows)
    yield by_number("Delicious, by number", "delicious", sp.csr_array(parts[0].Y))


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


class Fitted:
    """One of our models as a side: one fit, from the rows to what can annotate, and one MAP."""

    def __init__(self, model: str, rows: Rows, fixed: dict[str, Any]) -> None:
        self.name, self._rows, self._fixed = model, rows, fixed
        self.epochs: int | None = None

    def train(self, settings: dict[str, Any], seed: int, judged: Callable[[float, float], bool]) -> None:
        """Fit and judge."""
        model = MODELS.create(self.name, **self._fixed, **settings, random_state=seed)
        start = time.perf_counter()
        model.fit(self._rows.X, self._rows.Y)
        seconds = time.perf_counter() - start
        self.epochs = getattr(model, "n_epochs_", None)
        judged(seconds, self._rows.judge(model))


class Pecos:
    """PECOS: one training, one MAP."""

    def __init__(self, child: Child, folder: Path, judge: Judge) -> None:
        self.name = f"pecos {child.version}"
        self._child, self._judge, self._path = child, judge, str(folder / "scores.npy")

    def train(self, settings: dict[str, Any], seed: int, judged: Callable[[float, float], bool]) -> None:
        """Fit and judge."""
        seconds = self._child.ask("train", **settings, seed=seed)["seconds"]
        self._child.ask("save", scores=self._path)
        judged(seconds, self._judge.scores(np.load(self._path)))


def best_of(curves: list[Any]) -> dict[str, Any]:
    """Return the best MAP of a grid, and what it took."""
    curve = max(curves, key=lambda each: each.best())
    return {"map": curve.best(), "settings": curve.settings, "seconds": curve.time_to(curve.best())}


def rivals(problem: Problem, chosen: Any, folder: Path, limits: Limits) -> dict[str, Any]:
    """Return what each rival reaches on the test rows, the best of its grid."""
    rows, found = problem.final, {}
    few = slice(1 if chosen.quick else None)
    if rows.X is not None:
        ridge = Fitted(
            "ridge", rows, {"n_jobs": chosen.threads} if "n_jobs" in MODELS.load("ridge")().get_params() else {}
        )
        found["ridge"] = best_of(explore(ridge, RIDGE[few], limits))
    arrays = {"pairs": hand_over(folder / "pairs.npz", rows.Y, rows.judged if rows.X is None else np.arange(0))}
    judge = Judge(rows.right, rows.known)
    if rows.X is None:
        sides = {
            "lightfm": (chosen.lightfm_python, "lightfm_warp.py", LIGHTFM, {"no_components": 100}),
            "implicit": (chosen.lightfm_python, "implicit_bpr.py", BPR, {"factors": 100}),
        }
    else:
        for name, matrix in (("features", rows.X), ("judged", rows.judged)):
            np.save(folder / f"{name}.npy", matrix.toarray() if sp.issparse(matrix) else matrix)
            arrays[name] = str(folder / f"{name}.npy")
        sides = {"pecos": (chosen.pecos_python, "pecos_xlinear.py", PECOS, {})}
    for name, (python, script, settings, fixed) in sides.items():
        try:
            with Child(python, script, chosen.threads) as child:
                child.ask("load", **arrays, threads=chosen.threads)
                side: Any = Theirs(child, name, folder, judge, fixed) if rows.X is None else Pecos(child, folder, judge)
                found[name] = best_of(explore(side, settings[few], limits))
        except RivalError as error:
            say(f"  {name} is missing: {error}")
            found[name] = {"missing": str(error)}
    return found


def chosen_without(source: str, found: list[dict[str, Any]]) -> int:
    """Return which of the candidates is nearest to the best on the validation rows of all other sources."""
    others = [each["validation"] for each in found if each["source"] != source]
    return int(np.argmax(np.mean([np.array(values) - max(values) for values in others], axis=0))) if others else 0


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, nargs="?", help="the folder that holds data and models")
    parser.add_argument("--cache", type=Path, default=Path("encoded"), help="where encoded photos are kept")
    parser.add_argument("--model", default="wsabie")
    parser.add_argument("--only", metavar="TEXT", default="", help="sets with this in their name alone")
    parser.add_argument("--seed", type=int, help="of the drawn families; without, the clock's")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lightfm-python", type=Path, metavar="PATH", help="has implicit, too")
    parser.add_argument("--pecos-python", type=Path, metavar="PATH")
    parser.add_argument("--most-seconds", type=float, default=60, help="of one training of a rival")
    chosen = parser.parse_args()
    if chosen.shared is None and not chosen.quick:
        parser.error("Name the folder with the data, or pass --quick.")
    seed = time.time_ns() % 2**31 if chosen.seed is None else chosen.seed
    limits = Limits(patience=4, epochs=2 if chosen.quick else 150, seconds=chosen.most_seconds)
    found: list[dict[str, Any]] = []
    result: dict[str, Any] = {"machine": machine(), "threads": chosen.threads, "seed": seed, "candidates": CANDIDATES}
    result["sets"] = found
    fixed = {"n_jobs": chosen.threads}
    warm_up(chosen)
    every = problems(chosen.shared, chosen.cache, seed, quick=chosen.quick)
    sets = [one for one in every if chosen.only in one.name]
    for one in sets:
        say(f"\n{one.name}: {one.about}")
        tried = explore(Fitted(chosen.model, one.choose, fixed), CANDIDATES, limits)
        about = {"name": one.name, "source": one.source, "about": one.about}
        found.append(about | {"validation": [curve.best() for curve in tried]})
    say("\non test rows, with the defaults chosen on the other sources")
    for one, entry in zip(sets, found, strict=True):
        ours = Fitted(chosen.model, one.final, fixed)
        for name, settings in (("ours", CANDIDATES[chosen_without(one.source, found)]), ("ours, as they are", {})):
            entry[name] = best_of(explore(ours, [settings], limits))
            entry[name]["epochs"] = ours.epochs
        write(result, chosen.json)
    with tempfile.TemporaryDirectory() as folder:
        for one, entry in zip(sets, found, strict=True):
            say(f"\nrivals: {one.name}")
            theirs = entry["rivals"] = rivals(one, chosen, Path(folder), limits)
            ran = [name for name in theirs if "map" in theirs[name]]
            if ran:
                name = max(ran, key=lambda each: theirs[each]["map"])
                entry["over the best rival"] = entry["ours"]["map"] - theirs[name]["map"]
                entry["seconds of the best rival over ours"] = theirs[name]["seconds"] / entry["ours"]["seconds"]
                say(f"  ours is {entry['over the best rival']:+.4f} to {name}")
            write(result, chosen.json)


if __name__ == "__main__":
    main()
