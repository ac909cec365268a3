"""A soak of `visterm serve`: 32 clients, kills of the server, and a disk that fills up and is emptied in the middle.

Every write that the service acknowledged is in the catalogue at the end, and nothing in it was never asked for.

    python tests/soak.py --minutes 60 --json soak.json
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from small_disks import small_disk
from tiny_catalogue import make_tiny_catalogue
from visterm import Catalogue

CLIENTS = 32
KILLS_AN_HOUR = 50
PAUSE = 0.2
"""Seconds that a client waits between two requests: 32 then ask at most 160 times a second."""

DISK = 160 * 2**20
MEANT = ("200", "202", "409", "503", "507", "0", "reached")
"""How a request may end: 409 where more was said since, 503 of a busy service, 507 of a full disk, or unanswered."""


@dataclass
class Client:
    """One that asks, one request after the other; its tags are no other's, so that it knows what they must be."""

    number: int
    port: int
    statuses: Counter[str] = field(default_factory=Counter)
    judged: dict[int, tuple[int, str, int]] = field(default_factory=dict)
    """Acknowledged entries of the log of feedback."""
    unanswered: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Verdicts of which no answer came: they may be in the log or not."""
    given: dict[tuple[int, str], bool | None] = field(default_factory=dict)
    """Whether an image has a tag; None where no answer came."""

    def work(self, until: threading.Event, n_images: int) -> None:
        """Ask until told to stop."""
        rng = random.Random(self.number)
        while not until.wait(PAUSE * rng.uniform(0.5, 1.5)):
            image, place = rng.randrange(n_images), rng.randrange(8)
            act = rng.random()
            if act < 0.35:
                self._judge(f"/images/{image}/feedback", image, f"said {self.number} {place}", rng.choice((1, -1)))
            elif act < 0.45 and self.judged:
                number = next(reversed(self.judged))
                undone, tag, _ = self.judged[number]
                self._judge(f"/feedback/{number}/undo", undone, tag, None)
            elif act < 0.65:
                self._give(image, f"given {self.number} {place}", give=rng.random() < 0.7)
            else:
                self.ask("GET", rng.choice(("/health", "/search?q=stripes", f"/images/{image}", "/tags?limit=20")))

    def ask(self, method: str, path: str, content: Any = None) -> tuple[int, Any]:
        """Send one request, and return the status and the answer: status 0 if none came, -1 if nobody was reached."""
        body = None if content is None else json.dumps(content)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.connect()
        except OSError:
            self.statuses["not reached"] += 1
            time.sleep(PAUSE)
            return -1, None
        try:
            connection.request(method, f"/api/v1{path}", body, {"content-type": "application/json"} if body else {})
            answer = connection.getresponse()
            status, told = answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            status, told = 0, None
        finally:
            connection.close()
        self.statuses[f"{method} {re.sub(r'[0-9]+', 'N', path.partition('?')[0])} {status}"] += 1
        return status, told

    def _judge(self, path: str, image: int, tag: str, verdict: int | None) -> None:
        status, told = self.ask("POST", path, None if verdict is None else {"tag": tag, "verdict": verdict})
        if status == 200:
            self.judged[told["id"]] = (told["image_id"], told["tag"], told["verdict"])
        elif status == 0:
            self.unanswered[image, tag] += 1

    def _give(self, image: int, tag: str, *, give: bool) -> None:
        status, _ = self.ask("POST", f"/images/{image}/tags", {"give" if give else "take": [tag]})
        if status == 200:
            self.given[image, tag] = give
        elif status == 0:
            self.given[image, tag] = None


class Server:
    """`visterm serve` in a process of its own, which is killed and begun again."""

    def __init__(self, catalogue: Path, log: Path) -> None:
        self.catalogue, self.log = catalogue, log
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.refused: Counter[str] = Counter()
        self.memory: list[list[int]] = []
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, again and again while it says in one line why it cannot; wait until it answers."""
        while True:
            before = self.log.stat().st_size if self.log.exists() else 0
            with self.log.open("ab") as log:
                command = [sys.executable, "-m", "visterm", "serve", str(self.catalogue), "--port", str(self.port)]
                self.process = subprocess.Popen(command, stderr=log, stdout=log, start_new_session=True)
            while self.process.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                    self.memory.append([])
                    return
                time.sleep(0.1)
            told = self.log.read_bytes()[before:].decode()
            assert self.process.returncode == 2, told
            assert told.startswith("visterm: "), told
            assert told.count("\n") == 1, told
            self.refused[told.strip()] += 1
            time.sleep(1)

    def kill(self) -> None:
        """Kill it (-9)."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> int:
        """Tell it to end, and return its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(600)

    def measure(self) -> None:
        """Note the memory of all its processes that answer, now and in MB."""
        assert self.process is not None
        total = 0
        for pid in [self.process.pid, *workers_of(self.process.pid)]:
            with contextlib.suppress(OSError, StopIteration):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                resident = next(line for line in lines if line.startswith("VmRSS"))
                total += int(resident.split()[1]) // 1000
        self.memory[-1].append(total)


def workers_of(supervisor: int) -> list[int]:
    """List the processes that answer for a service."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == supervisor and b"visterm.web.workers" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
    return sorted(found)


def soak(minutes: float, *, seed: int = 0, say: Any = lambda line: None) -> dict[str, Any]:
    """Run the soak, check what must hold, and return its figures.

    Raises
    ------
    AssertionError
        If an acknowledged write is missing, something is there that nobody asked for, or the service failed.
    """
    seconds = 60 * minutes
    rng = random.Random(seed)
    kills = sorted(rng.uniform(0.02, 0.98) * seconds for _ in range(max(2, round(minutes * KILLS_AN_HOUR / 60))))
    full_from, full_to = 0.45 * seconds, 0.55 * seconds
    kills = sorted([*kills[1:], 0.5 * seconds])  # one while the disk is full
    with small_disk(DISK) as disk, tempfile.TemporaryDirectory() as elsewhere:
        made = make_tiny_catalogue(disk.folder)
        log = Path(elsewhere) / "server.log"
        server = Server(made.folder, log)
        before = _contents(made.folder)
        server.start()
        clients = [Client(number, server.port) for number in range(CLIENTS)]
        stop = threading.Event()
        threads = [threading.Thread(target=client.work, args=(stop, before["images"])) for client in clients]
        for thread in threads:
            thread.start()
        began, done, full, jobs = time.monotonic(), 0, False, []
        starter = threading.Thread()
        try:
            while (at := time.monotonic() - began) < seconds:
                if done < len(kills) and at >= kills[done] and not starter.is_alive():
                    done += 1
                    server.kill()
                    starter = threading.Thread(target=server.start)  # it may not come up before the disk is freed
                    starter.start()
                    say(f"{at:.0f} s: kill {done}; {sum(len(client.judged) for client in clients):,} verdicts")
                if not full and full_from <= at < full_to:
                    disk.leave(0)
                    full = True
                    jobs.append(clients[0].ask("POST", "/jobs", {"kind": "index"}))
                    say(f"{at:.0f} s: the disk is full")
                if disk.filler.exists() and at >= full_to:
                    disk.free()
                    say(f"{at:.0f} s: the disk has space again")
                if not starter.is_alive():
                    server.measure()
                time.sleep(min(5.0, seconds / 100))
        finally:
            stop.set()
            for thread in threads:
                thread.join(600)
            disk.free()
            if starter.is_alive():
                starter.join(600)
        ended = server.end()
        told = log.read_text()
        figures = {
            "minutes": minutes,
            "kills": done,
            "requests": sum(client.statuses.total() for client in clients),
            "verdicts": sum(len(client.judged) for client in clients),
            "tags": sum(len(client.given) for client in clients),
            "unanswered": sum(client.unanswered.total() for client in clients),
            "statuses": dict(sorted(sum((client.statuses for client in clients), Counter()).items())),
            "refused_starts": dict(server.refused),
            "jobs_on_a_full_disk": jobs,
            "memory_mb": [[max(life), life[-1]] for life in server.memory if life],
            "log_bytes": len(told),
        }
        say(json.dumps(figures, indent=1))
        assert ended in (0, -signal.SIGTERM), told[-2000:]
        assert "Traceback" not in told, told[-4000:]
        _check(figures, clients, made.folder, before)
        return figures


def _contents(folder: Path) -> dict[str, Any]:
    """Return what a catalogue held before anything was said."""
    catalogue = Catalogue.load(folder, n_jobs=1)
    try:
        return {
            "images": len(catalogue.records),
            "hashes": [record.sha256 for record in catalogue.records],
            "given": {i: sorted(tag.tag for tag in catalogue.image(i).given) for i in range(len(catalogue.records))},
        }
    finally:
        catalogue.stored.close()


def _check(figures: dict[str, Any], clients: list[Client], folder: Path, before: dict[str, Any]) -> None:
    statuses = {line: line.rpartition(" ")[2] for line in figures["statuses"]}
    unexpected = [line for line, status in statuses.items() if status not in MEANT]
    assert not unexpected, unexpected
    highest = [most for most, _ in figures["memory_mb"]]
    quarter = max(1, len(highest) // 4)
    assert max(highest[-quarter:]) <= 1.3 * max(highest[:quarter]) + 20, figures["memory_mb"]

    catalogue = Catalogue.load(folder, n_jobs=1)
    try:
        assert catalogue.stored.database.check() == []
        log = {entry.id: (entry.image_id, entry.tag, entry.verdict) for entry in _log(catalogue)}
        unanswered: Counter[tuple[int, str]] = Counter()
        for client in clients:
            lost = {number: said for number, said in client.judged.items() if log.pop(number, None) != said}
            assert not lost, f"acknowledged and not there: {lost}"
            unanswered += client.unanswered
        extra = Counter((image, tag) for image, tag, _ in log.values())
        assert extra <= unanswered, f"refused, and there all the same: {extra - unanswered}"
        for client in clients:
            for (image, tag), has in client.given.items():
                if has is not None:
                    assert (tag in catalogue.image(image).tags) == has, (image, tag, has)
        assert [record.sha256 for record in catalogue.records] == before["hashes"]
        for image, tags in before["given"].items():
            assert set(tags) <= {tag.tag for tag in catalogue.image(image).given}
        catalogue.stored.jobs.mark_lost()
        assert all(job.ended for job in catalogue.stored.jobs.latest(1000))
    finally:
        catalogue.stored.close()


def _log(catalogue: Catalogue) -> Iterator[Any]:
    last = 0
    while found := catalogue.stored.tags.feedback(after=last, limit=10_000):
        yield from found
        last = found[-1].id


def main() -> None:
    """Run the soak from the command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=float(os.environ.get("VISTERM_SOAK_MINUTES", "60")))
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--json", type=Path)
    given = options.parse_args()

    def say(line: str) -> None:
        print(line, flush=True)

    figures = soak(given.minutes, seed=given.seed, say=say)
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")
    say("Nothing acknowledged is lost.")


if __name__ == "__main__":
    main()
