"""A catalogue whose rows lie in a Lance table: how long it takes to search exactly, through its index, and among few.

The rows and queries are those of ``catalogue.py``: half of the queries serve to measure the index (of faiss), half to
measure what it finds. Beside it stands the same catalogue with its rows in files, searched exactly.
Memory is the anonymous memory, at its peak, of a process that opens the catalogue and searches it, libraries included.
Goal: a recall of the ten best of 0.98 or more, three times faster than exactly.

    python benchmarks/lance.py --json lance.json
    python benchmarks/lance.py --rows 10000000 --uri s3://bucket/rows
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from catalogue import WIDTH, K, add_rows, compared, drawn, empty_catalogue, indexed_and_opened
from harness.runs import machine, options, parse, say, write
from harness.watched import watched

from visterm.store import stored_rows
from visterm.store.catalogue import StoredCatalogue
from visterm.store.current_rows import CurrentRows
from visterm.store.lance_rows import LancePart

GOALS = {"recall": 0.98, "times faster": 3.0}


def measure(n_rows: int, folder: Path, uri: str, runs: int) -> dict[str, Any]:
    """Measure one size."""
    rng = np.random.default_rng(0)
    U, queries = drawn(n_rows, rng)
    made, files = empty_catalogue(folder / "lance"), empty_catalogue(folder / "files")
    made.keep_in_lance(uri)
    adding, adding_files = add_rows(made, U), add_rows(files, U)
    made.compact()
    del U
    opened, took = indexed_and_opened(made, folder / "lance", queries)
    rows = opened.current_rows()
    exact = CurrentRows(rows.version, [LancePart(p.ids, p.rows, p.hidden) for p in rows.parts], rows.width)
    q = queries[1]
    calls: dict[str, Any] = {"files, exact": lambda: files.search(q, K), "lance, exact": lambda: exact.search(q, K)}
    say(f"\n{n_rows:,} rows of width {WIDTH} at {opened.where_rows_are()}")
    say(f"  {opened.how_it_searches()}; {', '.join(f'{name} {value:.3f}' for name, value in took.items())}")
    found = compared(opened, exact, calls, queries, rng, runs, "lance, ", "lance, by index")
    np.save(folder / "queries.npy", queries[1:20:2])
    memory = watched(__file__, [str(folder)])["peak_anonymous"]
    say(f"  added in {adding:.1f} s (files {adding_files:.1f} s); memory at the peak {memory / 2**20:.0f} MiB")
    more = {"rows": n_rows, "add_seconds": adding, "add_seconds_files": adding_files, "memory_bytes": memory}
    return found | took | more | {"searched": opened.how_it_searches()}


def search_only(folder: Path) -> None:
    """Search a catalogue by its index and exactly, as a process does whose memory is watched."""
    queries = np.load(folder / "queries.npy")
    opened = StoredCatalogue.open(folder / "lance")
    for q in queries:
        opened.search(q, K)
    opened.search(queries[:1], 200)  # more than the index is asked for
    print(json.dumps({"searched": len(queries) + 1}))


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        search_only(Path(sys.argv[2]))
        return
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000], help="rows of the catalogues")
    parser.add_argument("--uri", default="", help="where the tables lie [default: with the catalogue]")
    parser.add_argument("--folder", type=Path, help="a disk with room for all rows twice [default: a new one]")
    chosen = parse(parser)
    stored_rows.MIN_ROWS_FOR_INDEX = 1000  # an index is tried at every size
    result: dict[str, Any] = {"machine": machine(), "goals": GOALS, "sizes": []}
    for n_rows in (5_000,) if chosen.quick else chosen.rows:
        made = Path(tempfile.mkdtemp(dir=chosen.folder))
        try:
            result["sizes"].append(measure(n_rows, made, chosen.uri, chosen.runs))
        finally:
            shutil.rmtree(made)
    write(result, chosen.json)


if __name__ == "__main__":
    main()
