"""Catalogues on the machines of a Ray engine: each is opened by an actor, and all are asked at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from visterm.app.cluster.engine import engine, load_ray
from visterm.app.cluster.pipeline import must_see
from visterm.store.catalogue import StoredCatalogue
from visterm.store.searched import SearchedCatalogue
from visterm.store.shards import Shards

RETRIES = 3
"""Of a question whose actor was lost with its machine: the catalogue is opened elsewhere, and asked again."""


class _Opened:
    """What an actor runs. It opens its catalogue for the first question, so that what is wrong with it comes back."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._searched: SearchedCatalogue | None = None

    def ask(self, what: str, given: dict[str, Any]) -> Any:
        if self._searched is None:
            must_see(self._path)
            self._searched = SearchedCatalogue(StoredCatalogue.open(self._path))
        return getattr(self._searched, what)(**given)


class RemoteShards:
    """Catalogues behind actors: `Shards`.

    Parameters
    ----------
    actors : sequence
        Of `_Opened`.
    """

    def __init__(self, actors: Sequence[Any]) -> None:
        self._actors = list(actors)

    def __len__(self) -> int:
        return len(self._actors)

    def ask(self, what: str, arguments: Sequence[dict[str, Any]]) -> list[Any]:
        """Call a method of each, all at the same time; give what each answers, in their order."""
        ray = load_ray()
        asked = [actor.ask.remote(what, given) for actor, given in zip(self._actors, arguments, strict=True)]
        try:
            answers: list[Any] = ray.get(asked)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        return answers


@contextmanager
def remote_shards(paths: Sequence[str], address: str) -> Iterator[Shards]:
    """Open catalogues on the machines of an engine, as evenly as there are processors.

    Parameters
    ----------
    paths : sequence of str
        Of catalogues, where all machines find them.
    address : str
        Of the engine.

    Yields
    ------
    Shards
        Of `SearchedCatalogue`. Their questions raise `StorageError` if a machine does not find a catalogue.

    Raises
    ------
    UserError
        If there is no engine at the address.
    """
    with engine(address) as reached:
        ray = load_ray()
        share = min(1.0, int(1000 * reached.n_workers / len(paths)) / 1000)
        settings = {
            "num_cpus": share,
            "scheduling_strategy": "SPREAD",
            "max_restarts": -1,
            "max_task_retries": RETRIES,
        }
        actors = [ray.remote(_Opened).options(**settings).remote(path) for path in paths]
        try:
            yield RemoteShards(actors)
        finally:
            for actor in actors:
                ray.kill(actor)
