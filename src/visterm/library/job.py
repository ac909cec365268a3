"""Long work at a catalogue as one of its jobs: how far it is, whether to stop, how it ended."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from visterm.store.catalogue import StoredCatalogue


class CatalogueJob:
    """A job of a catalogue while it goes on, to be used in a ``with`` statement; it fails where that ends by an error.

    `kind` is "index", "fit", ...; `job_id` is a job that was written down already, None a new one. `message` says what
    came of it. The job is cancelled, too, once `stop` returns True.
    """

    def __init__(
        self, stored: StoredCatalogue, kind: str, job_id: int | None, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._stored = stored
        self._kind = kind
        self._given = job_id
        self._stop = stop
        self.id = -1
        self.message: str | None = None

    def __enter__(self) -> Self:
        self._stored.jobs.mark_lost()
        self.id = self._stored.jobs.start(self._kind) if self._given is None else self._given
        self._stored.jobs.run(self.id)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reason = None if error is None else str(error) or type(error).__name__
        self._stored.jobs.finish(self.id, error=reason, message=self.message)

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        if self._stop():
            self._stored.jobs.cancel(self.id)
        return self._stored.jobs.is_cancelled(self.id)

    def advance(self, done: int, total: int, message: str | None = None) -> None:
        """Write down how far it is."""
        self._stored.jobs.progress(self.id, done, total, message)
