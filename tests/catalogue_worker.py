"""A process that works at a catalogue until it is killed, and says on standard output what it has been told is done."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from tiny_catalogues import COLOURS, draw_photo
from visterm import Catalogue
from visterm.core.persist import file_hash
from visterm.library.rows import RowWriter


def say(**told: object) -> None:
    """Acknowledge."""
    print(json.dumps(told), flush=True)


def index(catalogue: Catalogue, photos: Path, rng: random.Random) -> None:
    """Change photos, move some, and index, for ever."""
    take_in = RowWriter.ingest

    def and_say(self, listed, *given):
        taken, skipped = take_in(self, listed, *given)
        say(taken={str(listed.items[place]): file_hash(listed.items[place]) for place in taken})
        return taken, skipped

    RowWriter.ingest = and_say
    while True:
        catalogue.index(photos, chunk_size=2)
        there = sorted(path for path in photos.iterdir() if not path.name.startswith("."))
        for path in rng.sample(there, 8):  # whole or not at all, as a kill may fall here too
            draw_photo(photos / ".new.png", rng.choice(list(COLOURS)), rng.randrange(10**9)).replace(path)
        old = rng.choice(there)
        old.rename(photos / f"{rng.randrange(10**9)}.png")


def feedback(catalogue: Catalogue, photos: Path, rng: random.Random) -> None:
    """Judge, give and take, for ever."""
    n = len(catalogue.records)
    while True:
        image_id, tag = rng.randrange(n), rng.choice([*COLOURS, "fog"])
        verdict = rng.choice((1, -1))
        say(judged=catalogue.judge(image_id, tag, verdict), image=image_id, tag=tag, verdict=verdict)
        given = f"tag {rng.randrange(20)}"
        catalogue.give(image_id, [given])
        say(given=given, image=image_id)


def fit(catalogue: Catalogue, photos: Path, rng: random.Random) -> None:
    """Add a tag and learn, or go back to the run of before, for ever."""
    while True:
        catalogue.give(rng.randrange(len(catalogue.records)), [f"tag {rng.randrange(20)}"])
        if rng.random() < 0.3 and catalogue.earlier_runs():
            catalogue.go_back()
            say(changed_to=catalogue.tagger.fingerprint)
            continue
        learned = catalogue.learn(full=rng.random() < 0.5)
        if learned.in_use and learned.run != learned.run_before:
            say(changed_to=learned.run)


if __name__ == "__main__":
    kind, folder, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    opened = Catalogue.load(folder / "catalogue", n_jobs=1)
    say(ready=True)
    {"index": index, "feedback": feedback, "fit": fit}[kind](opened, folder / "photos", random.Random(seed))
