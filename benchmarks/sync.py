"""How `visterm sync` asks and how long it takes: 10,000 photos in an Immich, of which 100 are new, several times.

The Immich is the tests' fake of version 3.2 (`--old`: 3.1), a real HTTP server on the loopback address in this process;
each sync is a process of its own, from its start to its end. The photos are drawn scenes of visterm-research, each file
with bytes of its own at the end; people tagged two thirds of the first ones, with the most frequent of the scenes'
tags. Before the first measured round all that is sure was written. A round asks once for each different tag that it
writes, so that the number of tags decides.

    python benchmarks/sync.py --json docs/figures/sync.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from harness.runs import machine, options, parse, say, spread, write

from fakes.immich import KEY, FakeImmich
from visterm_research.scenes import draw_library

N_PHOTOS, N_NEW, N_SCENES, FLAT, NESTED = 10_000, 100, 400, (3, 1, 0), (3, 2, 0)
SETTINGS = "--encoder visterms --encoder-set max_side=96 --encoder-set codebook=200 --model ridge"


def visterm(*words: object) -> tuple[dict[str, float], dict[str, Any]]:
    """Run a command; return its seconds, those of processors, the peak of its memory in bytes, and its JSON."""
    began = time.perf_counter()
    done = subprocess.Popen([sys.executable, "-m", "visterm", *map(str, words)], stdout=subprocess.PIPE)
    assert done.stdout is not None
    out = done.stdout.read()
    _, status, used = os.wait4(done.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"visterm {words[0]} failed")
    took = {"seconds": time.perf_counter() - began, "processor_seconds": used.ru_utime + used.ru_stime,
            "peak_bytes": used.ru_maxrss * 1024}  # fmt: skip
    return took, json.loads(out.splitlines()[-1]) if out else {}


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--old", action="store_true", help="Immich 3.1")
    parser.add_argument("--tags", type=int, default=30, help="how many different tags people use")
    parser.add_argument("--photos", type=int, default=N_PHOTOS)
    chosen = parse(parser)
    n_photos, n_new, n_scenes = (300, 10, 60) if chosen.quick else (chosen.photos, N_NEW, N_SCENES)
    with tempfile.TemporaryDirectory() as temporary, FakeImmich(FLAT if chosen.old else NESTED) as fake:
        fake.per_request = 3.0  # Seconds by its clock: what sync waits for by its own, between two requests
        folder = Path(temporary)
        os.environ["VISTERM_CONNECTED"] = str(folder / "connected.json")
        (folder / "key").write_text(KEY)
        (folder / "key").chmod(0o600)
        drawn = draw_library(folder / "drawn", n_scenes=n_scenes)
        files = [(drawn.images / picture.file_name).read_bytes() for picture in drawn.pictures]

        counts = Counter(tag for picture in drawn.pictures for tag in picture.tags)
        used = {tag for tag, _ in counts.most_common(chosen.tags)}

        def add(number: int, *, tagged: bool) -> None:
            picture = drawn.pictures[number % n_scenes]
            content = files[number % n_scenes] + number.to_bytes(4, "big")
            tags = tuple(sorted(used.intersection(picture.tags))) if tagged else ()
            photo = fake.add_photo(f"{number:05d}.jpg", content, tags, age=3600.0)
            fake.photos[photo].updated = fake.now()

        for number in range(n_photos):
            add(number, tagged=number % 3 > 0)
        catalogue = folder / "catalogue"
        took, _ = visterm(
            "connect", "immich", fake.url, "--key-file", folder / "key", "-o", catalogue, *SETTINGS.split()
        )
        connect = {**took, "requests": len(fake.traffic), "photos": n_photos}
        say("connect", connect)
        took, first = visterm("sync", catalogue, "--json")
        fake.offset += 3600  # photos that were touched in the last minutes are read again
        visterm("sync", catalogue, "--json")
        say(f"first sync: {took['seconds']:.1f} s, {first['written']:,} written")
        rounds = []
        for turn in range(chosen.runs):
            fake.offset += 3600
            for number in range(n_new):
                add(n_photos + turn * n_new + number, tagged=False)
            fake.advance(600.0)  # photos that were changed in the last minutes get no tags
            before = len(fake.traffic)
            took, done = visterm("sync", catalogue, "--json")
            asked = [f"{each['method']} {each['path'].split('/')[2]}" for each in fake.traffic[before:]]
            n_previews = sum(each["path"].endswith("/thumbnail") for each in fake.traffic[before:])
            rounds.append({**took, "previews": n_previews, "other_requests": len(asked) - n_previews,
                           "written": done["written"], "asked": dict(Counter(asked))})  # fmt: skip
            say(rounds[-1])
            assert done["new"] == n_new
            fake.offset += 3600
            visterm("sync", catalogue, "--json")  # reads what was written now, so that each turn begins alike
    write(
        {
            "machine": machine(), "immich": ".".join(map(str, fake.version)), "photos": n_photos, "new": n_new,
            "tags": len(used), "connect": connect, "rounds": rounds,
            **{of: spread([each[of] for each in rounds]) for of in ("seconds", "processor_seconds", "other_requests")},
        },
        chosen.json,
    )  # fmt: skip


if __name__ == "__main__":
    main()
