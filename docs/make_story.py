"""Draw the picture of the story in connect.md, from a library that is drawn: `python docs/make_story.py`.

It wants visterm-research, Debian's chromium and the tests beside it: their server answers as Immich does.
"""

from __future__ import annotations

import base64
import html
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from connected_story import Told, drawn_pictures, tell
from fakes.immich import FakeImmich
from visterm.connectors import keys
from visterm_research.scenes import draw_library

OUT = Path(__file__).parent / "connect_story.jpg"
N_PHOTOS, N_TAGGED, PRECISION = 500, 200, 0.8
OPTIONS = "--encoder visterms --encoder-set max_side=96 --model ridge"
PARTS = {
    "tagged": "a person tags",
    "synced": "visterm sync",
    "corrected": "the person corrects",
    "synced again": "visterm sync",
    "undone": "visterm sync --undo",
}
QUALITY, SIZE, MOST = 85, {"width": 1280, "height": 400}, 11  # Tags of a photo that fit into its place
STYLE = """
body { font: 15px/1.5 sans-serif; margin: 12px; color: #222 }
table { border-collapse: collapse }
th { text-align: left; padding: 4px 10px; font-weight: 600 }
td { vertical-align: top; padding: 8px 10px; width: 205px; border-top: 1px solid #ddd }
img { max-width: 160px; max-height: 120px; border-radius: 4px }
p { margin: 6px 10px }
span { display: inline-block; margin: 1px 2px; padding: 0 7px; border-radius: 9px }
.person { background: #cfe8cf }
.ours { background: #d5e3f7 }
.off { text-decoration: line-through; color: #a33; background: #f9e3e3 }
"""


def chosen_photos(told: Told) -> list[str]:
    """Return a photo that the person tagged, one where a tag was taken off, one where a tag was given, another."""
    small = [photo for photo, tags in told.states["synced again"].items() if 2 < len(tags) <= MOST]
    rest = [photo for photo in small if not told.states["tagged"][photo] and told.states["synced"][photo]]
    kinds = [
        [photo for photo in small if told.states["tagged"][photo]],
        [photo for photo in rest if photo in {photo for photo, _ in told.removed}],
        [photo for photo in rest if photo in {photo for photo, _ in told.added}],
        [photo for photo in rest if photo not in {photo for photo, _ in [*told.removed, *told.added]}],
    ]
    return list(dict.fromkeys(min(kind, key=lambda photo: len(told.states["synced"][photo])) for kind in kinds))


def chips(told: Told, photo: str, part: str) -> str:
    """Return the tags of a photo after a part; those that the person takes off are struck out."""
    people = told.states["tagged"][photo] | {tag for other, tag in told.added if other == photo}
    found = [(tag, "person" if tag in people else "ours") for tag in told.states[part][photo]]
    if part == "corrected":
        found += [(tag, "off") for other, tag in told.removed if other == photo]
    return " ".join(f'<span class="{kind}">{html.escape(tag)}</span>' for tag, kind in sorted(found, key=_by_whom))


def _by_whom(chip: tuple[str, str]) -> tuple[int, str]:
    return ("person", "ours", "off").index(chip[1]), chip[0]


def page(told: Told, pictures: Iterable[tuple[str, bytes]]) -> str:
    """Return the page to draw: a row for each photo."""
    head = "".join(f"<th>{name}</th>" for name in ("", *PARTS.values()))
    rows = "".join(
        f'<tr><td><img src="data:image/jpeg;base64,{base64.b64encode(content).decode()}"></td>'
        + "".join(f"<td>{chips(told, photo, part)}</td>" for part in PARTS)
        + "</tr>"
        for photo, content in pictures
    )
    legend = '<p><span class="person">a person\'s</span> <span class="ours">visterm\'s</span> '
    legend += '<span class="off">taken off by the person</span></p>'
    return f"<style>{STYLE}</style>{legend}<table><tr>{head}</tr>{rows}</table>"


def main() -> None:
    """Live through the story, and draw it."""
    with tempfile.TemporaryDirectory() as name, FakeImmich() as fake, sync_playwright() as playwright:
        folder = Path(name)
        os.environ[keys.ALLOWED_VARIABLE] = str(folder / "connected.json")
        (folder / "work").mkdir()
        pictures = drawn_pictures(folder / "drawn", N_PHOTOS, draw_library)
        told = tell(fake, folder / "work", pictures, n_tagged=N_TAGGED, options=OPTIONS, precision=PRECISION)
        shown = [(photo, fake.photos[photo].preview) for photo in chosen_photos(told)]
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = chromium.new_page(viewport=SIZE)
        tab.set_content(page(told, shown))
        picture = Image.open(BytesIO(tab.screenshot(full_page=True))).convert("RGB")
        picture.save(OUT, quality=QUALITY, optimize=True)
        chromium.close()


if __name__ == "__main__":
    main()
