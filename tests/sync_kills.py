"""Kills of `visterm sync` by seed: of the client (SIGKILL), of the server, and answers that are cut.

The client is a process of its own that speaks HTTP with the fake of Immich. After each seed's kills a calm round ends
the work; then the server holds what it holds after rounds without any kill, nothing was written twice, no person's tag
is lost, and undo leaves what was there before.

    python tests/sync_kills.py --seeds 100 --json kills.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fakes import served
from fakes.immich import KEY, FakeImmich
from remembered_library import N_PHOTOS, N_TAGGED, REQUEST, colour_of, picture, tags_of
from visterm.connectors import keys
from visterm.connectors.connect import connect
from visterm.connectors.contract import RETRIES
from visterm.connectors.immich import ImmichLibrary
from visterm.connectors.sync import PushSettings, connection_of, sync, undo
from visterm.core.errors import ServiceError
from visterm.core.web_client import Patience
from visterm.library.catalogue import Catalogue
from visterm.store.connected import WRITTEN

SETTINGS = PushSettings(precision=0.6)
BETWEEN = 900.0  # Seconds between two rounds, by the server's clock
LONGEST = 600.0  # Seconds that a round may take on a busy machine before something is wrong
UNREACHED = 3  # The exit code of a client that gave up
KINDS = ("client at a request", "client after an answer", "client at a moment", "server", "answer cut")
FAULTS = (served.cut, served.lost, served.reset, served.half_json)
SLOW_TO_IMPORT = (
    "visterm.library.learn", "visterm.models.linear.ridge", "visterm.encoders.visterms", "visterm.encoders.blocks",
    "visterm.learning.calibrating", "visterm.data.tag_queries", "visterm.metrics.report", "sklearn.base", "pi_heif",
    "visterm.kernels.pixels",
)  # fmt: skip
"""What a process would else import in the middle of a round: a second on a quiet machine."""
SECONDS = 1.0  # By the server's clock, of each request


def one_round(folder: str) -> None:
    """Do a round, in a process of its own."""
    catalogue = Catalogue.load(folder, n_jobs=1)
    try:
        sync(catalogue, client(connection_of(catalogue).address), SETTINGS)
    except ServiceError:
        sys.exit(UNREACHED)


def client(address: str) -> ImmichLibrary:
    """Return a client that waits a moment for what takes the server seconds: by its clock a request takes some."""
    return ImmichLibrary(address, KEY, Patience(retries=RETRIES, pause=lambda seconds: time.sleep(0.01)))


class Kills:
    """A server, a catalogue of it as it was connected, and what calm rounds make of both."""

    def __init__(self, folder: Path, fake: FakeImmich) -> None:
        self.folder, self.fake = folder, fake
        self.counts: Counter[str] = Counter()
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(["sync_kills", *SLOW_TO_IMPORT])
        for number in range(N_PHOTOS):
            tags = tuple(tags_of(number)) if number < N_TAGGED else ()
            fake.add_photo(f"p{number:03d}.jpg", picture(colour_of(number), number), tags)
        connect(folder / "connected", ImmichLibrary(fake.url, KEY), key_file=folder / "key", run=None, request=REQUEST)
        fake.per_request = SECONDS
        fake.finish_jobs()
        self._before = fake.kept()
        shutil.copytree(folder / "connected", folder / "calm")
        self._run(len, "")  # starts the server of processes
        self._changes = {"nothing": lambda: None, "people": self._people}
        self.seconds: dict[str, float] = {}  # Of calm rounds
        for name, change in self._changes.items():
            change()
            began = time.monotonic()
            self._calm_round(folder / "calm")
            self.seconds[name] = time.monotonic() - began
        self.state = fake.state()
        self.people = {
            (name, tag) for name, tags in self.state.items() for tag in tags if not tag.startswith("visterm/")
        }

    def seed(self, seed: int) -> None:
        """Disturb both rounds by a seed, and check what came of it. Raises AssertionError."""
        rng, fake, catalogue = random.Random(seed), self.fake, self.folder / f"seed{seed}"
        fake.put_back(self._before, seed)
        shutil.copytree(self.folder / "connected", catalogue)
        for name, change in self._changes.items():
            change()
            for _ in range(rng.randrange(1, 4)):
                self._disturbed_round(catalogue, rng, self.seconds[name])
                fake.finish_jobs()
                fake.advance(BETWEEN)
            self._calm_round(catalogue)
        assert fake.state() == self.state
        assert max(Counter(fake.writes).values()) == 1, "a pair was written or taken twice"
        opened = Catalogue.load(catalogue, n_jobs=1)
        ours = {(pair.name, pair.text) for pair in opened.stored.connected.pairs(WRITTEN)}
        assert ours == {(name, tag) for name, tags in self.state.items() for tag in tags} - self.people
        undone = undo(opened, client(fake.url))
        fake.finish_jobs()
        assert (undone.refused, undone.waiting) == (0, 0), undone.reasons
        assert {(name, tag) for name, tags in fake.state().items() for tag in tags} == self.people
        opened.stored.close()
        shutil.rmtree(catalogue)

    def _calm_round(self, catalogue: Path) -> None:
        self.fake.advance(BETWEEN)
        self._run(one_round, str(catalogue))
        self.fake.finish_jobs()
        self.fake.advance(BETWEEN)

    def _people(self) -> None:
        """Let people tag and take off tags, one of ours too, throw a photo away and bring new ones."""
        by_name = {photo.name: photo.id for photo in self.fake.photos.values()}
        self.fake.person_untags(by_name["p000.jpg"], "red")
        self.fake.person_tags(by_name["p155.jpg"], "blue")
        self.fake.person_tags(by_name["p155.jpg"], "été/mer")
        name, tag = min((name, tag) for name, tags in self.fake.state().items() for tag in tags if "visterm/" in tag)
        self.fake.person_untags(by_name[name], tag)
        self.fake.finish_jobs()
        self.fake.trash(by_name["p010.jpg"])
        for number in range(6):
            photo = self.fake.add_photo(f"new{number}.jpg", picture("red", 900 + number))
            self.fake.photos[photo].updated = self.fake.now()

    def _disturbed_round(self, catalogue: Path, rng: random.Random, seconds: float) -> None:
        """Run a client, and kill it, or its server, or cut its answers, at a place that the seed chooses."""
        kind, fake = rng.choice(KINDS), self.fake
        process = self._processes.Process(target=one_round, args=(str(catalogue),))
        at = rng.randrange(1, 30)
        if kind in KINDS[:2]:
            left = [at]

            def kill(handler: served.Handler, work: Any) -> None:
                left[0] -= 1
                if left[0] or process.pid is None:
                    handler.send(work())
                    return
                if kind.startswith("client after"):
                    work()
                os.kill(process.pid, signal.SIGKILL)
                handler.break_off()

            fake.fail(kill, times=at)
        elif kind == "server":
            fake.dies_in = at
        elif kind == "answer cut":
            left = [at]
            fault = rng.choice(FAULTS)

            def cut(handler: served.Handler, work: Any) -> None:
                left[0] -= 1
                if left[0]:
                    handler.send(work())
                else:
                    fault(handler, work)

            fake.fail(cut, times=at)
        process.start()
        if kind == "client at a moment":
            process.join(rng.uniform(0.0, 1.2 * seconds))
            process.kill()
        away, until = rng.uniform(0.0, 0.5), time.monotonic() + LONGEST
        while process.is_alive():
            assert time.monotonic() < until, f"a round after a kill ({kind}) does not end"
            if fake.died.is_set():
                time.sleep(away)
                fake.start()
            process.join(0.02)
        if fake.died.is_set():
            fake.start()
        ended = {0: "went on", UNREACHED: "gave up", -signal.SIGKILL: "killed"}
        assert process.exitcode in ended, f"a round ends with {process.exitcode}"
        self.counts[f"{kind}: {ended[process.exitcode]}"] += 1
        fake.dies_in = None
        fake.forget_faults()

    def _run(self, work: Callable[[str], object], folder: str) -> None:
        """Run a process to its end."""
        process = self._processes.Process(target=work, args=(folder,))
        process.start()
        process.join(LONGEST)
        assert process.exitcode == 0, f"a calm round ends with {process.exitcode}"


@contextmanager
def killing(folder: Path) -> Iterator[Kills]:
    """Start a server, and connect a catalogue to it."""
    os.environ[keys.ALLOWED_VARIABLE] = str(folder / "connected.json")
    (folder / "key").write_text(KEY)
    (folder / "key").chmod(0o600)
    with FakeImmich() as fake:
        keys.allow(fake.url, str(folder / "key"))
        yield Kills(folder, fake)


def main() -> None:
    """Kill by many seeds, and say what was killed how often."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    began, failed = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as folder, killing(Path(folder)) as kills:
        for seed in range(chosen.seeds):
            try:
                kills.seed(seed)
            except AssertionError as error:
                failed[seed] = str(error)[:500]
            print(seed, dict(kills.counts), failed, flush=True)
        figures = {"seeds": chosen.seeds, "kills": dict(sorted(kills.counts.items())), "failed": failed,
                   "seconds": time.monotonic() - began}  # fmt: skip
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
