"""A photographer's hour on the page: 1,500 photos, played by keys in Chromium, each step timed.

    python benchmarks/photographers_hour.py --json docs/figures/photographers_hour.json --shots docs/hour

It wants visterm-research for its drawn scenes, playwright, and Debian's chromium. Photos have umlauts,
Chinese characters and spaces in their names and lie in nested folders. Learning and looking for duplicates run in the
background and aren't steps.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from harness.runs import machine, say, write
from PIL import Image
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from photographers_hour import Hour, make_library
from served_library import served
from test_pages import Window
from visterm_research.scenes import draw_scene

FIT = "--encoder visterms --encoder-set max_side=128 --encoder-set codebook=300"


def main() -> None:
    """Play the hour, print what each step took, and keep the figures and pictures."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--photos", type=int, default=1500)
    asked.add_argument("--copies", type=int, default=40)
    asked.add_argument("--answers", type=int, default=100)
    asked.add_argument("--json", type=Path)
    asked.add_argument("--shots", type=Path, help="a folder for pictures of the page at three widths")
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        catalogue, truth = make_library(Path(folder), given.photos, given.copies, FIT, draw_scene)
        shots = Path(folder) / "shots"
        shots.mkdir()
        with served(catalogue) as address, sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            context = chromium.new_context(viewport={"width": 1400, "height": 860})
            hour = Hour(Window(context, address, shots), truth, shots)
            hour.play(n_answers=given.answers)
            complaints = hour.window.complaints
            chromium.close()
        if given.shots:
            given.shots.mkdir(parents=True, exist_ok=True)
            for shot in sorted(shots.glob("*.png")):
                Image.open(shot).convert("RGB").save(given.shots / f"{shot.stem}.jpg", quality=70, optimize=True)
    steps = {
        name: {"times": len(found), "median ms": round(1000 * median(found)), "longest ms": round(1000 * max(found))}
        for name, found in hour.seconds.items()
    }
    for name, found in steps.items():
        say(f"{name:32}", *(f"{key}: {value:5}  " for key, value in found.items()))
    for line in (*hour.stumbles, *complaints):
        say(line)
    say(json.dumps(hour.said, ensure_ascii=False, indent=1))
    found = {"photos": given.photos, "steps": steps, "stumbles": hour.stumbles, "complaints": complaints, **hour.said}
    write({"machine": machine(), **found}, given.json)


if __name__ == "__main__":
    main()
