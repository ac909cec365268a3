"""Write tags to a program whose background jobs replace a photo's tags: wait for the jobs between two requests."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from visterm.connectors.contract import PhotoTag, RefusedTag, RemoteLibrary

STALL_SECONDS = 120.0  # If no photo's jobs end for this long, leave the remaining photos for the next round
NO_JOB_SECONDS = 30.0  # The same limit for requests that may have changed nothing, so that no job was started

PAUSES = (1.0, 1.0, 2.0, 2.0, 3.0)  # Seconds between checks; the last pause is repeated
CHANGED_REASON = "the photo was changed in the last five minutes, or since it was read"
BUSY_REASON = "the jobs of the server that write files do not end"

PairKey = tuple[str, str]  # Photo id and tag, in the program's spelling


class WriteResult(NamedTuple):
    """The result of writing and removing pairs."""

    existing: set[PairKey]  # Pairs that the server has now
    unsent: set[PairKey]  # Pairs that were not sent, because of `CHANGED_REASON` or `stalled`
    unsettled: set[PairKey]  # Pairs that were sent, but whose result is still unknown
    refused: list[RefusedTag]
    stamps: dict[str, str]  # Photo -> the server's stamp of its last change, after our own request
    stalled: bool = False  # Whether the server's jobs don't end: send nothing more in this round


def write(
    library: RemoteLibrary,
    add: Collection[PhotoTag],
    remove: Collection[PhotoTag],
    *,
    touched: Mapping[str, str],
    careful: bool = True,
) -> WriteResult:
    """Add and remove pairs; pairs that the server lost or restored are sent once more.

    A stamp is a text of the server that differs after each change of a photo; `touched` are the stamps after our own
    requests. `careful` leaves out photos that changed in the last five minutes and whose stamp differs from `touched`.
    """
    pairs = [*add, *remove]
    if not library.queued:
        refused = [*library.remove(remove), *library.add(add)] if pairs else []
        return WriteResult(library.existing(pairs), set(), set(), refused, {})
    work = _WritePasses(library)
    busy = {photo for photo, stamp in work.stamps.items() if stamp != touched.get(photo)} if careful else set()
    sent_add = [pair for pair in add if pair.photo not in busy]
    sent_remove = [pair for pair in remove if pair.photo not in busy]
    work.run(sent_add, sent_remove)
    existing = library.existing(pairs)
    keys_not_to_retry = work.unsent | work.unsettled | {refusal.pair[:2] for refusal in work.refused}
    lost = [pair for pair in sent_add if pair[:2] not in existing | keys_not_to_retry]
    restored = [pair for pair in sent_remove if pair[:2] in existing - keys_not_to_retry]
    if work.run(lost, restored):
        existing = library.existing(pairs)
    sent_keys = {pair[:2] for pair in [*sent_add, *sent_remove]} - work.unsent
    unsent, unsettled = {pair[:2] for pair in pairs} - sent_keys, work.unsettled & sent_keys
    return WriteResult(existing, unsent, unsettled, work.refused, work.touched, work.stalled)


class _WritePasses:
    """Sends requests in passes, and waits for the photos' jobs after each pass."""

    def __init__(self, library: RemoteLibrary) -> None:
        self._library = library
        recent = library.recent()
        self._since = recent.since
        self.stamps = recent.stamps
        self.touched: dict[str, str] = {}
        self.refused: list[RefusedTag] = []
        self.unsent: set[PairKey] = set()
        self.unsettled: set[PairKey] = set()
        self.stalled = False

    def run(self, add: Iterable[PhotoTag], remove: Iterable[PhotoTag]) -> bool:
        """Send pairs and wait; return whether any were sent. First remove tags of a photo one by one, then add tags."""
        queues: dict[str, deque[list[tuple[bool, PhotoTag]]]] = defaultdict(deque)
        for pair in remove:
            queues[pair.photo].append([(False, pair)])
        additions: dict[str, list[tuple[bool, PhotoTag]]] = defaultdict(list)
        for pair in add:
            additions[pair.photo].append((True, pair))
        for photo, pairs in additions.items():
            queues[photo].append(pairs)

        has_sent = False
        while queues and not self.stalled:
            step = {photo: queue.popleft() for photo, queue in queues.items()}
            entries = [entry for pairs in step.values() for entry in pairs]
            to_remove = [pair for is_addition, pair in entries if not is_addition]
            to_add = [pair for is_addition, pair in entries if is_addition]
            refused = [
                *(self._library.remove(to_remove) if to_remove else ()),
                *(self._library.add(to_add) if to_add else ()),
            ]
            self.refused += refused
            refused_keys, has_sent = {refusal.pair[:2] for refusal in refused}, True

            waiting = {pair.photo for _, pair in entries if pair[:2] not in refused_keys}
            for photo in self._wait(waiting, to_add):
                self.unsettled.update(pair[:2] for _, pair in step[photo])
                self.unsent.update(pair[:2] for pairs in queues.pop(photo, ()) for _, pair in pairs)
            queues = defaultdict(deque, {photo: queue for photo, queue in queues.items() if queue})

        self.unsent.update(pair[:2] for queue in queues.values() for pairs in queue for _, pair in pairs)
        return has_sent

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
