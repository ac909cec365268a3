"""The service at its limit, below and beyond it: searches (80 %), thumbnails (15 %) and uploads (5 %) on loopback.

A catalogue of 20,000 rows of width 100 is made, `visterm serve` opens it in processes of its own, and this process asks
for `--seconds` each: with 32 clients as fast as answers come (`limit`); at 70 % of that rate with uploads (`below`) and
without (`without_uploads`); and with twice as many clients as searches may wait, without pause (`beyond`), where 503
with Retry-After is an answer, too. `floor` is what HTTP costs: one process with the same server and an empty
application, whose answers are as long, under the 32 clients. Rows are those of some hundred pictures, drawn by
visterm-research, with noise, so that thumbnails repeat as they do where people look; searches are of one to three drawn
tags, one in fifteen with a `-word`, one in ten among images with a tag.

    python benchmarks/serve.py --json serve.json
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
from visterm.web.service import Bounds
from visterm_research.scenes import draw_library

KINDS = (("search", 0.80), ("thumbnail", 0.15), ("annotate", 0.05))
PICTURES = 400
DIM = 100
SERVE = ("-m", "visterm", "serve", "--port", "0")
LIMIT = 50
WARM_SECONDS = 3.0
BELOW = 0.7  # Share of the rate at the limit
PATIENCE = 30.0
"""Seconds after which a request without an answer has failed."""

FLOOR = """
import json, sys
from visterm.web.server import run_server
sizes = json.loads(sys.argv[1])
async def app(scope, receive, send):
    assert scope["type"] == "http"
    while (await receive()).get("more_body"):
        pass
    size = sizes[next((kind for kind in sizes if kind in scope["path"]), "search")]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    await send({"type": "http.response.body", "body": bytes(size)})
run_server(app, "127.0.0.1", 0, lambda address: print(address, file=sys.stderr, flush=True))
"""


class Load:
    """What the clients have seen: the seconds of each answer by kind, "refused" for 503, and all else as failures."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.sizes: dict[str, int] = {}  # Bytes of the last answer of a kind
        self.failures: list[str] = []

    def note(self, kind: str, status: int, seconds: float, body: bytes) -> None:
        """Count one answer."""
        kind = kind if status == 200 else "refused"
        self.seconds[kind].append(seconds)
        self.sizes[kind] = len(body)
        if status not in (200, 503):
            self.failures.append(f"{status} {body[:200]!r}")


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
        told = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"content-length: (\d+)", told)
        answer = int(told[9:12]), await reader.readexactly(int(length[1]) if length else 0)
        if b"connection: close" in told:
            self.close()
        return answer if answer[0] != 503 or b"retry-after: " in told else (0, b"503 without Retry-After")

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


@contextmanager
def served(*arguments: str) -> Iterator[tuple[int, int]]:
    """Start Python with some arguments, which serve, and yield the port and the id of the process."""
    with subprocess.Popen([sys.executable, *arguments], stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            found = re.search(r"http://127\.0\.0\.1:\d+", told := server.stderr.readline())
            if found is None:
                raise SystemExit(f"The service did not start: {told}{server.stderr.read()}")
            yield int(found[0].rpartition(":")[2]), server.pid
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


def measured(
    name: str, server: tuple[int, int], seconds: float, clients: int, draw: Any, rate: float = 0.0
) -> tuple[dict[str, Any], Load]:
    """Ask for some seconds; return rates, processor time and quantiles in milliseconds, and what the clients saw."""
    before, own = processor_seconds(server[1]), time.process_time()
    seen, took = asyncio.run(load(server[0], seconds, clients, rate, draw))
    n = sum(map(len, seen.seconds.values()))
    failures = seen.failures + ["503"] * (0 if name == "beyond" else len(seen.seconds.get("refused", ())))
    result: dict[str, Any] = {
        "clients": clients, "rate": rate or None, "seconds": took, "requests": n, "requests_a_second": n / took,
        "failures": len(failures), "first_failures": failures[:5],
        "processor_milliseconds_a_request": 1000 * (processor_seconds(server[1]) - before) / max(1, n),
        "clients_processor_milliseconds_a_request": 1000 * (time.process_time() - own) / max(1, n), "milliseconds": {},
    }  # fmt: skip
    say(f"{name}: {n / took:.0f} requests a second, {result['processor_milliseconds_a_request']:.2f} ms of processor")
    for kind, values in sorted(seen.seconds.items()):
        p50, p90, p99, most = np.percentile(1000 * np.array(values), (50, 90, 99, 100)).tolist()
        result["milliseconds"][kind] = {"requests": len(values), "p50": p50, "p90": p90, "p99": p99, "most": most}
        say(f"    {kind:10} {len(values):7,}  p50 {p50:6.1f} ms  p99 {p99:6.1f} ms")
    return result, seen


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each load")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rows", type=int, default=20_000)
    chosen = parse(parser)
    n_rows, n_pictures = (500, 40) if chosen.quick else (chosen.rows, PICTURES)
    seconds = min(chosen.seconds, 2.0) if chosen.quick else chosen.seconds
    result: dict[str, Any] = {"machine": machine(), "rows": n_rows, "width": DIM}
    with tempfile.TemporaryDirectory() as temporary:
        tags = make_catalogue(folder := Path(temporary), n_rows, n_pictures)
        pictures = [path.read_bytes() for path in sorted((folder / "photos").iterdir())[:50]]

        def draw(rng: random.Random) -> tuple[str, str, str, bytes]:
            return request(rng, tags, n_rows, pictures)

        def draw_no_upload(rng: random.Random) -> tuple[str, str, str, bytes]:
            return next(drawn for drawn in iter(lambda: draw(rng), None) if drawn[0] != "annotate")

        with served(*SERVE, str(folder / "catalogue")) as service:
            asyncio.run(load(service[0], WARM_SECONDS, 4, 0.0, draw))
            result["limit"], seen = measured("limit", service, seconds, chosen.clients, draw)
            rate = BELOW * result["limit"]["requests_a_second"]
            for name, drawn in (("below", draw), ("without_uploads", draw_no_upload)):
                result[name], _ = measured(name, service, seconds, chosen.clients, drawn, rate)
            result["beyond"], _ = measured("beyond", service, seconds, 2 * Bounds().searching, draw)
        with served("-c", FLOOR, json.dumps(seen.sizes)) as server:
            result["floor"], _ = measured("floor", server, seconds / 3, chosen.clients, draw)
    write(result, chosen.json)
    if any(told["failures"] for told in result.values() if isinstance(told, dict) and "failures" in told):
        raise SystemExit("Requests failed, or were refused below the limit: see first_failures.")


if __name__ == "__main__":
    main()
