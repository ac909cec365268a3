"""What visterm asks of another program's photo library: a small contract, which every connector keeps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from importlib import import_module
from itertools import islice
from typing import ClassVar, NamedTuple, Protocol, TypeVar, cast

from visterm.core.errors import UserError
from visterm.core.progress import Say, silent
from visterm.core.web_client import Patience, Waiting
from visterm.core.wording import one_of
from visterm.store.connected import RemotePhoto

T = TypeVar("T")

KINDS = {
    "immich": "visterm.connectors.immich:ImmichLibrary",
    "photoprism": "visterm.connectors.photoprism:PhotoPrismLibrary",
}
"""The classes of connectors by the program's name. Each is made by ``Class(address, key)``, which asks nothing yet."""
RETRIES = 6  # A minute in all: a server that starts again gives no answer for 35 seconds and more


class Page(NamedTuple):
    """Some photos that were changed, and how far they bring a reader."""

    photos: list[RemotePhoto]
    mark: str  # By which `changes` goes on after this page: by the server's clock, and opaque to callers


class PhotoTag(NamedTuple):
    """A tag of a photo, to be written into the other program or taken out of it."""

    photo: str  # `RemotePhoto.id`
    tag: str  # As the program writes it
    confidence: float = 1.0


class RefusedTag(NamedTuple):
    """A pair that the server did not take, and why, in words for people."""

    pair: PhotoTag
    reason: str


class Recent(NamedTuple):
    """The photos that changed lately."""

    since: str  # Pass it to `RemoteLibrary.recent` to ask for the same time and what came after
    stamps: dict[str, str]  # By photo, when it changed last: opaque, and another one means that it changed again


class RemoteLibrary(Protocol):
    """Another program's photo library.

    Methods raise ServiceError where the server cannot be reached, answers with half an answer or with what is none of
    its answers, or refuses the key: the message says which permission is missing. Failures that pass (no answer, 408,
    429, 5xx) are tried again inside. Nothing is held of a whole library but what the caller holds. Texts of the server
    come as they are, but with a bound on their length and number; the caller checks them.
    """

    kind: ClassVar[str]  # The program's name in commands: "immich"
    title: ClassVar[str]  # The program's name for people: "Immich"
    nested: ClassVar[bool]  # Whether a tag with slashes ("visterm/cat") lies under another one there
    queued: ClassVar[bool]
    """Whether jobs of the program replace a photo's tags some time after a request, so that a second request to the
    same photo before that is undone. `passes` waits for them, by the stamps of `recent`."""
    key_variable: ClassVar[str]  # The environment variable that may hold the key: "IMMICH_API_KEY"
    address: str  # Of the server, without a slash at its end
    pause: Callable[[float], object]  # Lets seconds pass: `time.sleep`

    def __init__(self, address: str, key: str, patience: Patience = ..., /) -> None:
        """Make one for a server."""

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
        """Return a photo as a JPEG, PNG or WebP file of some 1,440 pixels; called from several threads at once.

        Raises DataError if it is not there any more, or has no preview (yet).
        """

    def existing(self, pairs: Collection[PhotoTag]) -> set[tuple[str, str]]:
        """Return those of some pairs that the server has now, as (photo, tag), in as few requests as it can."""

    def recent(self, since: str = "") -> Recent:
        """Return the photos that changed in the last five minutes, and since the last call of `changes`.

        Only programs whose requests are `queued` need it.
        """

    def add(self, pairs: Collection[PhotoTag]) -> list[RefusedTag]:
        """Write tags; those that are there already stay as they are. Returns what the server did not take.

        Where requests are `queued`, all tags of a photo go in one. Tags that the server drops without a word need not
        be found out: the caller asks `existing` afterwards.
        """

    def take(self, pairs: Collection[PhotoTag]) -> list[RefusedTag]:
        """Take tags out; pairs, tags and photos that are not there are no error. Returns what the server kept.

        Where requests are `queued`, a photo has one pair at most.
        """


def batches(entries: Iterable[T], most: int) -> Iterator[list[T]]:
    """Yield lists of `most` entries, in their order; the last may be shorter."""
    entries = iter(entries)
    return iter(lambda: list(islice(entries, most)), [])


def open_library(program: str, address: str, key: str, say: Say = silent) -> RemoteLibrary:
    """Return the connector of a program for the server at an address; nothing is asked yet.

    `say` takes a line when the server gives no answer for some seconds. Raises UserError if there is no such connector,
    or the address is none.
    """
    return connector_class(program)(address, key, Patience(retries=RETRIES, waiting=Waiting(say)))


def connector_class(program: str) -> type[RemoteLibrary]:
    """Return the connector of a program. Raises UserError if there is none."""
    if program not in KINDS:
        raise UserError(setting="program", value=program, expected=one_of(tuple(KINDS)))
    module, _, name = KINDS[program].partition(":")
    return cast("type[RemoteLibrary]", getattr(import_module(module), name))
