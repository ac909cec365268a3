"""What people said, in a search of a million rows: no hand-given tags, 1,000 and 100,000, exactly and by an index.

Rows of width 100 are drawn around scenes, as in catalogue.py. The run has 200 tags, whose vectors are drawn as queries
are. People gave tags to photos that score high for them, as many of each tag as Zipf's law says; one in five was
accepted in place of given. A search is timed whole (`Catalogue.search`), from words to hits with names. The catalogues
have the same rows, and take turns at the same searches, of which no two in a turn are the same. "never" is the
catalogue without hand-given tags, whose searches don't look for any: what a search took before it honoured them.
"after a change" commits a tag before each search, so that nothing that was remembered helps.

    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 python benchmarks/said_at_once.py --json said_at_once.json
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from catalogue import WIDTH, drawn, exactly
from harness.runs import machine, options, parse, ratios, say, spread, write

from visterm import Catalogue, Tagger
from visterm.library import search
from visterm.library.hand_tagged import HandTagged, nothing_said
from visterm.models.confidence.calibration import Calibration
from visterm.store import segment_indexes
from visterm.store.catalogue import DATABASE
from visterm.store.images import Record
from visterm.store.tags import Tags

N_TAGS, N_ROWS, K = 200, 1_000_000, 10
GIVEN = (0, 1_000, 100_000)
ACCEPTED = 5  # One in that many is accepted in place of given
BEST = 3  # Tags go to photos drawn from the best of the tag, of that many times as many
SEARCHES = 15  # Of a side in a turn
GOAL = 1.1
KINDS = {"one word": "{}", "two words": "{} {}", "-word": "{} -{}"}
LOOKS = search.hand_tagged


def tagger_of(V: np.ndarray) -> Tagger:
    """Return a run whose tags have these vectors."""
    names = [f"tag{number:03d}" for number in range(len(V))]
    params = {"dim": WIDTH, "epochs": 1, "valid_share": 0.0, "bias": 0, "standardize": False}
    tagger = Tagger(model="wsabie", encoder="ids", model_params=params, seed=0, n_jobs=1)
    tagger.fit(list(range(len(names))), [[name] for name in names], calibrate=False)
    tagger.model.tag_rows_ = V
    n_tags = len(V)
    tagger.calibration = Calibration(np.full(n_tags, 0.08), np.full(n_tags, -5.0), 0.5, 1000)
    return tagger


def made(folder: Path, tagger: Tagger, U: np.ndarray, pairs: np.ndarray) -> Path:
    """Write the catalogue without hand-given tags, and its index."""
    catalogue = Catalogue.create(folder, tagger)
    for first in range(0, len(U), 10_000):
        block = U[first : first + 10_000]
        names = (f"{first + i:07d}.jpg" for i in range(len(block)))
        catalogue.stored.add([Record(name, f"/library/{name}", 40_000, 192, 128, "0" * 64) for name in names], block)
    catalogue.stored.build_index(pairs)
    catalogue.stored.close()
    return folder


def with_tags(source: Path, folder: Path, n: int, tagger: Tagger, U: np.ndarray, V: np.ndarray) -> dict[str, int]:
    """Copy a catalogue, give it n tags, and return how many photos have each."""
    shutil.copytree(source, folder, copy_function=os.link)
    for file in folder.glob(f"{DATABASE}*"):
        file.unlink()
        shutil.copy(source / file.name, file)
    rng, tags = np.random.default_rng(n), tagger.vocabulary.tags
    shares = 1 / np.arange(1, len(tags) + 1)
    counts = np.floor(shares / shares.sum() * n + 0.5).astype(int)
    catalogue = Catalogue.load(folder, n_jobs=1)
    stored: Tags = catalogue.stored.tags
    with catalogue.stored.database.transaction():
        for tag, row, count in zip(tags, V, counts.tolist(), strict=True):
            if not count:
                continue
            n_best = min(BEST * count, len(U))
            best = np.argpartition(U @ row, len(U) - n_best)[len(U) - n_best :]
            photos = rng.permutation(best)[:count].tolist()
            accepted = photos[1::ACCEPTED]
            stored.give_many(((photo, [tag]) for photo in set(photos).difference(accepted)), "person")
            for photo in accepted:
                stored.judge(photo, tag, 1)
    catalogue.stored.close()
    return dict(zip(tags, counts.tolist(), strict=True))


class Side:
    """A catalogue that takes turns; without `looks`, its searches never look for what people said."""

    def __init__(self, folder: Path, *, exact: bool, looks: bool = True) -> None:
        self.catalogue = Catalogue.load(folder, n_jobs=1)
        self._looks = looks
        if exact:
            self.catalogue.stored._current = exactly(self.catalogue.stored.current_rows())

    def seconds(self, words: str, *, changed: bool) -> float:
        """Return how long a search takes; after a change of the catalogue, if asked."""
        if changed:
            self.catalogue.stored.tags.give(0, ["other"], "person")
            self.catalogue.stored.tags.take(0, ["other"], "person")
        search.hand_tagged = LOOKS if self._looks else never
        start = time.perf_counter()
        self.catalogue.search(words, K)
        took = time.perf_counter() - start
        search.hand_tagged = LOOKS
        return took


def never(searched: Any, vocabulary: Any, query: Any, tree: Any, remembered: Any) -> HandTagged:
    """Return that nobody said anything."""
    return nothing_said(query.weights.nnz, int((query.weights.data > 0).sum()))


def turns(sides: dict[str, Side], kind: str, tags: list[str], runs: int, *, changed: bool) -> dict[str, list[float]]:
    """Time searches of all sides in turn, each the same ones; return the median seconds of each turn."""
    rng = np.random.default_rng(7)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for run in range(runs + 1):
        queries = [KINDS[kind].format(*rng.choice(tags, 2, replace=False)) for _ in range(SEARCHES)]
        took: dict[str, list[float]] = {name: [] for name in sides}
        for query in queries:
            for name in rng.permutation(list(sides)).tolist():  # who comes first finds its rows outside the caches
                took[name].append(sides[name].seconds(query, changed=changed))
        for name in sides if run else ():  # the first turn brings rows and what is remembered into memory
            found[name].append(statistics.median(took[name]))
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--folder", type=Path, help="where catalogues are written, 3 GB; they are removed")
    chosen = parse(parser)
    n_rows = 3_000 if chosen.quick else N_ROWS
    segment_indexes.INDEX_FROM = 1000
    rng = np.random.default_rng(0)
    U, V = drawn(n_rows, rng)
    V = np.ascontiguousarray(V[:N_TAGS])
    tagger = tagger_of(V)
    lengths = np.linalg.norm(V, axis=1, keepdims=True)
    pairs = (V[rng.permutation(N_TAGS)] / lengths + V[rng.permutation(N_TAGS)] / lengths).astype(np.float32)
    result: dict[str, Any] = {"machine": machine(), "rows": n_rows, "goal": GOAL, "seconds": {}, "over never": {}}
    with tempfile.TemporaryDirectory(dir=chosen.folder) as place:
        source = made(Path(place) / "source", tagger, U, pairs)
        given = {n: min(n, n_rows // 10) for n in GIVEN}
        counts = {n: with_tags(source, Path(place) / f"given{n}", given[n], tagger, U, V) for n in GIVEN}
        result["photos of a tag"] = {str(n): spread(sorted(counts[n].values())) for n in GIVEN}
        for how in ("exact", "index"):
            sides = {"never": Side(Path(place) / "given0", exact=how == "exact", looks=False)}
            sides |= {f"{n:,}": Side(Path(place) / f"given{n}", exact=how == "exact") for n in GIVEN}
            say(f"\n{how}: {sides['never'].catalogue.stored.how_it_searches() if how == 'index' else 'every row'}")
            for kind in KINDS:
                for changed in (False, True):
                    took = turns(sides, kind, tagger.vocabulary.tags, chosen.runs, changed=changed)
                    name = f"{how}, {kind}{', after a change' if changed else ''}"
                    result["seconds"][name] = {side: spread(values) for side, values in took.items()}
                    over = {side: ratios(took[side], took["never"]) for side in sides if side != "never"}
                    result["over never"][name] = over
                    line = "  ".join(f"{side} {each['median']:.2f}" for side, each in over.items())
                    say(f"  {name:40s} never {1e3 * statistics.median(took['never']):7.2f} ms;  times: {line}")
            for side in sides.values():
                side.catalogue.stored.close()
    write(result, chosen.json)


if __name__ == "__main__":
    main()
