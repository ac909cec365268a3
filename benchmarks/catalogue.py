"""A catalogue of many rows: how long it takes to open, to search exactly, through faiss and among filtered images.

Rows of width 100 are drawn around scenes, with a spectrum that decays as that of image rows does; queries are drawn
from the same spectrum, and half of them serve to measure the index, half to measure what it finds. Goals: exact search
within 1.3 times of the stream (the rows read once, by the fastest of two ways), the ten best by faiss with a recall of
0.98 or more under 1 ms, opening under 1 s. Each is beside the size from which an index pays at all.

With `--models`, rows are those of `wsabie` instead, trained on drawn visterms and, where SHARED is given, on Corel5k
(MobileNet features and visterms): mixtures of two photos with 70 % of their features. The catalogue measures its index
as `visterm index` does, on half of the tags; it is judged on searches for the other tags, for two of them, and on rows
of photos. Each query is timed by the wall and by its thread, which is what a quiet core needs.

    python benchmarks/catalogue.py --json catalogue.json
    python benchmarks/catalogue.py --models SHARED --cache FOLDER --sizes 1000000 --json index_queries.json
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.data_sets import corel5k
from harness.runs import machine, options, parse, ratios, say, spread, write
from harness.turns import in_turns
from search import streams

from visterm.core.persist import new_folder
from visterm.core.threads import resolve_jobs
from visterm.library.runs import sample_queries
from visterm.models.ranking.wsabie import Wsabie
from visterm.store import stored_rows
from visterm.store.catalogue import Origin, StoredCatalogue
from visterm.store.current_rows import ArrayPart, CurrentRows
from visterm.store.images import NewImage
from visterm_research.comparison.image_problems import unit_rows
from visterm_research.data.drawn_tags import draw_visterms

WIDTH, K, QUERIES = 100, 10, 200
SIZES, SHARES = (10_000, 100_000, 1_000_000), (0.5, 0.01, 0.001)
KEPT = 0.7  # Share of the features of a photo that a mixture takes over
GOALS = {"stream": 1.3, "recall": 0.98, "faiss_seconds": 1e-3, "open_seconds": 1.0}


def drawn(n_rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows around scenes, 200 rows a scene, and queries."""
    spectrum = (1 / np.sqrt(1 + np.arange(WIDTH))).astype(np.float32)
    spectrum /= np.sqrt((spectrum**2).mean())
    scenes = rng.standard_normal((max(50, n_rows // 200), WIDTH), np.float32) * spectrum
    U = np.empty((n_rows, WIDTH), np.float32)
    for start in range(0, n_rows, 50_000):
        block = U[start : start + 50_000]
        block[:] = rng.standard_normal(block.shape, np.float32) * spectrum * np.float32(0.5)
        block += scenes[rng.integers(0, len(scenes), len(block))]
    return U, rng.standard_normal((QUERIES, WIDTH), np.float32) * spectrum


def empty_catalogue(folder: Path) -> StoredCatalogue:
    """Make an empty catalogue in a folder."""
    with new_folder(folder, "catalogue", changing=True) as temporary:
        StoredCatalogue(Origin("", "f00d")).write_into(temporary)
    return StoredCatalogue.open(folder)


def add_rows(stored: StoredCatalogue, U: np.ndarray) -> float:
    """Add images with such rows, 10,000 in a transaction, and say how long it took."""
    start = time.perf_counter()
    for first in range(0, len(U), 10_000):
        block = U[first : first + 10_000]
        names = (f"{first + i:08d}.jpg" for i in range(len(block)))
        stored.add([NewImage(name, f"/library/{name}", 40_000, 192, 128, "0" * 64) for name in names], block)
    return time.perf_counter() - start


def exactly(rows: CurrentRows) -> CurrentRows:
    """Return the same rows without their index."""
    return CurrentRows(rows.version, [ArrayPart(part.ids, part.rows, part.hidden) for part in rows.parts], rows.width)


def indexed_and_opened(made: StoredCatalogue, folder: Path, queries: Any) -> tuple[StoredCatalogue, dict[str, float]]:
    """Build the index, open the catalogue again, and search; return it, and the seconds of each step."""
    seconds, start = {}, time.perf_counter()
    made.build_index(queries[::2])
    seconds["index_seconds"] = time.perf_counter() - start
    made.close()
    start = time.perf_counter()
    opened = StoredCatalogue.open(folder)
    len(opened)
    seconds["open_seconds"] = time.perf_counter() - start
    start = time.perf_counter()
    opened.search(queries[1], K)
    return opened, seconds | {"first_search_seconds": time.perf_counter() - start}


def measure(n_rows: int, folder: Path, runs: int, n_threads: int) -> dict[str, Any]:
    """Measure one size."""
    rng = np.random.default_rng(0)
    U, queries = drawn(n_rows, rng)
    made = empty_catalogue(folder)
    adding = add_rows(made, U)
    opened, took = indexed_and_opened(made, folder, queries)
    exact = exactly(opened.current_rows())
    q = queries[1]
    size = sum(file.stat().st_size for file in folder.rglob("*.faiss"))
    say(f"\n{n_rows:,} rows, added in {adding:.1f} s; {opened.how_it_searches()}, {size / 2**20:.0f} MiB")
    say(", ".join(f"{name} {value:.3f}" for name, value in took.items()))
    calls: dict[str, Any] = {"exact": lambda: exact.search(q, K), **streams(U, q, n_threads)}
    found = compared(opened, exact, calls, queries, rng, runs, "", "faiss")
    fastest = [
        min(turn) for turn in zip(*(found["seconds"][name]["runs"] for name in calls if "stream" in name), strict=True)
    ]
    over = ratios(found["seconds"]["exact"]["runs"], fastest)
    say(f"  exact over the fastest stream {over['median']:.2f} ({over['least']:.2f} to {over['most']:.2f})")
    opened.close()
    more = {"rows": n_rows, "add_seconds": adding, "index_bytes": size, "exact over the fastest stream": over}
    return found | took | more


def compared(
    opened: StoredCatalogue, exact: Any, calls: Any, queries: Any, rng: Any, runs: int, what: str, by_index: str
) -> dict[str, Any]:
    """Time `calls`, searches among a share of the rows, and by the index, in turns; measure what the index finds."""
    numbers, calls = iter(range(10**9)), dict(calls)
    for share in SHARES:
        among = np.sort(rng.permutation(len(opened))[: round(share * len(opened))])
        calls[f"{what}among {share:.1%}"] = lambda among=among: opened.search(queries[1], K, among=among)
    has_index = any(part.index for part in opened.current_rows().parts)
    if has_index:
        calls[by_index] = lambda: opened.search(queries[1 + 2 * (next(numbers) % (QUERIES // 2))], K)
    seconds = {name: spread(turns) for name, turns in in_turns(calls, runs, 5).items()}
    found, best = opened.search(queries[1::2], K).ids, exact.search(queries[1::2], K).ids
    recall = float(np.mean([np.isin(b, f).mean() for b, f in zip(best, found, strict=True)]))
    for name, turns in seconds.items():
        say(f"  {name:28s}{1e3 * turns['median']:9.3f} ms (least {1e3 * turns['least']:.3f})")
    say(f"  recall of the {K} best, on queries that the index was not measured on: {recall:.4f}")
    return {"seconds": seconds, "recall": recall, "by_index": has_index}


def mixtures(model: Any, X: sp.csr_array, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Return the model's rows of mixtures of two photos, of 50 to 100 % and the rest."""
    U = np.empty((n_rows, model.image_rows(X[:1]).shape[1]), np.float32)
    for start in range(0, n_rows, 5000):
        n = min(5000, n_rows - start)
        share = rng.uniform(0.5, 1, n).astype(np.float32)
        parts = []
        for part in (share, 1 - share):
            photos = X[rng.integers(0, X.shape[0], n)]
            photos.data *= np.repeat(part, np.diff(photos.indptr)) * (rng.random(photos.nnz) < KEPT)
            photos.eliminate_zeros()
            parts.append(photos)
        U[start : start + n] = model.image_rows(unit_rows(parts[0] + parts[1]))
    return U


def of_a_model(X: Any, Y: Any, later: Any, n_rows: int, folder: Path) -> dict[str, Any]:
    """Measure the index of a catalogue of a model's rows."""
    rng = np.random.default_rng(0)
    model = Wsabie(dim=WIDTH, random_state=0).fit(X, sp.csr_array(Y))
    U = mixtures(model, sp.csr_array(X), n_rows, rng)
    tags = rng.permutation(model.n_tags_)
    made = empty_catalogue(folder)
    add_rows(made, U)
    start = time.perf_counter()
    made.build_index(sample_queries(model, tags[: len(tags) // 2]))
    building = time.perf_counter() - start
    others = tags[len(tags) // 2 :][:QUERIES]
    words = sp.eye_array(model.n_tags_, format="csr", dtype=np.float32)[others]
    queries = {"one tag": model.query_rows(sp.csr_array(words)), "two tags": sample_queries(model, others)}
    queries["photos"] = model.image_rows(later)[:QUERIES]
    exact = exactly(made.current_rows())
    result: dict[str, Any] = {"rows": n_rows, "how": made.how_it_searches(), "index_seconds": building}
    say(f"  {made.how_it_searches()}; made in {building:.0f} s")
    for name, Q in queries.items():
        seconds: dict[str, list[float]] = {"by the wall": [], "of the thread": []}
        found = []
        for q in [*Q[:10], *Q]:  # the first do not count
            start, started = time.perf_counter(), time.thread_time()
            found.append(made.search(q, K).ids[0])
            seconds["of the thread"].append(time.thread_time() - started)
            seconds["by the wall"].append(time.perf_counter() - start)
        best = exact.search(Q, K).ids
        recall = float(np.mean([np.isin(b, f).mean() for b, f in zip(best, found[10:], strict=True)]))
        result[name] = {"recall": recall, "queries": len(Q)}
        result[name] |= {clock: spread(each[10:]) for clock, each in seconds.items()}
        clocks = ", ".join(f"{1e3 * result[name][clock]['median']:.2f} ms {clock}" for clock in seconds)
        say(f"  {name:10s} recall {recall:.4f}; {clocks}")
    made.close()
    return result


def models(shared: Path | None, cache: Path, n_rows: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure the indexes of catalogues of models, and yield each with the name of its data."""
    drawn_visterms = draw_visterms(5_000, 400)
    X, Y = drawn_visterms.X, drawn_visterms.Y
    sets: dict[str, Any] = {"drawn visterms": lambda: (X[:4_000], Y[:4_000], X[4_000:])}
    if shared is not None:
        for kind in ("network", "visterms"):
            sets[f"Corel5k, {kind}"] = lambda kind=kind: corel5k(shared, cache, kind)[:3]
    for name, read in sets.items():
        say(f"\n{n_rows:,} rows of a model of {name}")
        with tempfile.TemporaryDirectory() as made:
            yield name, of_a_model(*read(), n_rows, Path(made) / "catalogue")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--models", nargs="?", const="", metavar="SHARED", help="measure indexes of models' rows")
    parser.add_argument("--cache", type=Path, default=Path("encoded"), help="where encoded photos are kept")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="rows of the catalogues")
    chosen = parse(parser)
    stored_rows.MIN_ROWS_FOR_INDEX = 1000  # an index is tried at every size, to see from where on it pays
    n_threads = resolve_jobs(None)
    result: dict[str, Any] = {"machine": machine(), "threads": n_threads, "goals": GOALS}
    sizes = (2_000,) if chosen.quick else chosen.sizes
    if chosen.models is not None:
        shared = Path(chosen.models) if chosen.models else None
        for name, found in models(shared, chosen.cache, max(sizes)):
            result[name] = found
            write(result, chosen.json)
        return
    result["sizes"] = []
    for n_rows in sizes:
        with tempfile.TemporaryDirectory() as made:
            result["sizes"].append(measure(n_rows, Path(made) / "catalogue", chosen.runs, n_threads))
    write(result, chosen.json)


if __name__ == "__main__":
    main()
