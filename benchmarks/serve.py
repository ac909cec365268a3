"""The service under load: 32 clients on loopback that search (80 %), look at thumbnails (15 %) and annotate (5 %).

A catalogue of 20,000 rows of width 100 is made, `visterm serve` opens it in a process of its own, and this process
asks: as fast as the answers come, or `--rate` times a second in all. It stops by itself. Rows are those of some hundred
pictures, drawn by visterm-research, with noise, so that thumbnails repeat as they do where people look; searches are of
one to three drawn tags, one in fifteen with a `-word`, one in ten among images with a tag.

    python benchmarks/serve.py --seconds 60 --json serve.json
    python benchmarks/serve.py --seconds 60 --rate 320 --json serve_320.json
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from harness.runs import machine, options, parse, say, write

from visterm.library.catalogue import Catalogue
from visterm.library.records import read_records
from visterm.store.images import NewImage
from visterm.store.tags import Prediction
from visterm.tagging.tagger import Tagger
from visterm_research.scenes import draw_library

KINDS = (("search", 0.80), ("thumbnail", 0.15), ("annotate", 0.05))
PICTURES = 400
DIM = 100
LIMIT = 50
WARM_SECONDS = 3.0
PATIENCE = 30.0
"""Seconds after which a request without an answer has failed."""


@dataclass
class Load:
    """What the clients have seen.

    Attributes
    ----------
    seconds : dict of str to list of float
        Of each answer, by kind.
    failures : list of str
        Everything but an answer of 200.
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: list[str] = field(default_factory=list)

    def note(self, kind: str, status: int, seconds: float, body: bytes) -> None:
        """Count one answer."""
        self.seconds[kind].append(seconds)
        if status != 200:
            self.failures.append(f"{kind}: {status} {body[:200]!r}")


class Client:
    """One connection that is kept open, and as little HTTP as it takes: the load must not cost more than the work."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send a request, and give the status and the body of its answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
        if body:
            head += f"Content-Type: image/jpeg\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"\r\n" + body)
        told = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", told)
        return int(told[9:12]), await reader.readexactly(int(length[1]) if length else 0)

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def make_catalogue(folder: Path, n_rows: int, n_pictures: int) -> list[str]:
    """Write a catalogue of that many rows, of pictures that repeat under other names; give its tags."""
    library = draw_library(folder / "drawn", n_scenes=n_pictures, seed=1, n_jobs=2)
    paths = [str(library.images / picture.file_name) for picture in library.pictures]
    given = [list(picture.tags) for picture in library.pictures]
    wsabie = {"dim": DIM, "epochs": 5}
    tagger = Tagger(encoder="visterms", model="wsabie", model_params=wsabie, seed=0).fit(paths, given)
    U = np.asarray(tagger.model.image_rows(tagger.encoder.encode(paths).rows))
    sound = [record for record in read_records(paths, paths, given) if isinstance(record, NewImage)]
    rng = np.random.default_rng(0)
    chosen = np.arange(n_rows) % len(sound)
    rows = U[chosen] + 0.05 * float(U.std()) * rng.standard_normal((n_rows, U.shape[1]), np.float32)
    copies = folder / "photos"
    copies.mkdir()
    records = []
    for number, place in enumerate(chosen.tolist()):
        name = str(copies / f"{number:06d}.jpg")
        os.link(paths[place], name)
        known = {slot: getattr(sound[place], slot) for slot in NewImage.__dataclass_fields__}
        records.append(NewImage(**(known | {"path": name, "name": name})))
    catalogue = Catalogue.create(folder / "catalogue", tagger)
    ids = catalogue.stored.add(records, rows)
    run = catalogue.stored.runs.current()
    tags = tagger.vocabulary.tags
    catalogue.stored.tags.set_predictions(
        run.id, {i: [Prediction(tags[(i + j) % len(tags)], 1.0, 0.5) for j in range(3)] for i in ids}
    )
    catalogue.stored.close()
    return tags


def request(rng: random.Random, tags: list[str], n_rows: int, pictures: list[bytes]) -> tuple[str, str, str, bytes]:
    """Draw a request: its kind, method, address and body."""
    (kind,) = rng.choices([kind for kind, _ in KINDS], [share for _, share in KINDS])
    if kind == "thumbnail":
        return kind, "GET", f"/api/v1/images/{rng.randrange(n_rows)}/thumbnail?size=320", b""
    if kind == "annotate":
        return kind, "POST", "/api/v1/annotate?k=5", rng.choice(pictures)
    words = [f'"{tag}"' for tag in rng.sample(tags, rng.randint(1, 3))]
    if rng.random() < 0.1 and len(words) > 1:
        words[-1] = "-" + words[-1]
    path = f"/api/v1/search?limit={LIMIT}&q={quote(' '.join(words))}"
    if rng.random() < 0.1:
        path += f"&tag={quote(rng.choice(tags))}"
    return kind, "GET", path, b""


async def load(port: int, seconds: float, clients: int, rate: float, draw: Any) -> tuple[Load, float]:
    """Ask for some seconds with some clients; give what they saw, and how long it took in all."""
    seen = Load()
    start = time.perf_counter()

    async def one(number: int) -> None:
        rng = random.Random(number)
        client = Client(port)
        turn = 0
        while time.perf_counter() - start < seconds:
            if rate:  # each client has its own beat, so that requests come evenly
                due = start + (turn * clients + number) / rate
                turn += 1
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            kind, method, path, body = draw(rng)
            asked = time.perf_counter()
            try:
                status, answer = await asyncio.wait_for(client.ask(method, path, body), PATIENCE)
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                seen.failures.append(f"{kind}: {error!r}")
                client.close()
                continue
            seen.note(kind, status, time.perf_counter() - asked, answer)
        client.close()

    await asyncio.gather(*(one(number) for number in range(clients)))
    return seen, time.perf_counter() - start


def figures(seen: Load, seconds: float) -> dict[str, Any]:
    """Return requests a second, failures, and for each kind the median and other quantiles in milliseconds."""
    n = sum(map(len, seen.seconds.values()))
    result: dict[str, Any] = {
        "seconds": seconds,
        "requests": n,
        "requests_a_second": n / seconds,
        "failures": len(seen.failures),
        "first_failures": seen.failures[:5],
        "milliseconds": {},
    }
    for kind, _ in KINDS:
        took = 1000 * np.array(seen.seconds[kind] or [np.nan])
        result["milliseconds"][kind] = {
            "requests": len(seen.seconds[kind]),
            **{f"p{q}": float(np.percentile(took, q)) for q in (50, 90, 99)},
            "most": float(took.max()),
        }
    return result


@contextmanager
def served(catalogue: Path) -> Iterator[tuple[str, int]]:
    """Serve a catalogue by a process of its own, and yield the address and the id of the process."""
    command = [sys.executable, "-m", "visterm", "serve", str(catalogue), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            found = re.search(r"http://127\.0\.0\.1:\d+", told := server.stderr.readline())
            if found is None:
                raise SystemExit(f"The service did not start: {told}{server.stderr.read()}")
            yield found[0], server.pid
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(60)


def processor_seconds(pid: int) -> float:
    """Return the processor time that a service has taken, without that of its decoders; NaN where it is not told."""
    if not Path(f"/proc/{pid}/stat").exists():
        return float("nan")
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "stat").read_text().rpartition(")")[2].split()
            worker = int(told[1]) == pid and b"visterm.web.workers" in (process / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        if worker or int(process.name) == pid:
            ticks += int(told[11]) + int(told[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Make the catalogue, start the service, ask, and write what came of it."""
    parser = options(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=60.0, help="of load")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second in all; 0: as fast as they can")
    chosen = parse(parser)
    n_rows, n_pictures = (500, 40) if chosen.quick else (chosen.rows, PICTURES)
    seconds = min(chosen.seconds, 2.0) if chosen.quick else chosen.seconds
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tags = make_catalogue(folder, n_rows, n_pictures)
        pictures = [path.read_bytes() for path in sorted((folder / "photos").iterdir())[:50]]
        with served(folder / "catalogue") as (address, pid):
            port = int(address.rpartition(":")[2])

            def draw(rng: random.Random) -> tuple[str, str, str, bytes]:
                return request(rng, tags, n_rows, pictures)

            asyncio.run(load(port, WARM_SECONDS, 4, 0.0, draw))
            before = processor_seconds(pid)
            seen, took = asyncio.run(load(port, seconds, chosen.clients, chosen.rate, draw))
            used = processor_seconds(pid) - before
    result = {
        "machine": machine(),
        "clients": chosen.clients,
        "rows": n_rows,
        "width": DIM,
        "rate": chosen.rate or None,
        **figures(seen, took),
    }
    result["processor_milliseconds_a_request"] = 1000 * used / max(1, result["requests"])
    for kind, values in result["milliseconds"].items():
        say(f"{kind:10} {values['requests']:7,} requests  p50 {values['p50']:6.1f} ms  p99 {values['p99']:6.1f} ms")
    cost = result["processor_milliseconds_a_request"]
    rate = f"{result['requests_a_second']:.0f} requests a second"
    say(f"{rate}, {cost:.1f} ms of processor each, {len(seen.failures)} failures")
    write(result, chosen.json)
    if seen.failures:
        raise SystemExit(json.dumps(seen.failures[:5]))


if __name__ == "__main__":
    main()
