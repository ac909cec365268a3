"""Rounds with Immich's fake while a person tags and takes tags off, and requests break: by seed, on a virtual clock.

Each seed syncs a catalogue several times with changing settings. A person acts at random times, before, in and after
requests, and takes a tag that they said no to off again when they see it. Some rounds are stopped at a request. Once
all jobs are done, none of visterm's tags is missing, or left after undo, and the person's are as they left them, but
for those that Immich itself may lose (`FakeImmich.endangered`).

    python tests/immich_people.py --seeds 100 --json people.json
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fakes import served
from fakes.immich import KEY, FakeImmich
from remembered_library import N_TAGGED, REQUEST, colour_of, picture, tags_of
from visterm.connectors import sync as syncing
from visterm.connectors.connect import connect
from visterm.connectors.immich import ImmichLibrary
from visterm.connectors.sync import PushSettings, sync, undo
from visterm.core.errors import ServiceError
from visterm.core.web_client import Patience
from visterm.library.catalogue import Catalogue

N_PHOTOS = 140
ROUNDS = (
    PushSettings(precision=0.6), PushSettings(precision=0.6), PushSettings(precision=0.6, k=1),
    PushSettings(precision=0.5),
)  # fmt: skip
ACTS = 6  # Of the person, in each round
BETWEEN = 900.0  # Seconds between two rounds


class Person:
    """Tags photos and takes tags off, at times by the fake's clock, each pair once; a photo only when it is idle."""

    def __init__(self, fake: FakeImmich, rng: random.Random) -> None:
        self._fake, self._rng = fake, rng
        self.gave: set[tuple[str, str]] = set()
        self.took: set[tuple[str, str]] = set()
        self.said_no: set[tuple[str, str]] = set()
        self.again = 0  # Tags of visterm that had to be taken off once more

    def plan(self, seconds: float) -> None:
        """Choose the times of some acts in the next seconds."""
        for _ in range(ACTS):
            self._fake._at(self._fake.clock + self._rng.uniform(0, seconds), self._act)

    def _act(self) -> None:
        fake = self._fake
        idle = sorted(photo for photo in fake.photos if not fake.unfinished[photo] - fake.unfinished_ours[photo])
        photo = self._rng.choice(idle)
        ours = sorted(tag for tag in fake.tags_of(photo) if tag.startswith("visterm/"))
        theirs = sorted(fake.tags_of(photo) - set(ours))
        acted = {tag for each, tag in self.gave | self.took | self.said_no if each == photo}
        if ours and self._rng.random() < 0.7:
            self.said_no.add((photo, self._rng.choice(ours)))
            self.insist()
        elif theirs and not acted and self._rng.random() < 0.5:
            self.took.add((photo, theirs[0]))
            fake.person_untags(photo, theirs[0])
        elif "beach" not in acted:
            self.gave.add((photo, "beach"))
            fake.person_tags(photo, "beach")

    def insist(self, *, counted: bool = False) -> None:
        """Take off the tags that are there though the person said no to them."""
        fake = self._fake
        for photo, tag in sorted(self.said_no):
            if tag in fake.tags_of(photo) and not fake.unfinished[photo] - fake.unfinished_ours[photo]:
                fake.person_untags(photo, tag)
                self.again += counted


class Seeds:
    """A server, a catalogue of it as it was connected, and what the seeds showed."""

    def __init__(self, folder: Path, fake: FakeImmich) -> None:
        self.folder, self.fake = folder, fake
        self.counts: Counter[str] = Counter()
        for number in range(N_PHOTOS):
            tags = tuple(tags_of(number)) if number < N_TAGGED else ()
            library = "00000000-0000-4000-8000-000000000001" if number % 3 == 0 else None
            fake.add_photo(f"p{number:03d}.jpg", picture(colour_of(number), number), tags, library=library)
        connect(folder / "connected", self.library(), key_file=None, run=None, request=REQUEST)[0].stored.close()
        self._before = fake.kept()

    def library(self) -> ImmichLibrary:
        """Return a client that waits by the fake's clock and tries nothing again."""
        return ImmichLibrary(self.fake.url, KEY, Patience(timeout=600, retries=0, pause=self.fake.advance))

    def seed(self, seed: int) -> None:
        """Run the rounds of a seed, and check what came of them. Raises AssertionError."""
        rng, fake, place = random.Random(seed), self.fake, self.folder / f"seed{seed}"
        fake.put_back(self._before, seed)
        shutil.copytree(self.folder / "connected", place)
        catalogue, person = Catalogue.load(place, n_jobs=1), Person(fake, rng)
        people = self.pairs(ours=False)
        for settings in ROUNDS:
            for _ in range(rng.randrange(3)):
                person.plan(20.0)
                self._broken_round(catalogue, settings, rng)
                fake.advance(rng.choice((0.0, 1.0, 30.0)))
            person.plan(20.0)
            self._quiet_round(catalogue, person, settings)
        for _ in range(2):
            self._quiet_round(catalogue, person, ROUNDS[-1])
        self._check(catalogue, person, people)
        catalogue.stored.close()
        shutil.rmtree(place)

    def _check(self, catalogue: Catalogue, person: Person, people: set[tuple[str, str]]) -> None:
        fake = self.fake
        connected = catalogue.stored.connected
        written = {(pair.remote_id, pair.text) for pair in connected.pairs("written")}
        differ = self.pairs(ours=True) ^ written
        assert not differ, (
            f"the log differs from what is there: {[(pair, self.history(connected, *pair)) for pair in differ]}"
        )
        last = sync(catalogue, self.library(), ROUNDS[-1]).pushed
        assert (last.written, last.taken, last.waiting, last.refused) == (0, 0, 0, 0), "nothing is missing after sync"
        expected = (people | person.gave) - person.took
        differ = (self.pairs(ours=False) ^ expected) - fake.endangered
        assert not differ, f"people's tags are not as they left them: {differ}"
        photos = {photo.remote_id: photo for page in connected.with_preview() for photo in page}
        learned = {(n, tag) for n, photo in photos.items() for tag in photo.given or () if tag.startswith("visterm")}
        assert not learned, "a tag of ours was learned"
        no = {
            (n, tag) for n, photo in photos.items()
            for tag, verdict in catalogue.stored.tags.verdicts(photo.image_id).items() if verdict == -1
        }  # fmt: skip
        made = {(n, tag.removeprefix("visterm/")) for n, tag in person.said_no | person.took}
        safe = {(n, tag.removeprefix("visterm/")) for n, tag in fake.endangered}
        assert no - made <= safe, f"rejections that nobody made: {no - made}"
        unknown = [self.history(connected, n, f"visterm/{tag}") for n, tag in made - no - safe]
        assert not unknown, f"rejections that are not known: {unknown}"
        self.counts["taken off once more"] += person.again
        self.counts["rejections"] += len(no)
        self.counts["endangered"] += len(fake.endangered)
        left = undo(catalogue, self.library())
        fake.finish_jobs()
        assert (left.refused, left.waiting) == (0, 0)
        assert self.pairs(ours=True) == set(), "tags of ours are left after undo"
        assert not (self.pairs(ours=False) ^ expected) - fake.endangered

    def _quiet_round(self, catalogue: Catalogue, person: Person, settings: PushSettings) -> None:
        """Do a round, and let all jobs end; then the person looks at the photos."""
        self._round(catalogue, settings)
        for _ in range(2):
            self.fake.advance(BETWEEN)
            self.fake.finish_jobs()
            person.insist(counted=True)

    def history(self, connected: Any, photo: str, tag: str) -> list[Any]:
        """Return what is known of a pair, for a message."""
        logged = connected._database.rows(
            "SELECT w.state, sure, losses, touched, p.state FROM remote_pairs AS w JOIN remote_photos AS p "
            "ON p.id = photo_id WHERE remote_id = ? AND tag = ?", (photo, tag)
        )  # fmt: skip
        asset = self.fake.photos[photo]
        return [logged, self.fake.tags_of(photo), asset.in_file, asset.updated - self.fake.clock,
                [write for write in self.fake.writes if write[1:] == (photo, tag)]]  # fmt: skip

    def _round(self, catalogue: Catalogue, settings: PushSettings) -> None:
        sync(catalogue, self.library(), settings)
        self.counts["rounds"] += 1

    def _broken_round(self, catalogue: Catalogue, settings: PushSettings, rng: random.Random) -> None:
        """Do a round that stops at a request that the seed chooses, before or after the server did its work."""
        left, fault = [rng.randrange(1, 40)], rng.choice((served.lost, served.reset, served.cut))

        def stop(handler: served.Handler, work: Any) -> None:
            left[0] -= 1
            if left[0]:
                handler.send(work())
            else:
                fault(handler, work)

        self.fake.fail(stop, times=left[0])
        try:
            self._round(catalogue, settings)
        except ServiceError:
            self.counts["stopped"] += 1
        self.fake.forget_faults()

    def pairs(self, *, ours: bool) -> set[tuple[str, str]]:
        """Return the pairs that are there, visterm's or the people's."""
        return {
            (photo, tag) for photo in self.fake.photos for tag in self.fake.tags_of(photo)
            if tag.startswith("visterm/") == ours
        }  # fmt: skip


def without_learning(patch: pytest.MonkeyPatch) -> None:
    """Let rounds learn nothing: the run stays, and with it the predictions."""
    patch.setattr(
        syncing, "_learn", lambda catalogue, done, progress: catalogue.stored.connected.update(learn_from=None)
    )


def main() -> None:
    """Run many seeds, and say what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    failed: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as folder, FakeImmich() as fake, pytest.MonkeyPatch.context() as patch:
        without_learning(patch)
        seeds = Seeds(Path(folder), fake)
        began = time.monotonic()
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            try:
                seeds.seed(seed)
            except AssertionError as error:
                failed[seed] = str(error)[:700]
                print(seed, failed[seed], flush=True)
        figures = {"seeds": chosen.seeds, **seeds.counts, "failed": failed, "seconds": time.monotonic() - began}
    print(figures)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
