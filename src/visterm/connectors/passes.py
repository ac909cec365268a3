"""Write tags to a program whose background jobs replace a photo's tags: wait for the jobs between two requests."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from visterm.connectors.contract import PairKey, PhotoTag, RemoteLibrary

STALL_SECONDS = 120.0  # If no photo's jobs end for this long, leave the remaining photos for the next round
NO_JOB_SECONDS = 30.0  # The same limit for requests that may have changed nothing, so that no job was started

PAUSES = (1.0, 1.0, 2.0, 2.0, 3.0)  # Seconds between checks; the last pause is repeated
CHANGED_REASON = "the photo was changed in the last five minutes, or since it was read"
BUSY_REASON = "the jobs of the server that write files do not end"


class WriteResult(NamedTuple):
    """The result of writing and removing pairs."""

    existing: set[PairKey]  # Pairs that the server has now
    unsent: set[PairKey]  # Pairs that were not sent, because of `CHANGED_REASON` or `stalled`
    unsettled: set[PairKey]  # Pairs that were sent, but whose result is still unknown
    refused: dict[PairKey, str]  # Reasons for people
    stamps: dict[str, str]  # Photo -> the server's stamp of its last change, after our own request
    stalled: bool = False  # Whether the server's jobs don't end: send nothing more in this round


def write(
    library: RemoteLibrary,
    pairs: Collection[PhotoTag],
    *,
    remove: bool = False,
    touched: Mapping[str, str],
    careful: bool = True,
) -> WriteResult:
    """Add pairs, or remove them; pairs that the server lost or restored are sent once more.

    A stamp is a text of the server that differs after each change of a photo; `touched` are the stamps after our own
    requests. `careful` leaves out photos that changed in the last five minutes and whose stamp differs from `touched`.
    """
    if not library.queued:
        refused = (library.remove(pairs) if remove else library.add(pairs)) if pairs else {}
        return WriteResult(library.existing(pairs), set(), set(), refused, {})
    work = _WritePasses(library, remove)
    busy = {photo for photo, stamp in work.stamps.items() if stamp != touched.get(photo)} if careful else set()
    sent = [pair for pair in pairs if pair.photo not in busy]
    work.run(sent)
    existing = library.existing(pairs)
    keys_not_to_retry = work.unsent | work.unsettled | work.refused.keys()
    undone = [pair for pair in sent if (pair[:2] in existing) == remove and pair[:2] not in keys_not_to_retry]
    if undone:
        work.run(undone)
        existing = library.existing(pairs)
    sent_keys = {pair[:2] for pair in sent} - work.unsent
    unsent, unsettled = {pair[:2] for pair in pairs} - sent_keys, work.unsettled & sent_keys
    return WriteResult(existing, unsent, unsettled, work.refused, work.touched, work.stalled)


class _WritePasses:
    """Sends requests in passes, and waits for the photos' jobs after each pass."""

    def __init__(self, library: RemoteLibrary, remove: bool) -> None:
        self._library, self._remove = library, remove
        recent = library.recent()
        self._since = recent.since
        self.stamps = recent.stamps
        self.touched: dict[str, str] = {}
        self.refused: dict[PairKey, str] = {}
        self.unsent: set[PairKey] = set()
        self.unsettled: set[PairKey] = set()
        self.stalled = False

    def run(self, pairs: Iterable[PhotoTag]) -> None:
        """Send pairs and wait: add all tags of a photo at once, or remove them one by one."""
        queues: dict[str, deque[list[PhotoTag]]] = defaultdict(deque)
        for pair in pairs:
            if self._remove or not queues[pair.photo]:
                queues[pair.photo].append([])
            queues[pair.photo][-1].append(pair)

        while queues and not self.stalled:
            step = {photo: queue.popleft() for photo, queue in queues.items()}
            sent = [pair for photo_pairs in step.values() for pair in photo_pairs]
            refused = self._library.remove(sent) if self._remove else self._library.add(sent)
            self.refused |= refused

            waiting = {pair.photo for pair in sent if pair[:2] not in refused}
            for photo in self._wait(waiting, [] if self._remove else sent):
                self.unsettled.update(pair[:2] for pair in step[photo])
                self.unsent.update(pair[:2] for later in queues.pop(photo, ()) for pair in later)
            queues = {photo: queue for photo, queue in queues.items() if queue}

        self.unsent.update(pair[:2] for queue in queues.values() for later in queue for pair in later)

    def _wait(self, photos: set[str], pairs: Collection[PhotoTag]) -> set[str]:
        """Wait until the stamps of photos have changed; return the photos that are not ready in time.

        A request that did not change a photo, or was about a deleted photo, starts no job. So if other photos are
        ready, or none of the added `pairs` exists, this waits less, and the jobs don't count as stalled.
        """
        waiting, idle_seconds, n_checks, jobs_are_alive = set(photos), 0.0, 0, False
        while waiting and idle_seconds < STALL_SECONDS:
            seconds = PAUSES[min(n_checks, len(PAUSES) - 1)]
            self._library.pause(seconds)
            idle_seconds, n_checks = idle_seconds + seconds, n_checks + 1
            stamps = self._library.recent(self._since).stamps
            ready = {photo for photo in waiting if stamps.get(photo, "") != self.stamps.get(photo, "")}
            if ready:
                idle_seconds, jobs_are_alive, waiting = 0.0, True, waiting - ready
                self.stamps |= {photo: stamps[photo] for photo in ready}
                self.touched |= {photo: stamps[photo] for photo in ready}
            elif idle_seconds - seconds < NO_JOB_SECONDS <= idle_seconds:
                added = [pair for pair in pairs if pair.photo in waiting]
                jobs_are_alive = jobs_are_alive or not self._library.existing(added)
                if jobs_are_alive:
                    return waiting
        self.stalled = bool(waiting)
        return waiting
