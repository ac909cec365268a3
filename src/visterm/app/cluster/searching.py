"""Catalogues on the machines of a Ray engine: each is opened by an actor, and all are asked at the same time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from visterm.app.cluster.engine import engine, load_ray
from visterm.app.cluster.pipeline import must_see
from visterm.core.errors import StorageError
from visterm.store.catalogue import StoredCatalogue
from visterm.store.searched import SearchedCatalogue
from visterm.store.shards import Shards

FRACTIONS = 10_000
"""Parts of a processor that Ray can count. All catalogues together ask for one: so they find room on any machine that
is left, while between searches they take nothing.
"""

PATIENCE = 60.0
"""Seconds that a lost catalogue may take to be opened on another machine. Ray notices a lost one after about ten."""

ASKED_AGAIN = 0.5


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
        Of `_Opened`. One that is lost with its machine is started on another by Ray, and asked again.
    paths : sequence of str
        What they have opened.
    """

    def __init__(self, actors: Sequence[Any], paths: Sequence[str]) -> None:
        self._actors, self._paths = list(actors), list(paths)

    def __len__(self) -> int:
        return len(self._actors)

    def ask(self, what: str, arguments: Sequence[dict[str, Any]]) -> list[Any]:
        """Call a method of each, all at the same time; give what each answers, in their order."""
        asked = [actor.ask.remote(what, given) for actor, given in zip(self._actors, arguments, strict=True)]
        return [
            self._answer(i, answer, what, given) for i, (answer, given) in enumerate(zip(asked, arguments, strict=True))
        ]

    def _answer(self, i: int, answer: Any, what: str, given: dict[str, Any]) -> Any:
        ray = load_ray()
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return ray.get(answer)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.RayActorError as error:
                if time.monotonic() > deadline:
                    raise StorageError(
                        f"The machine that had opened {self._paths[i]} was lost, and no other has opened it within "
                        f"{PATIENCE:.0f} s. Give the same command again."
                    ) from error
            time.sleep(ASKED_AGAIN)
            answer = self._actors[i].ask.remote(what, given)


@contextmanager
def remote_shards(paths: Sequence[str], address: str) -> Iterator[Shards]:
    """Open catalogues on the machines of an engine, spread evenly.

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
    with engine(address):
        ray = load_ray()
        settings = {
            "num_cpus": max(1, FRACTIONS // len(paths)) / FRACTIONS,
            "scheduling_strategy": "SPREAD",
            "max_restarts": -1,
        }
        actors = [ray.remote(_Opened).options(**settings).remote(path) for path in paths]
        try:
            yield RemoteShards(actors, paths)
        finally:
            for actor in actors:
                ray.kill(actor)
