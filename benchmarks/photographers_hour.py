"""A photographer's hour on the page: 1,500 photos, played by keys in Chromium, each step timed.

    python benchmarks/photographers_hour.py --json docs/figures/photographers_hour.json --shots docs/hour

It wants visterm-research for its drawn scenes, playwright, and Debian's chromium. Photos have umlauts,
Chinese characters and spaces in their names and lie in nested folders. `visterm serve` makes their catalogue; the hour
ends with tags written for digiKam, and undone. Steps are timed from the key to what they show, jobs until they show
their progress, and answers of the server from the request to their end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from harness.runs import machine, say, write
from PIL import Image
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from photographers_hour import Hour, served_folder
from test_pages import Window
from visterm_research.scenes import draw_scene


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--photos", type=int, default=1500)
    asked.add_argument("--copies", type=int, default=40)
    asked.add_argument("--answers", type=int, default=100, help="judgements one by one; in grids twice as many")
    asked.add_argument("--compare-reviews", action="store_true", help="judge 300 pairs each way, at 5, 20, 40 % wrong")
    asked.add_argument("--json", type=Path)
    asked.add_argument("--shots", type=Path, help="a folder for pictures of the page at three widths")
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shots = Path(folder) / "shots"
        shots.mkdir()
        serving = served_folder(Path(folder), given.photos, given.copies, draw_scene)
        with serving as (address, truth, began), sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            context = chromium.new_context(viewport={"width": 1400, "height": 860})
            hour = Hour(Window(context, address, shots), {}, shots)
            hour.begin(Path(folder) / "catalogue", truth, began)
            hour.play(n_answers=given.answers, n_in_grids=2 * given.answers)
            if given.compare_reviews:
                hour.compare_reviews()
            complaints = hour.window.complaints
            chromium.close()
        if given.shots:
            given.shots.mkdir(parents=True, exist_ok=True)
            for shot in sorted(shots.glob("*.png")):
                Image.open(shot).convert("RGB").save(given.shots / f"{shot.stem}.jpg", quality=70, optimize=True)
    found = {"photos": given.photos, **hour.figures(), "complaints": complaints}
    say(json.dumps(found, ensure_ascii=False, indent=1))
    write({"machine": machine(), **found}, given.json)


if __name__ == "__main__":
    main()
