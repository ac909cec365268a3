"""The page in Chromium over 1,500 photos: how long each step takes from the key to what one waits for.

Photos lie in nested folders whose names have umlauts, CJK, spaces, quotes and an ampersand; all have a date. The page
is opened at 1400 x 860. A step's time includes the browser's: the request, the page, its layout, and Playwright's own
messages (some ms); `service_ms` is the processor's time of the service, with the thumbnails that follow, and hangs less
on what else the machine does. Twenty pairs of photos are planted as duplicates. Service and browser share the cores
with this process. Wants visterm-research and the extras `map` and `web`, playwright, and Debian's chromium.

    python benchmarks/page.py --json page.json
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness.runs import machine, options, parse, say, spread, write
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from serve import SERVE, processor_seconds, served

from visterm.data.corpus import Corpus
from visterm.library.catalogue import Catalogue
from visterm.library.photo_map import draw_map
from visterm.tagging.tagger import Tagger
from visterm_research.scenes import draw_library

FOLDERS = ("Ägypten 2019/Kairo & Gizeh", "東京 2024/浅草 寺", 'It\'s "fun"/a b/c', "Straße/Übung 1", "plain")
ENCODER = {"codebook": 100, "colours": 8, "scales": [1.0], "sample_blocks": 4000, "max_side": 128}
LIMIT_MS, MANY, NEXT = 300, 30, 10  # Photos that are tagged at once, and that one walks through in a run


def make_catalogue(folder: Path, n_photos: int) -> Path:
    """Draw photos, learn from them, and index them in folders with such names, each with a date."""
    library = draw_library(folder / "library", n_scenes=n_photos, seed=3)
    corpus = Corpus.read(library.images, library.tags_file)
    tagger = Tagger(model="wsabie", encoder="visterms", encoder_params=ENCODER, model_params={"dim": 32, "epochs": 10})
    tagger.fit(corpus.images, corpus.tags)
    tags: dict[str, list[str]] = {}
    for number, name in enumerate(corpus.names):
        inside = FOLDERS[number % len(FOLDERS)]
        place = folder / "photos" / inside / f"Foto {number}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif[306] = f"{2015 + number % 10}:{1 + number % 12:02}:{1 + number % 28:02} 10:00:00"
        with Image.open(Path(library.images) / name) as photo:
            photo.save(place, exif=exif, quality=90)
        tags[f"{inside}/{place.name}"] = list(corpus.tags[number]) if number % 2 else []
    catalogue = Catalogue.create(folder / "catalogue", tagger)
    catalogue.index(folder / "photos")
    catalogue.stored.tags.give_many([(record.id, tags[record.name]) for record in catalogue.records], "file")
    ids = [record.id for record in catalogue.records]
    hashes = ((image_id, 1 + number // 2 * 0x9E3779B97F4A7C) for number, image_id in enumerate(ids[:40]))
    catalogue.stored.images.set_phashes(hashes)
    draw_map(catalogue)
    catalogue.stored.close()
    return folder / "catalogue"


def play(
    page: Page, address: str, pid: int, word: str, seconds: dict[str, list[float]], processor: dict[str, float]
) -> None:
    """Go once through all steps; note how long each took, and how long the service's processor worked for it."""

    def step(name: str, do: Callable[[], Any], wait: Callable[[], Any]) -> None:
        before, start = processor_seconds(pid), time.perf_counter()
        do()
        wait()
        seconds[name].append(time.perf_counter() - start)
        page.wait_for_load_state("networkidle")
        processor[name] += processor_seconds(pid) - before

    def press(*keys: str) -> Callable[[], None]:
        return lambda: [page.keyboard.press(key) for key in keys] and None

    def sees(selector: str, text: str | None = None) -> Callable[[], None]:
        return lambda: page.locator(selector, has_text=text).first.wait_for()

    step("open all photos", lambda: page.goto(address, wait_until="commit"), sees("#grid .hit"))
    step("more photos", lambda: page.mouse.wheel(0, 20_000), lambda: page.locator("#grid .hit").nth(60).wait_for())
    step("sort them by date", lambda: page.locator("#sort a", has_text="newest first").first.evaluate("a => a.click()"),
         sees("#sort summary", "date taken, newest first"))  # fmt: skip
    page.keyboard.press("/")
    page.keyboard.type(f"{word} ")
    step("search by a word", press("Enter"), sees("#grid .hit"))
    page.keyboard.press("j")
    step("open a photo", press("Enter"), sees(".walk", "1 of"))
    for number in range(NEXT):
        step("next photo", press("ArrowRight"), sees(".walk", f"{number + 2} of"))
    step("previous photo", press("ArrowLeft"), sees(".walk", f"{NEXT} of"))
    tag = f"new {len(seconds['add a tag'])}"
    page.keyboard.press("t")
    page.keyboard.type(tag)
    step("add a tag", press("Enter"), sees(".held .name", tag))
    page.keyboard.press("Escape")  # closes the list of tags, if that is open
    page.keyboard.press("Escape")
    step("full size", press("z"), sees("#zoom img"))
    page.keyboard.press("Escape")
    step("back to the search", press("b"), sees("#grid .hit"))
    step("browse", press("g", "b"), sees("#folders-title"))
    page.keyboard.press("j")
    step("a folder", press("Enter"), sees(".crumbs"))
    page.keyboard.press("f")
    page.fill("[name=taken_from]", "2016-01-01")
    step("a folder from 2016 on", press("Enter"), sees("#count", "photos"))
    step("show the keys", press("Escape", "?"), sees("#keys[open]"))
    page.keyboard.press("Escape")
    page.goto(address)
    boxes = page.locator("#grid .choose")
    boxes.nth(0).check()
    last = boxes.nth(MANY - 1)
    step("choose 30 photos", lambda: last.click(modifiers=["Shift"]), sees("#n-chosen", f"{MANY} photos"))
    page.keyboard.press("a")
    page.keyboard.type(f"many {tag}")
    step("tag 30 photos", press("Enter"), sees("#step", f"added to {MANY} photos"))
    step("undo it for 30 photos", press("u"), sees("#step", f"Undone for {MANY} photos"))
    page.goto(f"{address}/review")
    for number in range(NEXT):
        step("answer a question", press("y"), sees("#answered", str(number + 1)))
    step("show duplicates", lambda: page.goto(f"{address}/duplicates", wait_until="commit"), sees(".side-by-side"))
    page.keyboard.press("j")
    step("keep one of a group", press("y"), sees(".kept"))
    step("undo that", press("u"), lambda: page.locator(".kept").wait_for(state="detached"))
    step("map of the photos", lambda: page.goto(f"{address}/map", wait_until="commit"), sees("#photo-map[data-ready]"))
    page.locator("#in-view .hit").first.wait_for()


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--photos", type=int, default=1500)
    chosen = parse(parser)
    n_photos = 200 if chosen.quick else chosen.photos
    seconds: dict[str, list[float]] = defaultdict(list)
    processor: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory() as temporary:
        folder = make_catalogue(Path(temporary), n_photos)
        catalogue = Catalogue.load(folder)
        tags = [count.tag for count in catalogue.tags() if count.learned]
        word = max(tags, key=lambda tag: catalogue.search([tag], sort="taken").n_found or 0)
        catalogue.stored.close()
        with served(*SERVE, str(folder)) as (port, pid), sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = chromium.new_page(viewport={"width": 1400, "height": 860})
            address = f"http://127.0.0.1:{port}"
            play(page, address, pid, word, defaultdict(list), defaultdict(float))  # now thumbnails are made
            for _ in range(chosen.runs):
                play(page, address, pid, word, seconds, processor)
            chromium.close()
    found = {name: spread([1000 * value for value in values]) for name, values in seconds.items()}
    for name, values in found.items():
        values["service_ms"] = 1000 * processor[name] / len(values["runs"])
        say(f"{name:24} median {values['median']:6.0f} ms, the service's processor {values['service_ms']:6.1f} ms")
    slow = [name for name, values in found.items() if values["median"] > LIMIT_MS]
    say(f"Steps over {LIMIT_MS} ms by their median: {', '.join(slow) or 'none'}")
    share = float(np.mean(np.concatenate([values["runs"] for values in found.values()]) < LIMIT_MS))
    result = {"machine": machine(), "photos": n_photos, "milliseconds": found, "over_limit": slow, "share_under": share}
    write(result, chosen.json)


if __name__ == "__main__":
    main()
