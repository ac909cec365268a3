"""A small drawn library in a catalogue, with names and tags that look like markup, and a server of its pages."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from PIL import Image

from drawn_pictures import draw_library
from visterm import Catalogue, Tagger
from visterm.data.corpus import Corpus
from visterm.learning.relations import WordRelations
from visterm.web.app import create_app

ENCODER = {"codebook": 60, "colours": 8, "scales": [1.0], "sample_blocks": 4000, "max_side": 96}
MODEL = {"dim": 16, "epochs": 12}
MARKUP = "<script>alert(1)</script>"
MARKED_NAME = "<img src=x onerror=alert(2)>.jpg"
WITH_TAGS = 70
"""The first pictures have their tags in the catalogue; the others wait for theirs."""


def make_catalogue(folder: Path, n_scenes: int = 120) -> Path:
    """Draw a library, learn its tags, and index it; a file is broken, one named by markup, and picture 0 tagged so."""
    library = draw_library(folder / "library", n_scenes=n_scenes, seed=5)
    relations = WordRelations(part_of=[("cloud", "sky"), ("sun", "sky")], is_a=[("sea", "water"), ("lake", "water")])
    tagger = Tagger(model="wsabie", encoder="visterms", encoder_params=ENCODER, model_params=MODEL, n_jobs=1)
    corpus = Corpus.read(library.images, library.tags_file)
    tagger.fit(corpus.images, corpus.tags, relations=relations)
    assert tagger.calibration is not None
    bold = tagger.calibration._replace(curve=None)  # so few pictures support no confidence of 50 %, and pages show some
    tagger.parts = tagger.parts.changed(calibration=bold)
    images = Path(library.images)
    (images / "~broken.jpg").write_bytes(b"no picture")
    Image.new("RGB", (64, 48), (90, 130, 200)).save(images / f"~{MARKED_NAME}")  # the last of all
    catalogue = Catalogue.create(folder / "catalogue", tagger)
    catalogue.index(library.images)
    given = dict(zip(corpus.names, corpus.tags, strict=True))
    first = [(record.id, given[Path(record.name).name]) for record in catalogue.records if record.id < WITH_TAGS]
    catalogue.stored.tags.give_many(first, "file")
    catalogue.give(0, [MARKUP])
    catalogue.stored.close()
    return folder / "catalogue"


@contextmanager
def served(catalogue: Path) -> Iterator[str]:
    """Serve a catalogue on a free port of this machine, and give the address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(create_app(catalogue), log_level="error", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            thread.join(0.02)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(600)
