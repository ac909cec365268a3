"""The interface of connectors to the photo libraries of other programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from importlib import import_module
from itertools import islice
from typing import ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from visterm.core.errors import UserError
from visterm.core.progress import Say, silent
from visterm.core.web_client import Patience
from visterm.core.wording import one_of
from visterm.store.connected import RemotePhoto

T = TypeVar("T")

KINDS = {
    "immich": "visterm.connectors.immich:ImmichLibrary",
    "photoprism": "visterm.connectors.photoprism:PhotoPrismLibrary",
}
"""Name of a program -> its connector class. ``Class(address, key)`` creates a connector without sending requests."""
RETRIES = 6  # About a minute in total: a restarting server does not answer for 35 seconds or more


class Page(NamedTuple):
    """One page of changed photos, and the position after the page."""

    photos: list[RemotePhoto]
    mark: str  # Opaque argument of `changes` to continue after this page


PairKey: TypeAlias = tuple[str, str]  # The first two fields of a `PhotoTag`


class PhotoTag(NamedTuple):
    """A photo and a tag to write to it or remove from it (a "pair")."""

    photo: str  # `RemotePhoto.id`
    tag: str  # In the program's spelling
    confidence: float = 1.0


class Recent(NamedTuple):
    """Recently changed photos."""

    since: str  # Argument of `RemoteLibrary.recent` for the same period and later changes
    stamps: dict[str, str]  # Photo -> opaque text of the server that differs after each change of the photo


class RemoteLibrary(Protocol):
    """Another program's photo library.

    Methods raise ServiceError if the server is unreachable, sends an incomplete or unexpected answer, or refuses the
    key: the message names the missing permission. Temporary failures (no answer, 408, 429, 5xx) are retried internally.
    Connectors never store a whole library in memory. Texts from the server are limited in length and number, but
    otherwise unchecked.
    """

    kind: ClassVar[str]  # Name of the program in commands: "immich"
    title: ClassVar[str]  # Display name of the program: "Immich"
    nested: ClassVar[bool]  # Whether a slash makes a child tag ("visterm/cat")
    queued: ClassVar[bool]
    """Whether the program's background jobs replace a photo's tags some time after a request, which undoes any second
    request in the meantime. The module `passes` uses `recent` to wait for these jobs."""
    key_variable: ClassVar[str]  # Environment variable for the key: "IMMICH_API_KEY"
    address: str  # Address of the server, without a trailing slash
    pause: Callable[[float], object]  # Waits for a number of seconds, such as `time.sleep`

    def __init__(self, address: str, key: str, patience: Patience = ..., /) -> None:
        """Create a connector for a server."""

    def check(self) -> str:
        """Check the server and the permissions of the key; return the program with its version."""

    def count(self) -> int:
        """Return the current number of photos."""

    def ids(self) -> Iterator[list[str]]:
        """Yield the ids of all current photos, one list per page; missing photos were deleted."""

    def changes(self, since: str = "") -> Iterator[Page]:
        """Yield pages of the photos whose picture, tags or rejections changed since a mark (empty: all), oldest first.

        Unchanged photos may be included, but changed photos are never missed, even if they change while pages are read.
        Reading can stop after any page and continue with the page's mark.
        """

    def preview(self, photo: str) -> bytes:
        """Return a preview as a JPEG, PNG or WebP file of about 1,440 pixels; must be thread-safe.

        Raises DataError if the photo was deleted, or has no preview (yet).
        """

    def existing(self, pairs: Collection[PhotoTag]) -> set[PairKey]:
        """Return the pairs that the server has now, as (photo, tag), with as few requests as possible."""

    def recent(self, since: str = "") -> Recent:
        """Return the photos that changed in the last five minutes or since the last call of `changes`.

        Only needed for programs that are `queued`.
        """

    def add(self, pairs: Collection[PhotoTag]) -> dict[PairKey, str]:
        """Add tags to photos; existing tags are not changed. Returns the refused pairs with reasons for people.

        If requests are `queued`, all tags of a photo are sent in one request. Tags that the server silently drops need
        not be detected: the caller calls `existing` afterwards.
        """

    def remove(self, pairs: Collection[PhotoTag]) -> dict[PairKey, str]:
        """Remove tags from photos; missing pairs, tags and photos are ignored. Returns the kept pairs with reasons.

        If requests are `queued`, there is at most one pair per photo.
        """


def batches(entries: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield consecutive lists of `size` entries; the last list may be shorter."""
    entries = iter(entries)
    return iter(lambda: list(islice(entries, size)), [])


def open_library(program: str, address: str, key: str, say: Say = silent) -> RemoteLibrary:
    """Return a program's connector for the server at an address, without sending a request.

    `say` is called with a message if the server does not answer for some seconds. Raises UserError if the program or
    the address is invalid.
    """
    return connector_class(program)(address, key, Patience(retries=RETRIES, say=say))


def connector_class(program: str) -> type[RemoteLibrary]:
    """Return the connector class of a program. Raises UserError if there is none."""
    if program not in KINDS:
        raise UserError(setting="program", value=program, expected=one_of(tuple(KINDS)))
    module, _, name = KINDS[program].partition(":")
    return cast("type[RemoteLibrary]", getattr(import_module(module), name))
