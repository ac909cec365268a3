"""A library in memory that keeps the contract of connectors, and a catalogue of one: for tests of the engine."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from tiny_catalogues import COLOURS, ENCODER
from visterm.connectors.connect import connect
from visterm.connectors.contract import Page, PairKey, PhotoTag, Recent
from visterm.connectors.sync import PushSettings
from visterm.core.errors import DataError
from visterm.learning.fit_request import FitRequest
from visterm.library.catalogue import Catalogue
from visterm.store.connected import RemotePhoto

N_PHOTOS, N_TAGGED = 160, 120
PAGE = 50


@dataclass
class Photo:
    """A photo there."""

    name: str
    preview: bytes | None
    tags: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    version: int = 1
    ready: bool = True
    changed: int = 0


class RememberedLibrary:
    """Another program's library, without the program. `before` and `after` are called around each request."""

    kind: ClassVar[str] = "immich"
    title: ClassVar[str] = "Immich"
    nested: ClassVar[bool] = True
    queued: ClassVar[bool] = False
    key_variable: ClassVar[str] = "IMMICH_API_KEY"

    def __init__(self, address: str = "http://nas:2283") -> None:
        self.address = address
        self.pause: Callable[[float], object] = lambda seconds: None
        self.photos: dict[str, Photo] = {}
        self.writes: list[tuple[str, str, str]] = []  # Pairs that were new, and pairs that were taken
        self.asked: list[str] = []
        self.loses: set[str] = set()  # Photos that lose what is written
        self.before: Callable[[str], None] = lambda what: None
        self.after: Callable[[str], None] = lambda what: None
        self._clock = 0

    def put(self, photo: str, **changes: object) -> None:
        """Change a photo, or put a new one there."""
        self._clock += 1
        existing = self.photos.setdefault(photo, Photo(f"{photo}.jpg", None))
        for name, value in {**changes, "changed": self._clock}.items():
            setattr(existing, name, value)

    def tag(self, photo: str, *tags: str) -> None:
        """Tag a photo, as a person does."""
        self.put(photo, tags=[*self.photos[photo].tags, *tags])

    def untag(self, photo: str, tag: str) -> None:
        """Take a tag off, as a person does."""
        self.put(photo, tags=[each for each in self.photos[photo].tags if each != tag])

    def state(self) -> dict[str, list[str]]:
        """Return the tags of all photos."""
        return {photo: sorted(existing.tags) for photo, existing in sorted(self.photos.items())}

    def ours(self) -> set[tuple[str, str]]:
        """Return the pairs under our own parent."""
        return {(photo, tag) for photo, tags in self.state().items() for tag in tags if tag.startswith("visterm/")}

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        self.before(what)

    def check(self) -> str:
        return "Immich 3.1.0"

    def count(self) -> int:
        self._ask("count")
        return len(self.photos)

    def ids(self) -> Iterator[list[str]]:
        self._ask("ids")
        yield list(self.photos)

    def changes(self, since: str = "") -> Iterator[Page]:
        changed = sorted(
            (existing.changed, photo) for photo, existing in self.photos.items() if existing.changed > int(since or 0)
        )
        for start in range(0, len(changed), PAGE):
            self._ask("changes")
            some = changed[start : start + PAGE]
            yield Page([self._described(photo) for _, photo in some], str(some[-1][0]))

    def _described(self, photo: str) -> RemotePhoto:
        existing = self.photos[photo]
        return RemotePhoto(
            photo,
            existing.name,
            str(existing.version),
            tuple(existing.tags),
            tuple(existing.rejected),
            ready=existing.ready,
        )

    def preview(self, photo: str) -> bytes:
        self._ask("preview")
        content = self.photos[photo].preview if photo in self.photos else None
        if content is None:
            raise DataError("it has no preview")
        return content

    def existing(self, pairs: Collection[PhotoTag]) -> set[tuple[str, str]]:
        self._ask("there")
        return {
            (pair.photo, pair.tag)
            for pair in pairs
            if pair.photo in self.photos and pair.tag in self.photos[pair.photo].tags
        }

    def recent(self, since: str = "") -> Recent:
        return Recent(since, {})

    def add(self, pairs: Collection[PhotoTag]) -> dict[PairKey, str]:
        refused: dict[PairKey, str] = {}
        for tag in sorted({pair.tag for pair in pairs}):
            self._ask("add")
            for pair in pairs:
                if pair.tag != tag:
                    continue
                if pair.photo not in self.photos:
                    refused[pair[:2]] = "it is not there"
                elif pair.photo not in self.loses and tag not in self.photos[pair.photo].tags:
                    self.writes.append(("add", pair.photo, tag))
                    self.tag(pair.photo, tag)
            self.after("add")
        return refused

    def remove(self, pairs: Collection[PhotoTag]) -> dict[PairKey, str]:
        for tag in sorted({pair.tag for pair in pairs}):
            self._ask("take")
            for pair in pairs:
                if pair.tag == tag and pair.photo in self.photos and tag in self.photos[pair.photo].tags:
                    self.writes.append(("take", pair.photo, tag))
                    self.untag(pair.photo, tag)
            self.after("take")
        return {}


def picture(colour: str, seed: int) -> bytes:
    """Draw a JPEG of 32 pixels of a colour, with noise by the seed."""
    noise = np.random.default_rng(seed).integers(-30, 30, (32, 32, 3))
    content = BytesIO()
    pixels = np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(content, "JPEG", quality=95)
    return content.getvalue()


def colour_of(number: int) -> str:
    """Return the colour of a photo by its number."""
    return list(COLOURS)[number % len(COLOURS)]


def tags_of(number: int) -> list[str]:
    """Return the tags that a person gives to a photo."""
    return [colour_of(number), "warm" if colour_of(number) == "red" else "cool"]


def full_library() -> RememberedLibrary:
    """Make a library of photos of four colours, most of them tagged by a person."""
    library = RememberedLibrary()
    for number in range(N_PHOTOS):
        library.put(
            f"p{number:03d}", preview=picture(colour_of(number), number),
            tags=tags_of(number) if number < N_TAGGED else [],
        )  # fmt: skip
    return library


REQUEST = FitRequest(encoder="visterms", encoder_params=ENCODER, model="ridge", n_jobs=1)


def connected(folder: Path, library: RememberedLibrary) -> Catalogue:
    """Make a catalogue of a library."""
    return connect(folder, library, key_file=None, run=None, request=REQUEST)[0]


LOW = PushSettings(precision=0.6)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RememberedLibrary]:
    """A library and the catalogue that was made of it."""
    folder, library = tmp_path_factory.mktemp("connected") / "catalogue", full_library()
    connected(folder, library).stored.close()
    return folder, library


@pytest.fixture
def opened(made: tuple[Path, RememberedLibrary], tmp_path: Path) -> tuple[Catalogue, RememberedLibrary]:
    """A copy of both."""
    shutil.copytree(made[0], tmp_path / "catalogue")
    return Catalogue.load(tmp_path / "catalogue", n_jobs=1), copy.deepcopy(made[1])


def first_of_ours(library: RememberedLibrary, *, untagged: bool = True) -> tuple[str, str]:
    """Return one of the pairs that visterm wrote, of a photo without tags of people."""
    return min(pair for pair in library.ours() if not untagged or int(pair[0][1:]) >= N_TAGGED)
