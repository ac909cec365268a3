"""Things such as catalogues on the machines of an engine: an actor opens each, and all answer at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from visterm.cluster.engine import load_ray
from visterm.core.errors import StorageError
from visterm.core.executor import Shards, must_see

FRACTIONS = 10_000
"""Parts of a processor that Ray can count. All actors together take one: so they find room on any machine that is left,
while between searches they take nothing."""

PATIENCE = 60.0
"""Seconds that a lost actor may take to be opened on another machine. Ray notices a lost one after about ten."""

ASKED_AGAIN = 0.5


class _Opened:
    """What an actor runs. It opens its path for the first question, so that an error of opening comes back."""

    def __init__(self, opened: Callable[[str], Any], path: str) -> None:
        self._open, self._path = opened, path
        self._opened: Any = None

    def ask(self, what: str, given: dict[str, Any]) -> Any:
        if self._opened is None:
            must_see(self._path)
            self._opened = self._open(self._path)
        return getattr(self._opened, what)(**given)


class RemoteShards:
    """What actors (of `_Opened`) have opened, one path each: `Shards`.

    An actor that is lost with its machine is started on another by Ray, and searched again.
    """

    def __init__(self, actors: Sequence[Any], paths: Sequence[str]) -> None:
        self._actors, self._paths = list(actors), list(paths)

    def __len__(self) -> int:
        return len(self._actors)

    def ask(self, what: str, arguments: Sequence[dict[str, Any]]) -> list[Any]:
        """Call a method of each, all at the same time, and return the answers in their order."""
        requests = [actor.ask.remote(what, given) for actor, given in zip(self._actors, arguments, strict=True)]
        return [self._answer(i, requests[i], what, given) for i, given in enumerate(arguments)]

    def _answer(self, i: int, answer: Any, what: str, given: dict[str, Any]) -> Any:
        """Return the answer of an actor; where it was lost, ask the one that Ray starts in its place."""
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
                        f"{PATIENCE:.0f} s. Run the same command again."
                    ) from error
            time.sleep(ASKED_AGAIN)
            answer = self._actors[i].ask.remote(what, given)


@contextmanager
def opened_shards(opened: Callable[[str], Any], paths: Sequence[str]) -> Iterator[Shards]:
    """Open something at each path on the machines of the engine that this process is connected to, spread evenly.

    `opened` takes a path; all machines find the paths. Asking the yielded `Shards` raises `StorageError` if a machine
    does not find its path.
    """
    ray = load_ray()
    settings = {
        "num_cpus": max(1, FRACTIONS // len(paths)) / FRACTIONS,
        "scheduling_strategy": "SPREAD",
        "max_restarts": -1,
    }
    actors = [ray.remote(_Opened).options(**settings).remote(opened, path) for path in paths]
    try:
        yield RemoteShards(actors, paths)
    finally:
        for actor in actors:
            ray.kill(actor)
