"""The whole story beside another program's server: connect, learn, write, a person corrects, sync, undo."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from command_line import visterm
from drawn_pictures import draw_library
from visterm.data.corpus import Corpus

State = dict[str, set[str]]  # The tags of each photo there, in small letters, by its id


class Picture(NamedTuple):
    """A photo and what is seen on it."""

    file: Path
    tags: tuple[str, ...]


def drawn_pictures(folder: Path, n: int, draw: Callable[..., Any] = draw_library) -> list[Picture]:
    """Draw photos, of a few shapes or by another function."""
    library = draw(folder, n_scenes=n)
    return [Picture(library.images / picture.file_name, picture.tags) for picture in library.pictures]


def corel_pictures(corel: Path, n: int) -> list[Picture]:
    """Return photos of Corel5k, spread over its subjects."""
    corpus = Corpus.read(corel / "images", corel / "labels.tsv")
    places = range(0, len(corpus), len(corpus) // n)[:n]
    return [Picture(Path(str(corpus.images[i])), tuple(corpus.tags[i])) for i in places]


@dataclass
class Told:
    """What lay in the program after each part of the story, and what was done."""

    truth: dict[str, set[str]] = field(default_factory=dict)  # What is seen on each photo, by its id
    states: dict[str, State] = field(default_factory=dict)
    removed: list[tuple[str, str]] = field(default_factory=list)  # Pairs of visterm that the person took off
    added: list[tuple[str, str]] = field(default_factory=list)  # Pairs that the person gave
    seconds: dict[str, float] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)

    def written(self, part: str) -> set[tuple[str, str]]:
        """Return the pairs of visterm after a part: all that no person gave."""
        people = {*_pairs(self.states["tagged"]), *self.added}
        return set(_pairs(self.states[part])) - people

    def is_right(self, pair: tuple[str, str]) -> bool:
        """Return whether a tag is seen on its photo."""
        return pair[1].removeprefix("visterm/") in self.truth[pair[0]]


def tell(
    fake: Any,
    folder: Path,
    pictures: Sequence[Picture],
    *,
    n_tagged: int,
    n_corrected: int = 20,
    options: str = "",
    precision: float = 0.9,
) -> Told:
    """Live through it with the commands, in an empty folder; `options` are those of `visterm connect`.

    A person has tagged the first `n_tagged` photos, and later takes off wrong tags of visterm and gives right ones that
    are missing, as many of each; the person sees what `pictures` says.
    """
    told = Told()
    for i, picture in enumerate(pictures):
        photo = fake.add_photo(
            f"{i:03d} {picture.file.name}", picture.file.read_bytes(), picture.tags if i < n_tagged else ()
        )
        told.truth[photo] = {tag.casefold() for tag in picture.tags}
    key = folder / "key.txt"
    key.touch(mode=0o600)
    key.write_text(fake.key)

    def part(name: str, command: str = "") -> None:
        began, n_before = time.perf_counter(), len(fake.traffic)
        fake.finish_jobs()
        fake.advance(600.0)
        if command:
            with pytest.MonkeyPatch.context() as patch:
                fake.virtual(patch)
                code, out, err = visterm(command, folder)
            assert code == 0, out + err
        told.states[name] = {photo: {tag.casefold() for tag in fake.tags_of(photo)} for photo in told.truth}
        told.seconds[name], told.requests[name] = time.perf_counter() - began, len(fake.traffic) - n_before

    part("tagged")
    part("connected", f"connect {fake.kind} {fake.url} --key-file key.txt -o catalogue {options}")
    part("tried", f"sync catalogue --precision {precision} --dry-run")
    part("synced", f"sync catalogue --precision {precision}")
    assert told.states["tried"] == told.states["connected"] == told.states["tagged"]  # nothing is written so far
    wrong = [pair for pair in sorted(told.written("synced")) if not told.is_right(pair)]
    told.removed = wrong[: n_corrected // 2]
    for photo, tag in told.removed:
        fake.person_untags(photo, tag)
    learned = {tag for tags in told.states["tagged"].values() for tag in tags}
    told.added = list(_missing(told, learned))[: n_corrected - len(told.removed)]
    for photo, tag in told.added:
        fake.person_tags(photo, tag)
    part("corrected")
    part("synced again", "sync catalogue")
    part("nothing new", "sync catalogue")
    part("undone", "sync catalogue --undo")
    return told


def _missing(told: Told, learned: set[str]) -> Iterator[tuple[str, str]]:
    """Yield right tags that photos don't have yet, of as many photos as there are, one each."""
    for photo, tags in told.states["synced"].items():
        there = {tag.removeprefix("visterm/") for tag in tags}
        if not told.states["tagged"][photo] and (fresh := sorted((told.truth[photo] & learned) - there)):
            yield photo, fresh[0]


def _pairs(state: State) -> Iterator[tuple[str, str]]:
    return ((photo, tag) for photo, tags in state.items() for tag in tags)
