"""What all requests share: the catalogue, opened once, and the bounded threads and processes that work on it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request

from visterm.app.catalogue import Catalogue
from visterm.web.security import Access
from visterm.web.work import Work


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """How much a service takes on.

    Attributes
    ----------
    upload_bytes : int
        Of all that one request sends.
    upload_pixels : int
        Of one picture that is sent.
    pictures : int
        That one request sends.
    searching, decoding, encoding : int
        Requests that search, that have pictures decoded, and that wait for the model, at work or waiting.
    decoders : int
        Processes that decode pictures.
    decoding_seconds : float
        That one picture may take.
    decoding_bytes : int
        Memory of such a process.
    thumbnail_bytes : int
        Of memory for thumbnails.
    """

    upload_bytes: int = 32 * 2**20
    upload_pixels: int = 64_000_000
    pictures: int = 16
    searching: int = 128
    decoding: int = 64
    encoding: int = 64
    decoders: int = 2
    decoding_seconds: float = 20.0
    decoding_bytes: int = 3 * 2**29
    thumbnail_bytes: int = 128 * 2**20


class Service:
    """A catalogue as requests use it. Blocking calls go through one of the kinds of `Work`.

    Parameters
    ----------
    catalogue : path-like
    access : Access
    bounds : Bounds
    folders : sequence of path-like
    n_jobs : int or None

    Attributes
    ----------
    path : Path
    catalogue : Catalogue
        To be called in `searching` (what reads, and feedback) or `encoding` (what shows a picture to the model).
    searching, encoding : Work
    """

    def __init__(
        self,
        catalogue: str | os.PathLike[str],
        access: Access,
        bounds: Bounds,
        folders: Sequence[str | os.PathLike[str]],
        n_jobs: int | None,
    ) -> None:
        self.path = Path(catalogue).absolute()
        self.access = access
        self.bounds = bounds
        self.folders = [Path(folder).absolute() for folder in folders]
        self.catalogue = Catalogue.load(self.path, n_jobs=n_jobs)
        self.searching = Work("search", 2, bounds.searching)
        self.encoding = Work("annotate", 1, bounds.encoding)

    async def start(self) -> None:
        """Begin, in the loop that requests are answered in."""

    async def stop(self) -> None:
        """End threads and processes."""
        for work in (self.searching, self.encoding):
            work.close()
        self.catalogue.stored.close()


def service_of(request: Request) -> Service:
    """Give what all requests share; a dependency of routes."""
    service: Service = request.app.state.service
    return service
