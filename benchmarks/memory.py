"""Memory of a fit, of `visterm index` and of the service, each beside a floor.

* `fit` of `auto` on drawn rows, 100,000 of 1,280 features with 5,000 tags: its peak; the floor are the rows.
* `index` of a folder whose files are all known: its peak for each further name; the floor are the names as texts.
* the service: what it holds after 1,000 requests (the floor), and after 10,000 more with different searches.

All are bytes of anonymous memory, looked at fifty times a second (RssAnon of /proc; file maps and caches don't count).
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import serve as service
from harness.runs import machine, options, parse, say, write
from harness.watched import anonymous_bytes, watched

from visterm.core.tables import MODELS
from visterm.library.catalogue import Catalogue
from visterm.store.images import NewImage
from visterm.tagging.tagger import Tagger

IN_A_FOLDER = 1000


def fit(n_rows: int, n_features: int, n_tags: int) -> dict[str, Any]:
    """Fit `auto` on rows like those of a network, which their tags light up."""
    rng = np.random.default_rng(0)
    signs, mix = (rng.standard_normal((n, n_features), np.float32) for n in (n_tags, 64))
    X = 4 * rng.standard_normal((n_rows, 64), np.float32) @ mix
    tags = rng.geometric(0.002, (n_rows, 5)) % n_tags
    for start in range(0, n_rows, 1000):
        X[start : start + 1000] += signs[tags[start : start + 1000]].sum(axis=1)
    Y = sp.csr_array((np.ones(tags.size, np.float32), tags.ravel(), 5 * np.arange(n_rows + 1)), shape=(n_rows, n_tags))
    members = MODELS.create("auto").set_known(n_jobs=2, random_state=0).fit(X, Y).members_
    return {"floor": X.nbytes, "members": [MODELS.name_of(member) for member in members]}


def make_catalogue(folder: Path, n_names: int) -> None:
    """Write empty files, and a catalogue that knows them all."""
    pictures = list(np.random.default_rng(0).integers(0, 256, (60, 48, 48, 3), np.uint8))
    tagger = Tagger(encoder="visterms", model="wsabie", seed=0).fit(pictures, [["even"], ["odd"]] * 30)
    row = np.asarray(tagger.model.image_rows(tagger.encoder.encode(pictures[:1]).rows))
    catalogue = Catalogue.create(folder / "catalogue", tagger)
    for number in range(n_names // IN_A_FOLDER):
        (inside := folder / "photos" / f"{number:06}").mkdir(parents=True)
        records = []
        for path in (inside / f"IMG_{number:06}{i:03}.jpg" for i in range(IN_A_FOLDER)):
            path.touch()
            name, at = f"{inside.name}/{path.name}", path.stat().st_mtime_ns
            records.append(NewImage(name, str(path), 0, 48, 48, path.stem.zfill(64), (), mtime_ns=at))
        catalogue.stored.add(records, np.repeat(row, IN_A_FOLDER, axis=0))
    catalogue.stored.close()


def index(folder: str) -> dict[str, Any]:
    """Index the folder of a catalogue once more."""
    done = Catalogue.load(Path(folder, "catalogue")).index(Path(folder, "photos"))
    assert done.new == done.changed == done.gone == 0, done
    names = [str(path) for path in Path(folder, "photos").glob("*/*")]
    return {"names": done.kept, "floor": sum(map(sys.getsizeof, [names, *names]))}


def index_each(n_names: int) -> dict[str, Any]:
    """Compare the peaks of indexing a thousand names and many."""
    found = []
    for n in (IN_A_FOLDER, n_names):
        with tempfile.TemporaryDirectory() as temporary:
            make_catalogue(Path(temporary), n)
            found.append(watched(__file__, ["index", temporary]))
    peak, floor = ((found[1][key] - found[0][key]) / (n_names - IN_A_FOLDER) for key in ("peak_anonymous", "floor"))
    return found[1] | {"bytes_a_name": peak, "floor_a_name": floor, "ratio": peak / floor}


def serve(first: int, further: int, *sizes: int) -> dict[str, Any]:
    """Return what the service (of the extra web) holds after the first requests, and after as many more."""
    held, n_answers, drawn = [], 0, random.Random(0)
    with tempfile.TemporaryDirectory() as temporary:
        tags = service.make_catalogue(Path(temporary), *sizes)
        pictures = [path.read_bytes() for path in sorted(Path(temporary, "photos").iterdir())[:50]]
        with service.served(*service.SERVE, f"{temporary}/catalogue") as (port, pid):
            for until in (first, first + further):
                while n_answers < until:
                    ask = service.load(port, 0.5, 8, 0.0, lambda _: service.request(drawn, tags, sizes[0], pictures))
                    n_answers += sum(map(len, asyncio.run(ask)[0].seconds.values()))
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
                held.append(sum(map(anonymous_bytes, [pid, *children])))
    return {"requests": n_answers, "floor": held[0], "peak": held[1], "ratio": held[1] / held[0]}


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--rows", type=int, default=100_000, help="of the fit")
    parser.add_argument("--names", type=int, default=1_000_000, help="of files to index")
    parser.add_argument("--child", nargs="+", help="(this program calls itself)")
    chosen = parse(parser)
    if chosen.child:
        way, *sizes = chosen.child
        say(json.dumps(index(*sizes) if way == "index" else fit(*map(int, sizes))))
        return
    sizes = (500, 32, 20) if chosen.quick else (chosen.rows, 1280, 5000)
    fitted = watched(__file__, ["fit", *map(str, sizes)])
    result = {"machine": machine(), "fit": fitted | {"ratio": fitted["peak_anonymous"] / fitted["floor"]}}
    result["index"] = index_each(2 * IN_A_FOLDER if chosen.quick else chosen.names)
    result["service"] = serve(*((50, 50, 200, 40) if chosen.quick else (1000, 10_000, 20_000, 400)))
    say(json.dumps(result, indent=1))
    write(result, chosen.json)


if __name__ == "__main__":
    main()
