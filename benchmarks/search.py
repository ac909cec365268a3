"""Milliseconds of a query: typed words against a catalogue of 5,000 images.

A catalogue is searched as users do: written to disk, opened, and asked for ``snow tree``, from the text to the names of
ten images with their confidences. Beside it stand its parts, and the stream of its rows. One is of an embedding (rows
of width 100), one of a linear model over visterms (rows of 500 features in 10,000). All sides take turns. A million
rows are searched by catalogue.py and said_at_once.py.

    python benchmarks/search.py --json search.json
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.runs import machine, options, parse, say, spread, write
from harness.turns import in_turns
from numba import njit
from threadpoolctl import threadpool_limits

from visterm.core.threads import resolve_jobs, standing_team
from visterm.core.vocabulary import Vocabulary
from visterm.encoders.by_name import Precomputed
from visterm.library.catalogue import Catalogue
from visterm.models.confidence.calibration import Calibration
from visterm.models.pamir.pamir import Pamir
from visterm.models.ranking.wsabie import Wsabie
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import NewImage
from visterm.tagging.tagger import Tagger

QUERY = "snow tree"
K = 10
DIM = 100

TAGS = 260
"""Of Corel5k, as are 5,000 images."""

VISTERMS, VISTERMS_AN_IMAGE = 10_000, 500

GOAL_MS = 0.34
PARTS_A_THREAD = 8


@njit(cache=True, nogil=True, fastmath=True)
def added_up(values):
    """Read all values, at the speed at which they come."""
    total = np.float32(0.0)
    for i in range(values.shape[0]):
        total += values[i]
    return total


def streams(U: np.ndarray, q: np.ndarray, n_threads: int) -> dict[str, Callable[[], Any]]:
    """Return ways to read a matrix once."""
    parts = np.array_split(U.reshape(-1), n_threads * PARTS_A_THREAD)
    team = standing_team(n_threads)
    return {
        "stream: numpy matrix-vector": lambda: U @ q,
        "stream: sum in numba": lambda: team.run(lambda i: added_up(parts[i]), len(parts)),
    }


def encoder_of_rows(folder: Path, width: int) -> Precomputed:
    """Return a fitted encoder whose rows are of any width: it reads them from a file, here one of a single row."""
    np.save(folder / "rows.npy", np.ones((1, width), np.float32))
    (folder / "names.txt").write_text("0.jpg\n", encoding="utf-8")
    return Precomputed(path=str(folder / "rows.npy"), names=str(folder / "names.txt")).fit(["0.jpg"])


def catalogue_of(model: Any, U: Any, folder: Path) -> tuple[Catalogue, StoredCatalogue]:
    """Write a catalogue of such rows, and open it."""
    tags = [*(f"tag{i}" for i in range(TAGS - 2)), "snow", "tree"]
    vocabulary = Vocabulary(tags, np.random.default_rng(1).integers(1, U.shape[0] // 3, TAGS))
    made = Catalogue(
        Tagger.from_parts(encoder_of_rows(folder, model.n_features_in_), model, vocabulary, {"images": U.shape[0]})
    )
    names = [f"photos/{i:05d}.jpg" for i in range(U.shape[0])]
    made.tagger.parts = made.tagger.parts.changed(calibration=Calibration(np.ones(TAGS), np.zeros(TAGS), 0.5, 500))
    made.stored.add([NewImage(name, f"/library/{name}", 40_000, 192, 128, "0" * 64) for name in names], U)
    made.save(folder / "catalogue")
    opened = Catalogue.load(folder / "catalogue")
    return opened, opened.stored


def embedding(n_images: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Draw a joint space, and image rows in it."""
    model = Wsabie(dim=DIM)
    model.n_features_in_, model.n_tags_, model.n_epochs_, model.history_ = 2, TAGS, 1, []
    model.scale_ = 1.0
    model.image_map_ = np.zeros((2, DIM), np.float32)
    model.tag_rows_ = rng.standard_normal((TAGS, DIM), np.float32)
    return model, rng.standard_normal((n_images, DIM), np.float32)


def linear(n_images: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Draw a scorer of visterms, and image rows of few of them."""
    model = Pamir()
    model.n_features_in_, model.n_tags_, model.n_epochs_, model.history_ = VISTERMS, TAGS, 1, []
    model.scale_ = 1.0
    model.tag_rows_ = rng.standard_normal((TAGS, VISTERMS + 1), np.float32)
    columns = np.concatenate([np.sort(rng.permutation(VISTERMS)[:VISTERMS_AN_IMAGE]) for _ in range(n_images)])
    values = rng.random(columns.size, np.float32) + np.float32(0.1)
    starts = np.arange(0, columns.size + 1, VISTERMS_AN_IMAGE)
    X = sp.csr_array((values, columns.astype(np.int32), starts.astype(np.int32)), shape=(n_images, VISTERMS))
    return model, model.image_rows(X)


def by_words(name: str, model: Any, U: Any, runs: int, n_threads: int) -> dict[str, Any]:
    """Time typed queries, and their parts."""
    with tempfile.TemporaryDirectory() as made:
        catalogue, stored = catalogue_of(model, U, Path(made))
        plain = Catalogue.load(Path(made) / "catalogue")
        plain.tagger.parts = plain.tagger.parts.changed(calibration=None)
        words = catalogue.tagger.query_weights(QUERY).weights
        q = model.query_rows(words)
        calls: dict[str, Callable[[], Any]] = {
            "words to images": lambda: catalogue.search(QUERY, K),
            "words to weights": lambda: catalogue.tagger.query_weights(QUERY),
            "weights to query row": lambda: model.query_rows(words),
            "query row to rows": lambda: stored.search(q, K),
            "words to images, without confidences": lambda: plain.search(QUERY, K),
        }
        values = U.data if sp.issparse(U) else U
        calls |= {"stream of the rows": streams(np.ascontiguousarray(values), np.zeros(1), n_threads).popitem()[1]}
        seconds = in_turns(calls, runs, 200)
    say(f"\n{QUERY!r} among {U.shape[0]:,} images, {name}; medians of {runs} turns")
    for side, turns in seconds.items():
        say(f"  {side:38s}{1e3 * spread(turns)['median']:9.3f} ms (least {1e3 * min(turns):.3f})")
    return {"images": U.shape[0], "seconds": {side: spread(turns) for side, turns in seconds.items()}}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--images", type=int, default=5_000, help="of the catalogues")
    chosen = parse(parser)
    n_images = 300 if chosen.quick else chosen.images
    n_threads = resolve_jobs(None)
    rng = np.random.default_rng(0)
    result: dict[str, Any] = {"machine": machine(), "threads": n_threads}
    with threadpool_limits(n_threads):
        sides = {"an embedding of width 100": embedding, "a linear model over visterms": linear}
        for name, draw in sides.items():
            result[name] = by_words(name, *draw(n_images, rng), chosen.runs, n_threads) | {"goal": GOAL_MS / 1e3}
    write(result, chosen.json)


if __name__ == "__main__":
    main()
