"""What visterm asks of another program's photo library: a small contract, which every connector keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class RemotePhoto:
    """One photo of another program's library. All texts come from its server: nothing in them is to be trusted."""

    id: str  # As the program names it; never used as a path here
    name: str  # Its file's name, shown to people
    version: str  # Of the picture: another one means that the preview is to be fetched again
    tags: tuple[str, ...]  # As the program writes them, each once: those that visterm wrote, too
    rejected: tuple[str, ...] = ()  # Of which a person said in that program that they are not there


class Page(NamedTuple):
    """Some photos that were changed, and how far they bring a reader."""

    photos: list[RemotePhoto]
    mark: str
    """By which `changes` goes on after this page. It is by the server's clock, never by ours, and opaque to callers."""


class Pair(NamedTuple):
    """A tag of a photo, to be written into the other program or taken out of it."""

    photo: str  # `RemotePhoto.id`
    tag: str  # As the program writes it
    confidence: float = 1.0


class Refused(NamedTuple):
    """A pair that the server did not take, and why, in words for people."""

    pair: Pair
    reason: str


class RemoteLibrary(Protocol):
    """Another program's photo library.

    Methods raise ServiceError where the server cannot be reached, answers with half an answer or with what is none of
    its answers, or refuses the key: the message says which permission is missing. Failures that pass (no answer, 408,
    429, 5xx) are tried again inside. Nothing is held of a whole library but what the caller holds.
    """

    kind: ClassVar[str]
    """The program's name in commands: "immich"."""
    nested: ClassVar[bool]
    """Whether a tag with slashes ("visterm/cat") lies under another one there."""
    address: str
    """Of the server, without a slash at its end."""

    def check(self) -> str:
        """Ask who is there, and that the key may do what is needed; return the program and its version."""

    def count(self) -> int:
        """Return how many photos there are now."""

    def ids(self) -> Iterator[list[str]]:
        """Yield the ids of all photos that are there now, a list a page: others were deleted."""

    def changes(self, since: str = "") -> Iterator[Page]:
        """Yield the photos whose picture, tags or rejections changed since a mark (empty: all), oldest first.

        A photo may come again though nothing of it has changed; none that changed is left out, though it changed while
        pages were read. The order of pages is such that a reader who stops after one goes on by its mark.
        """

    def preview(self, photo: str) -> bytes:
        """Return a photo as a JPEG, PNG or WebP file of some 1,440 pixels.

        Raises DataError if it is not there any more, or has no preview (yet).
        """

    def tags_of(self, photos: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Return the tags that some photos have now, by id, of those that are still there."""

    def add(self, pairs: Iterable[Pair]) -> list[Refused]:
        """Write tags; those that are there already stay as they are. Returns what the server did not take."""

    def take(self, pairs: Iterable[Pair]) -> list[Refused]:
        """Take tags out; those that are not there are no error. Returns what the server did not take."""
