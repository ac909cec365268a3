"""What people said, in a search of a million rows: no hand-given tags, 1,000 and 100,000, exactly and by an index.

Rows of width 100 are drawn around scenes, as in catalogue.py. The run has 200 tags, whose vectors are drawn as queries
are. People gave tags to photos that score high for them, as many of each tag as Zipf's law says; one in five was
accepted in place of given. A search is timed whole (`Catalogue.search`), from words to hits with names, in processor
time of all threads, which other programs on the machine lengthen less. The catalogues have the same rows, and take
turns at the same searches. "never" is the catalogue without hand-given tags, whose searches don't look
for any: what a search took before it honoured them. "floor" is faiss alone, asked as the search asks it, or NumPy's
products of all rows with the words; recall is that of the ten hits of an exact search. There are three states:
"repeated" searches were made once before; of "new" ones the words were searched for before, but not together; and
"after a change" a tag was committed just before.

    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 python benchmarks/said_at_once.py --json docs/figures/said_at_once.json
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from timeit import timeit
from typing import Any

import numpy as np
from catalogue import WIDTH, add_rows, drawn, exactly
from harness.runs import machine, options, parse, ratios, say, spread, write

from visterm import Catalogue, Tagger
from visterm.library.search import reader
from visterm.library.search.judgements import ManualTags
from visterm.library.search.ranking import MIN_CANDIDATES, SearchedWords
from visterm.models.confidence.calibration import Calibration
from visterm.store import stored_rows
from visterm.store.catalogue import DATABASE
from visterm.store.tags import Tags

N_TAGS, N_ROWS, K = 200, 1_000_000, 10
GIVEN = (0, 1_000, 100_000)
ACCEPTED = 5  # One in that many is accepted in place of given
BEST = 3  # Tags go to photos drawn from the best of the tag, of that many times as many
SEARCHES, SLOW_SEARCHES = 15, 5  # Of a side in a turn; those that read every row
STATES = ("repeated", "new", "after a change")
GOAL = 1.2
KINDS = {"one word": "{}", "two words": "{} {}", "-word": "{} -{}"}
LOOKS = reader.manual_tags
SECONDS = partial(timeit, timer=time.process_time, number=1)


def tagger_of(V: np.ndarray) -> Tagger:
    """Return a run whose tags have these vectors."""
    names = [f"tag{number:03d}" for number in range(len(V))]
    params = {"dim": WIDTH, "epochs": 1, "valid_share": 0.0, "bias": 0, "standardize": False}
    tagger = Tagger(model="wsabie", encoder="ids", model_params=params, seed=0, n_jobs=1)
    tagger.fit(list(range(len(names))), [[name] for name in names], calibrate=False)
    tagger.model.tag_rows_ = V
    n_tags = len(V)
    tagger.parts = tagger.parts.changed(
        calibration=Calibration(np.full(n_tags, 0.08), np.full(n_tags, -5.0), 0.5, 1000)
    )
    return tagger


def photos_of_tags(n: int) -> np.ndarray:
    """Return how many photos have each tag, of n hand-given tags in all."""
    shares = 1 / np.arange(1, N_TAGS + 1)
    return np.floor(shares / shares.sum() * n + 0.5).astype(int)


def with_tags(source: Path, folder: Path, n: int, tagger: Tagger, U: np.ndarray, V: np.ndarray) -> None:
    """Copy a catalogue, and give it n tags."""
    shutil.copytree(source, folder, copy_function=os.link)
    for file in folder.glob(f"{DATABASE}*"):
        file.unlink()
        shutil.copy(source / file.name, file)
    rng, tags = np.random.default_rng(n), tagger.vocabulary.tags
    catalogue = Catalogue.load(folder, n_jobs=1)
    stored: Tags = catalogue.stored.tags
    with catalogue.stored.database.transaction():
        for tag, row, count in zip(tags, V, photos_of_tags(n).tolist(), strict=True):
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


class Side:
    """A catalogue that takes turns; without `looks`, its searches never look for what people said."""

    def __init__(self, folder: Path, *, exact: bool, looks: bool = True) -> None:
        self.catalogue = Catalogue.load(folder, n_jobs=1)
        self._looks = looks
        if exact:
            self.catalogue.stored._current = exactly(self.catalogue.stored.current_rows())

    def hits(self, words: str) -> list[int]:
        """Return the ids of the best photos."""
        return [hit.id for hit in self.catalogue.search(words, K).hits]

    def seconds(self, words: str, *, changed: bool = False) -> float:
        """Return how long a search takes; if asked, after a change."""
        if changed:
            self.catalogue.stored.tags.give(0, ["other"], "person")
            self.catalogue.stored.tags.remove(0, ["other"], "person")
        reader.manual_tags = LOOKS if self._looks else never
        took = SECONDS(lambda: self.hits(words))
        reader.manual_tags = LOOKS
        return took


class Floor(Side):
    """The least that a search of a catalogue takes: bare faiss, or NumPy's products with all rows."""

    def seconds(self, words: str, *, changed: bool = False) -> float:
        """Return how long it takes."""
        searched = SearchedWords.of(self.catalogue.tagger, self.catalogue.query_weights(words))
        [part] = self.catalogue.stored.current_rows().parts
        if part.index is None or "-" in words:
            return SECONDS(lambda: [part.rows @ row for row in searched.rows])
        import faiss

        settings, index = part.index.settings, part.index.faiss_index
        n = settings.fetched if len(searched.rows) == 1 else MIN_CANDIDATES
        lists = faiss.SearchParametersIVF(nprobe=settings.probed)
        asked = faiss.SearchParametersPreTransform(index_params=lists)
        return SECONDS(lambda: index.search(searched.q, n, params=asked))


def never(searched: Any, vocabulary: Any, query: Any, tree: Any) -> ManualTags:
    """Return that nobody said anything."""
    return ManualTags(int((query.weights.data > 0).sum()), 0)


def turns(sides: dict[str, Side], kind: str, tags: list[str], runs: int, n: int, state: str) -> dict[str, Any]:
    """Time n searches of all sides in each turn, the same ones; return the median seconds of each turn."""
    rng = np.random.default_rng(7)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for run in range(runs + 1):
        queries = [KINDS[kind].format(*rng.choice(tags, 2, replace=False)) for _ in range(n)]
        for timed in (False, True) if state == "repeated" else (True,):
            took: dict[str, list[float]] = {name: [] for name in sides}
            for query in queries:
                for name in rng.permutation(list(sides)).tolist():  # who comes first finds its rows outside the caches
                    took[name].append(sides[name].seconds(query, changed=state == "after a change"))
            for name in sides if run and timed else ():  # the first turn brings rows into memory
                found[name].append(statistics.median(took[name]))
    return found


def measured(sides: dict[str, Side], how: str, runs: int) -> dict[str, Any]:
    """Return the seconds of searches of each kind in each state, and how many times those of "never" they are."""
    tags = sides["never"].catalogue.tagger.vocabulary.tags
    result: dict[str, Any] = {}
    for kind in KINDS:
        n = SEARCHES if how == "index" and kind != "-word" else SLOW_SEARCHES
        for state in STATES:
            for side in sides.values() if state == "new" else ():
                for first, second in zip(tags[::2], tags[1::2], strict=True):
                    side.seconds(f"{first} {second}")
            took = turns(sides, kind, tags, runs, n, state)
            over = {side: ratios(took[side], took["never"]) for side in sides if side not in ("never", "floor")}
            seconds = {side: spread(each) for side, each in took.items()}
            of_state = {"seconds": seconds, "over never": over, "over floor": ratios(took["never"], took["floor"])}
            result[f"{kind}, {state}"] = of_state
            line = "  ".join(f"{side} {each['median']:.2f}" for side, each in over.items())
            floor, ours = (1e3 * seconds[side]["median"] for side in ("floor", "never"))
            say(f"  {kind}, {state}: floor {floor:.2f} ms, never {ours:.2f} ({ours / floor:.2f} times); {line}")
    return result


def recalls(side: Side, exact: Side, tags: list[str]) -> dict[str, float]:
    """Return, for each kind of search, the share of an exact search's hits that a catalogue finds."""
    rng, result = np.random.default_rng(8), {}
    for kind, form in KINDS.items():
        queries = [form.format(*rng.choice(tags, 2, replace=False)) for _ in range(N_TAGS)]
        result[kind] = float(np.mean([np.isin(exact.hits(words), side.hits(words)).mean() for words in queries]))
        say(f"  {kind}: recall {result[kind]:.4f}")
    return result


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--folder", type=Path, help="where catalogues are kept, 3 GB, and found by the next run")
    chosen = parse(parser)
    n_rows = 3_000 if chosen.quick else N_ROWS
    stored_rows.MIN_ROWS_FOR_INDEX = 1000
    given = {n: min(n, n_rows // 10) for n in GIVEN}
    result: dict[str, Any] = {"machine": machine(), "rows": n_rows, "goal": GOAL}
    result["photos of a tag"] = {str(n): spread(sorted(photos_of_tags(given[n]).tolist())) for n in GIVEN}
    with tempfile.TemporaryDirectory() as temporary:
        place = chosen.folder or Path(temporary)
        if not (place / f"given{GIVEN[-1]}").exists():
            write_catalogues(place, n_rows, given)
        for how in ("exact", "index"):
            sides = {"never": Side(place / "given0", exact=how == "exact", looks=False)}
            sides |= {f"{n:,}": Side(place / f"given{n}", exact=how == "exact") for n in GIVEN}
            sides["floor"] = Floor(place / "given0", exact=how == "exact")
            index = sides["never"].catalogue.stored.how_it_searches() if how == "index" else "every row"
            say(f"\n{how}: {index}")
            result[how] = {"how": index} | measured(sides, how, chosen.runs)
            if how == "index":
                exact = Side(place / "given0", exact=True, looks=False)
                result[how]["recall"] = recalls(sides["0"], exact, exact.catalogue.tagger.vocabulary.tags)
            for side in sides.values():
                side.catalogue.stored.close()
    write(result, chosen.json)


def write_catalogues(place: Path, n_rows: int, given: dict[int, int]) -> None:
    """Write the catalogues of all sides."""
    rng = np.random.default_rng(0)
    U, V = drawn(n_rows, rng)
    V = np.ascontiguousarray(V[:N_TAGS])
    tagger = tagger_of(V)
    lengths = np.linalg.norm(V, axis=1, keepdims=True)
    pairs = (V[rng.permutation(N_TAGS)] / lengths + V[rng.permutation(N_TAGS)] / lengths).astype(np.float32)
    catalogue = Catalogue.create(place / "source", tagger)
    add_rows(catalogue.stored, U)
    catalogue.stored.build_index(pairs)
    catalogue.stored.close()
    for n, n_given in given.items():
        with_tags(place / "source", place / f"given{n}", n_given, tagger, U, V)


if __name__ == "__main__":
    main()
