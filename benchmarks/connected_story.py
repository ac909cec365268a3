"""The story of docs/connect.md with 500 photos of Corel5k: connect, learn, write, a person corrects 20, sync, undo.

The servers are the tests' own, which answer as the programs do. The person is Corel5k: of 200 photos all its words are
given at the start, and of all it says which of visterm's tags are right. Without Corel5k the photos are the demo's, of
visterm-research.

    python benchmarks/connected_story.py ../shared --json docs/figures/connected_story.json
    python benchmarks/connected_story.py ../shared --first-hour --json docs/figures/first_hour.json

`--first-hour` lists in dry runs what would be written for 1,000 photos of which people have tagged 50, 100, 200 or 500.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness.runs import machine, say, write

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from command_line import visterm
from connected_story import Picture, Told, corel_pictures, drawn_pictures, tell
from fakes.immich import FakeImmich
from fakes.photoprism import FakePhotoPrism
from visterm.connectors import keys
from visterm_research.scenes import draw_library

FAKES: dict[str, Any] = {"immich": FakeImmich, "photoprism": FakePhotoPrism}
COREL, NETWORK = Path("data/corel5k"), Path("models/mobilenet_v2.onnx")
QUICK = "--encoder visterms --encoder-set max_side=64 --encoder-set codebook=100 --model ridge"
PARTS = ("connected", "tried", "synced", "corrected", "synced again", "nothing new", "undone")


def figures(told: Told) -> dict[str, Any]:
    """Return what was written, how much of it was right, and what it took."""
    written = {part: told.written(part) for part in ("synced", "synced again")}
    right = {part: sum(map(told.is_right, tags)) for part, tags in written.items()}
    people = {photo: set(tags) for photo, tags in told.states["tagged"].items()}
    for photo, tag in told.added:
        people[photo].add(tag)
    return {
        **{part: {"tags of visterm": len(written[part]), "right": right[part]} for part in written},
        "taken off by the person": len(told.removed),
        "of these written again": len(written["synced again"] & set(told.removed)),
        "given by the person": len(told.added),
        "differences after undo": sum(len(tags ^ people[photo]) for photo, tags in told.states["undone"].items()),
        "requests": {part: told.requests[part] for part in PARTS},
        "seconds": {part: round(told.seconds[part], 2) for part in PARTS},
    }


def first_hour(
    pictures: list[Picture], folder: Path, options: str, n_tagged: int, precisions: tuple[float, ...] = (0.9, 0.7)
) -> dict[str, Any]:
    """Return what dry runs would write in a library of which people have tagged the first photos, and how it began."""
    folder.mkdir()
    key = folder / "key.txt"
    key.touch(mode=0o600)
    truth = {picture.file.name: {tag.casefold() for tag in picture.tags} for picture in pictures}
    with FakeImmich() as fake:
        key.write_text(fake.key)
        for i, picture in enumerate(pictures):
            fake.add_photo(picture.file.name, picture.file.read_bytes(), picture.tags if i < n_tagged else ())
        began = time.perf_counter()
        code, out, err = visterm(f"connect immich {fake.url} --key-file key.txt -o catalogue {options}", folder)
        assert code == 0, out + err
        found: dict[str, Any] = {"seconds to connect": round(time.perf_counter() - began, 1)}
        for precision in precisions:
            code, out, err = visterm(f"sync catalogue --dry-run --json --precision {precision}", folder)
            assert code == 0, out + err
            *pairs, counts = map(json.loads, out.splitlines())
            right = sum(pair["tag"].removeprefix("visterm/").casefold() in truth[pair["name"]] for pair in pairs)
            photos, tags = ({pair[key] for pair in pairs} for key in ("photo", "tag"))
            counted = {"tags": len(pairs), "right": right, "photos": len(photos), "different tags": len(tags)}
            found[f"at precision {precision:g}"] = counted | {"remarks": counts["remarks"]}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, nargs="?", help="has data/corel5k and models/mobilenet_v2.onnx")
    parser.add_argument("--json", type=Path, metavar="PATH")
    parser.add_argument("--program", choices=FAKES, action="append", help="only this one")
    parser.add_argument("--first-hour", action="store_true", help="dry runs by how many photos are tagged")
    parser.add_argument("--quick", action="store_true", help="200 drawn photos: shows that it works, no figures")
    chosen = parser.parse_args()
    corel = None if chosen.quick or chosen.shared is None else chosen.shared / COREL
    options = QUICK
    if not chosen.quick and chosen.shared is not None and (chosen.shared / NETWORK).exists():
        options = f"--encoder onnx:{(chosen.shared / NETWORK).resolve()} --encoder-set output=features"
    encoder, photos = "visterms" if options == QUICK else NETWORK.stem, "drawn" if corel is None else "Corel5k"
    result: dict[str, Any] = {"machine": machine(), "photos": photos, "encoder": encoder}
    with tempfile.TemporaryDirectory() as name:
        folder, n, n_tagged = Path(name), 200 if chosen.quick else 500, 130 if chosen.quick else 200
        os.environ[keys.ALLOWED_VARIABLE] = str(folder / "connected.json")
        pictures: list[Picture] = (
            drawn_pictures(folder / "drawn", n, draw_library) if corel is None else corel_pictures(corel, n)
        )
        if chosen.first_hour:
            assert corel is not None, "--first-hour wants Corel5k"
            many, counts = corel_pictures(corel, 1000), (50, 100, 200, 500)
            for n_tagged in counts:
                result[f"{n_tagged} tagged"] = first_hour(many, folder / str(n_tagged), options, n_tagged)
                say(f"{n_tagged} tagged", result[f"{n_tagged} tagged"])
            write(result, chosen.json)
            return
        for kind in chosen.program or FAKES:
            (folder / kind).mkdir()
            with FAKES[kind]() as fake:
                told = tell(fake, folder / kind, pictures, n_tagged=n_tagged, options=options)
            result[kind] = figures(told)
            say(kind, result[kind])
    write(result, chosen.json)


if __name__ == "__main__":
    main()
