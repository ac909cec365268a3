"""An export or an undo that is killed: the next one leaves files and notes as if nothing had happened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from empty_catalogues import empty_catalogue
from visterm.data.sidecars import sweep_temporaries
from visterm.store.catalogue import Origin
from visterm.store.images import NewImage

PHOTOS = 4
OTHERS = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:subject><rdf:Bag><rdf:li>beach'
    "</rdf:li></rdf:Bag></dc:subject></rdf:Description></rdf:RDF></x:xmpmeta>"
)
"""Keywords as another program writes them, into one field only."""


@pytest.fixture
def start(tmp_path):
    """A catalogue of a few photos, the first of which has a text and an XMP file of other programs."""
    folder = tmp_path / "start"
    (folder / "photos").mkdir(parents=True)
    stored = empty_catalogue(folder / "catalogue", Origin("", "f00d"))
    records = []
    for number in range(PHOTOS):
        path = folder / "photos" / f"{number}.jpg"
        Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
        records.append(NewImage(path.name, str(tmp_path / "here" / "photos" / path.name), 10, 8, 8, "ab", ("Ann",)))
    stored.add(records, np.ones((PHOTOS, 2), np.float32))
    stored.close()
    (folder / "photos" / "0.txt").write_text("beach\n", encoding="utf-8")
    (folder / "photos" / "0.xmp").write_text(OTHERS, encoding="utf-8")
    return folder


@pytest.mark.parametrize("to", ["xmp", "txt"])
def test_after_a_kill_at_any_step_the_next_export_and_undo_are_right(start, to):
    seeded = np.random.default_rng(5).permutation(np.arange(1, 15))[:6]
    worker = Path(__file__).with_name("export_worker.py")
    done = subprocess.run(
        [sys.executable, str(worker), str(start), to, ",".join(map(str, sorted(seeded)))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    kills = dict(line.split() for line in done.stdout.splitlines())
    assert int(kills["export"]) >= 4
    assert int(kills["undo"]) >= 2


def test_only_temporaries_of_ours_whose_process_is_gone_are_swept(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = {
        f".1.jpg.xmp.{gone.pid}-0123abcd.tmp": False,
        f".1.txt.{gone.pid}-0123abcd.tmp": False,
        f".1.jpg.xmp.{os.getpid()}-0123abcd.tmp": True,
        f".notes.{gone.pid}-0123abcd.tmp": True,
        f"1.jpg.xmp.{gone.pid}-0123abcd.tmp": True,
        ".1.jpg.xmp.tmp": True,
    }
    for name in names:
        (tmp_path / name).write_text("x")
    sweep_temporaries(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {name for name, stays in names.items() if stays}
