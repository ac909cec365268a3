"""The map of the photos: how long it takes to draw, and frames a second in headless Chromium while one moves and zooms.

* **draw**: seconds in which `umap-learn` places photos of 40 planted groups, the second time (the first compiles), and
  in which later photos are placed by their neighbours; the share of each photo's ten neighbours that are of its group.
* **frames**: the real page with its real script and a map of as many photos. Each frame, the mouse drags or the wheel
  turns; what is measured is the time between two frames that the browser drew, at most 60 a second, and the time that
  the script needed to draw one (16.7 ms are the room for it).
  Thumbnails come from this program, one of its own for each photo, so that the service's decoding is not measured.

    python photo_map.py --json figures/photo_map.json
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness.runs import machine, options, parse, say, spread, write

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from PIL import Image

from served_library import served
from tiny_catalogue import make_tiny_catalogue
from visterm import Catalogue
from visterm.library import photo_map

PARTS = ("frames", "draw")
GROUPS, WIDTH = 40, 64
SECONDS = 3
WAYS = (("all in view", 0, "pan"), ("zooming in and out", 0, "zoom"), ("thumbnails in view", 9, "pan"))
MOVES = """async ({ kind, seconds }) => {
  const canvas = document.querySelector("#photo-map"), box = canvas.getBoundingClientRect();
  const x = box.left + box.width / 2, y = box.top + box.height / 2;
  const send = (type, more) => canvas.dispatchEvent(type === "wheel"
    ? new WheelEvent(type, { clientX: x, clientY: y, cancelable: true, ...more })
    : new PointerEvent(type, { clientX: x, clientY: y, pointerId: 1, ...more }));
  canvas.setPointerCapture = () => {};
  const times = [];
  window.work = [];
  let turn = 0;
  if (kind !== "zoom") send("pointerdown");
  await new Promise((end) => {
    const first = performance.now();
    const frame = (now) => {
      times.push(now);
      turn += 1;
      if (kind === "zoom") send("wheel", { deltaY: turn % 120 < 60 ? -40 : 40 });
      else send("pointermove", { clientX: x + 120 * Math.sin(turn / 15), clientY: y + 80 * Math.cos(turn / 15) });
      if (now - first < seconds * 1000) requestAnimationFrame(frame);
      else end();
    };
    requestAnimationFrame(frame);
  });
  if (kind !== "zoom") send("pointerup");
  return { gaps: times.slice(1).map((time, i) => time - times[i]), work: window.work };
}"""
"""Moves the map once each frame, and returns the milliseconds between frames, and those that each took to draw."""

TIMED = """const request = window.requestAnimationFrame.bind(window);
window.work = [];
window.requestAnimationFrame = (draw) => request((now) => {
  const begun = performance.now();
  draw(now);
  window.work.push(performance.now() - begun);
});"""


def grouped(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of planted groups, and the group of each."""
    rng = np.random.default_rng(0)
    middles = rng.normal(size=(GROUPS, WIDTH))
    rng = np.random.default_rng(seed)
    group = rng.integers(0, GROUPS, n)
    return (middles[group] + 0.8 * rng.normal(size=(n, WIDTH))).astype(np.float32), group


def draw(n: int, folder: Path) -> dict[str, float]:
    """Measure placing `n` photos, and a tenth as many that come later."""
    from sklearn.neighbors import NearestNeighbors

    X, group = grouped(n, 1)
    new, group_of_new = grouped(n // 10, 2)
    photo_map._plane_positions(photo_map._directions(X[:500]))  # compiles
    started = time.perf_counter()
    known = photo_map.PhotoMap(np.arange(n), photo_map._plane_positions(photo_map._directions(X)))
    seconds = time.perf_counter() - started
    every = np.concatenate([X, new])
    started = time.perf_counter()
    found = photo_map._place_by_neighbours(
        every.__getitem__, known, np.arange(len(every)), folder / "map.npz", lambda: False, photo_map.SILENT
    )
    later = time.perf_counter() - started
    groups = np.concatenate([group, group_of_new])
    near = NearestNeighbors(n_neighbors=11).fit(found.places).kneighbors(return_distance=False)[:, :10]
    same = groups[near] == groups[:, None]
    return {
        "photos": n, "seconds": seconds, "later photos": len(new), "seconds of later photos": later,
        "neighbours of the same group": float(same[:n].mean()),
        "of later photos": float(same[n:].mean()), "by chance": 1 / GROUPS,
    }  # fmt: skip


def frames(n: int, folder: Path, runs: int) -> dict[str, Any]:
    """Measure frames a second on a map of `n` photos, each way of moving in turn."""
    from playwright.sync_api import sync_playwright

    X, _ = grouped(n, 3)
    flat = X[:, :2] - X[:, :2].min(axis=0)
    places = np.rint(flat / flat.max() * 65_535).astype("<u2")
    content = np.arange(n, dtype="<u4").tobytes() + places.tobytes()
    tiny = make_tiny_catalogue(folder / "served")
    photo_map.draw_map(Catalogue.load(tiny.folder, n_jobs=1))

    def thumbnail(route: Any) -> None:
        number = int(route.request.url.split("/images/")[1].split("/")[0])
        picture = io.BytesIO()
        Image.fromarray(np.random.default_rng(number).integers(0, 255, (12, 16, 3), np.uint8)).resize((160, 120)).save(
            picture, "JPEG"
        )
        route.fulfill(body=picture.getvalue(), content_type="image/jpeg")

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with served(tiny.folder) as address, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 860})
        page.add_init_script(TIMED)
        page.route("**/map/places", lambda route: route.fulfill(body=content, content_type="application/octet-stream"))
        page.route("**/thumbnail*", thumbnail)
        page.goto(f"{address}/map")
        page.locator(f"#photo-map[data-ready='{n}']").wait_for()
        gaps: dict[str, list[np.ndarray]] = {name: [] for name, _, _ in WAYS}
        work: dict[str, list[float]] = {name: [] for name, _, _ in WAYS}
        for _ in range(runs):
            for name, zooms, kind in WAYS:
                page.keyboard.press("0")
                for _ in range(zooms):
                    page.keyboard.press("+")
                page.wait_for_timeout(1500)
                measured = page.evaluate(MOVES, {"kind": kind, "seconds": SECONDS})
                gaps[name].append(np.array(measured["gaps"]))
                work[name].append(float(np.percentile(measured["work"], 95)))
        browser.close()
    found = {
        name: {
            "frames a second": spread([float(1000 / each.mean()) for each in measured]),
            "95th percentile ms": spread([float(np.percentile(each, 95)) for each in measured]),
            "ms of drawing, 95th percentile": spread(work[name]),
        }
        for name, measured in gaps.items()
    }
    return {"photos": n, "canvas": "1,336 x 602 pixels, drawn without a graphics card", **found}


def main() -> None:
    """Measure, say and write; what the file has of the other part stays."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=int, default=20_000)
    parser.add_argument("--only", choices=PARTS, help="measure one part only")
    arguments = parse(parser)
    n = 1000 if arguments.quick else arguments.photos
    found: dict[str, Any] = {}
    if arguments.json is not None and arguments.json.is_file():
        found = json.loads(arguments.json.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for part in PARTS if arguments.only is None else [arguments.only]:
            measured = frames(n, Path(folder), arguments.runs) if part == "frames" else draw(n, Path(folder))
            say(part, measured)
            found[part] = {"machine": machine(), **measured}
    write(found, arguments.json)


if __name__ == "__main__":
    main()
