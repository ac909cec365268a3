"""A person's first hour with visterm, in one process: each command, and what a program in Python does with it.

``python story.py FOLDER`` writes there, and stops at the first thing that isn't as it should be.
"""

import contextlib
import io
import shutil
import sys
from pathlib import Path

from PIL import Image, ImageDraw

from visterm import Catalogue, Tagger
from visterm.cli import main

N = 90
COLOURS = {"red": (200, 40, 30), "green": (40, 160, 50), "blue": (30, 60, 190)}
QUICK = "--model ridge --encoder visterms --encoder-set codebook=20"


def draw(path: Path, number: int, tag: str) -> None:
    """Draw a photo of a colour; each number has other spots."""
    picture = Image.new("RGB", (96, 64), COLOURS[tag])
    pen = ImageDraw.Draw(picture)
    for spot in range(8):
        x, y = (number * 37 + spot * 23) % 90, (number * 13 + spot * 11) % 60
        pen.rectangle([x, y, x + 5, y + 3], fill=(x * 2, y * 4, number % 255))
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, quality=90)


def visterm(line: str, expected: int = 0) -> str:
    """Run a line of the command line, and return what it printed."""
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["visterm", *line.split()]
    print("$", *sys.argv, flush=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    assert code == expected, (code, out.getvalue(), err.getvalue())
    return out.getvalue() + err.getvalue()


def tell(folder: Path) -> None:
    photos, table, tags = folder / "photos", folder / "tags.csv", list(COLOURS)
    names = {f"{'sub/' if i % 2 else ''}{i:02}.jpg": tags[i % 3] for i in range(N)}
    for i, (name, tag) in enumerate(names.items()):
        draw(photos / name, i, tag)
    table.write_text("file_name,tags\n" + "".join(f"{name},{tag}\n" for name, tag in names.items()), "utf-8")
    run, catalogue = folder / "run", folder / "catalogue"

    visterm(f"fit {photos} --tags {table} -o {run} {QUICK}")
    visterm(f"fit {photos} --tags {table} -o {run} {QUICK} --overwrite")
    assert "sub/01.jpg" in visterm(f"annotate {run} {photos} -k 1")
    visterm(f"annotate {run} {photos} -o {folder / 'annotated'}")
    features = f"{photos} -o {folder / 'features'} --encoder visterms --encoder-set codebook=20 --shard-size 16"
    visterm(f"encode {features}")
    draw(photos / "02.jpg", 98, "blue")
    visterm(f"encode {features}")
    visterm(f"fit {folder / 'features'} --tags {table} -o {folder / 'streamed'} --model ridge --memory 1M")

    visterm(f"index {run} {photos} -o {catalogue} --tags {table}")
    draw(photos / "00.jpg", 99, "blue")
    (photos / "sub" / "01.jpg").unlink()
    draw(photos / "new.jpg", 100, "green")
    text = visterm(f"index {catalogue} {photos} --tags {table}")
    assert f"Indexed {N} photos (1 new, 1 changed, 1 gone, {N - 2} unchanged)" in text, text
    assert "sub/03.jpg" in visterm(f"search {catalogue} red -k 0")
    visterm(f"export {catalogue} --to csv -k 1 -o {folder / 'exported.csv'}")
    assert "sub/05.jpg" in (folder / "exported.csv").read_text("utf-8")
    visterm(f"export {catalogue} --to xmp -k 1")
    assert (photos / "sub" / "03.jpg.xmp").exists()
    visterm(f"export {catalogue} --to xmp --undo")
    assert not (photos / "sub" / "03.jpg.xmp").exists()

    for name in ("sub/05.jpg", "08.jpg", "sub/11.jpg", "14.jpg"):
        visterm(f"tag {catalogue} {name} --add evening")
    visterm(f"fit {catalogue}")
    again = Catalogue.load(catalogue)
    again.learn(full=True, use_even_if_worse=True)
    again.stored.close()
    assert "evening" in visterm(f"tags {catalogue}")
    visterm(f"use {catalogue} --back")
    visterm(f"index {folder / 'streamed'} {photos} -o {catalogue} --tags {table}")
    visterm(f"info {catalogue} --check")
    nothing = folder / "nothing"
    nothing.mkdir()
    visterm(f"index {run} {nothing} -o {folder / 'none'}", expected=2)
    assert not (folder / "none").exists()

    opened, copy = Catalogue.load(catalogue), folder / "copy"  # a program that goes on with what it has open
    assert len(opened.search("red", k=5)[0]) == 5
    opened.learn(full=True, use_even_if_worse=True)
    opened.index(photos)
    opened.stored.compact(least=0)
    assert len(opened.search("red", k=5)[0]) == 5
    opened.save(copy)
    copied = Catalogue.load(copy)
    assert copied.search("red", k=5) == opened.search("red", k=5)
    copied.stored.close()
    opened.save(copy)
    opened.stored.close()
    shutil.rmtree(copy)
    tagger = Tagger.load(run)
    assert tagger.learned_images.count(["08.jpg"]) == 1
    tagger.save(run, overwrite=True)


if __name__ == "__main__":
    tell(Path(sys.argv[1]))
