"""Draw the pictures in the README and docs/ from the demo's library: `python docs/make_screenshots.py`.

It wants visterm-research, playwright, and Debian's chromium; it draws the demo first (`--demo FOLDER`:
takes one that is there), which takes some minutes.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Literal

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from visterm import Catalogue, Tagger
from visterm.web.app import create_app
from visterm_research.demo import run_demo

DOCS = Path(__file__).parent
SIZE = {"width": 1280, "height": 820}
QUALITY = 80
ANSWERS = 12
WIDTHS: tuple[tuple[int, Literal["light", "dark"]], ...] = ((390, "light"), (820, "dark"), (1400, "light"))
TALL, GAP = 860, 24  # Pixels of the three side by side


def main() -> None:
    """Draw all of them."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--demo", type=Path, help="the folder of a demo that is there")
    asked.add_argument("--scenes", type=int, default=2000, help="pictures of a demo that is drawn")
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        demo = given.demo or Path(folder) / "demo"
        if given.demo is None:
            run_demo(demo, n_scenes=given.scenes)
        catalogue = _catalogue_to_judge(demo, Path(folder) / "catalogue")
        with _served(catalogue) as address, sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = chromium.new_page(viewport=SIZE)
            _shoot_search(page, address)
            _shoot_review(page, address)
            _shoot_widths(chromium, address)
            _shoot_mistakes(page, demo, Path(folder) / "mistakes.html")
            chromium.close()


def _catalogue_to_judge(demo: Path, out: Path) -> Path:
    """Index pictures that the run has not learned from, without their tags, so that there is something to review."""
    records = Catalogue.load(demo / "catalogue").records
    Catalogue.create(out, Tagger.load(demo / "run")).index([record.path or record.name for record in records])
    return out


@contextmanager
def _served(catalogue: Path) -> Iterator[str]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(catalogue), log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(30)


def _shoot_search(page: Page, address: str) -> None:
    page.goto(f"{address}/?q=sunset+-people")
    page.wait_for_load_state("networkidle")
    for key in ("j", "w"):
        page.keyboard.press(key)
    _save(page, "search_page.jpg")


def _shoot_review(page: Page, address: str) -> None:
    page.goto(f"{address}/review")
    for number in range(40):  # some answers, and on to a picture that is wider than high
        if number >= ANSWERS and page.locator(".frame.wide").count():
            break
        before = page.input_value("[name=image]")
        page.keyboard.press("yn"[number % 2] if number < ANSWERS else "s")
        while page.input_value("[name=image]") == before:
            page.wait_for_timeout(50)
    page.wait_for_timeout(6000)  # until what was told of the last answer is gone
    page.wait_for_load_state("networkidle")
    _save(page, "review_page.jpg")


def _shoot_widths(chromium: Browser, address: str) -> None:
    """Shoot a photo of a search on a phone, a tablet and a screen, and put them side by side."""
    shots = []
    for width, scheme in WIDTHS:
        context = chromium.new_context(viewport={"width": width, "height": TALL}, color_scheme=scheme)
        page = context.new_page()
        page.goto(f"{address}/?q=sunset+-people")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.locator(".walk").wait_for()
        page.keyboard.press("ArrowRight")
        page.locator(".walk", has_text="2 of").wait_for()
        page.wait_for_load_state("networkidle")
        shots.append(Image.open(BytesIO(page.screenshot())).convert("RGB"))
        context.close()
    together = Image.new("RGB", (sum(shot.width + GAP for shot in shots) - GAP, TALL), "white")
    left = 0
    for shot in shots:
        together.paste(shot, (left, 0))
        left += shot.width + GAP
    together.thumbnail((1600, TALL))
    together.save(DOCS / "photo_page.jpg", quality=QUALITY, optimize=True)


def _shoot_mistakes(page: Page, demo: Path, sheet: Path) -> None:
    """Shoot the sheet of the likeliest mistakes among the tags that people gave to the drawn scenes."""
    catalogue = sheet.with_name("catalogue")
    index = [
        "index",
        demo / "run",
        demo / "library" / "images",
        "--tags",
        demo / "library" / "tags.csv",
        "-o",
        catalogue,
    ]
    for command in (index, ["mistakes", catalogue, "-k", "12", "-o", sheet]):
        subprocess.run([sys.executable, "-m", "visterm", *command], check=True)
    page.goto(sheet.as_uri())
    _save(page, "mistakes_sheet.jpg")


def _save(page: Page, name: str) -> None:
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    picture.save(DOCS / name, quality=QUALITY, optimize=True)


if __name__ == "__main__":
    main()
