"""Writing to a program whose own jobs replace a photo's tags: a photo is touched again only when its jobs are done."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from visterm.connectors.contract import PhotoTag, RefusedTag, RemoteLibrary

LIMIT = 120.0  # Seconds in which no photo gets ready, after which the others are left for the next round
NO_JOB = 30.0  # The same where a request may have changed nothing, so that no job began

PAUSES = (1.0, 1.0, 2.0, 2.0, 3.0)  # Seconds between two looks; then the last one again and again
CHANGED = "the photo was changed in the last five minutes, or since it was read"
BUSY = "the jobs of the server that write files do not end"

Key = tuple[str, str]  # Photo and tag, as the program writes them


class WriteResult(NamedTuple):
    """What became of pairs."""

    existing: set[Key]  # That the server has now
    unsent: set[Key]  # That were not sent at all, for `CHANGED` or because of `stalled`
    unsettled: set[Key]  # That were sent, and may still come or go
    refused: list[RefusedTag]
    stamps: dict[str, str]  # Of the photos that were touched, by which they are known again
    stalled: bool = False  # Whether the server's jobs do not end: nothing more is to be sent in this round


def write(
    library: RemoteLibrary,
    add: Collection[PhotoTag],
    take: Collection[PhotoTag],
    *,
    touched: Mapping[str, str],
    careful: bool = True,
) -> WriteResult:
    """Write some pairs and take others out; those that are lost, or come back, are sent once more.

    `careful` leaves out photos that somebody else changed in the last five minutes: whose stamp is not that of
    `touched`, when our own last request was worked through.
    """
    pairs = [*add, *take]
    if not library.queued:
        refused = [*library.take(take), *library.add(add)] if pairs else []
        return WriteResult(library.existing(pairs), set(), set(), refused, {})
    work = _WritePasses(library)
    busy = {photo for photo, stamp in work.stamps.items() if stamp != touched.get(photo)} if careful else set()
    sent_add = [pair for pair in add if pair.photo not in busy]
    sent_take = [pair for pair in take if pair.photo not in busy]
    work.run(sent_add, sent_take)
    existing = library.existing(pairs)
    done = work.unsent | work.unsettled | {each.pair[:2] for each in work.refused}
    lost = [pair for pair in sent_add if pair[:2] not in existing | done]
    back = [pair for pair in sent_take if pair[:2] in existing - done]
    if work.run(lost, back):
        existing = library.existing(pairs)
    sent = {pair[:2] for pair in [*sent_add, *sent_take]} - work.unsent
    unsent, unsettled = {pair[:2] for pair in pairs} - sent, work.unsettled & sent
    return WriteResult(existing, unsent, unsettled, work.refused, work.touched, work.stalled)


class _WritePasses:
    """Requests that are sent pass after pass, and the photos that are waited for."""

    def __init__(self, library: RemoteLibrary) -> None:
        self._library = library
        recent = library.recent()
        self._since = recent.since
        self.stamps = recent.stamps
        self.touched: dict[str, str] = {}
        self.refused: list[RefusedTag] = []
        self.unsent: set[Key] = set()
        self.unsettled: set[Key] = set()
        self.stalled = False

    def run(self, add: Iterable[PhotoTag], take: Iterable[PhotoTag]) -> bool:
        """Send pairs, and wait; return whether any were sent. A photo's tags are taken one by one, then all added."""
        queues: dict[str, deque[list[tuple[bool, PhotoTag]]]] = defaultdict(deque)
        for pair in take:
            queues[pair.photo].append([(False, pair)])
        added: dict[str, list[tuple[bool, PhotoTag]]] = defaultdict(list)
        for pair in add:
            added[pair.photo].append((True, pair))
        for photo, pairs in added.items():
            queues[photo].append(pairs)

        sent = False
        while queues and not self.stalled:
            step = {photo: queue.popleft() for photo, queue in queues.items()}
            entries = [entry for pairs in step.values() for entry in pairs]
            to_take = [pair for is_added, pair in entries if not is_added]
            to_add = [pair for is_added, pair in entries if is_added]
            refused = [
                *(self._library.take(to_take) if to_take else ()),
                *(self._library.add(to_add) if to_add else ()),
            ]
            self.refused += refused
            answered, sent = {each.pair[:2] for each in refused}, True

            waiting = {pair.photo for _, pair in entries if pair[:2] not in answered}
            for photo in self._wait(waiting, to_add):
                self.unsettled.update(pair[:2] for _, pair in step[photo])
                self.unsent.update(pair[:2] for pairs in queues.pop(photo, ()) for _, pair in pairs)
            queues = defaultdict(deque, {photo: queue for photo, queue in queues.items() if queue})

        self.unsent.update(pair[:2] for queue in queues.values() for pairs in queue for _, pair in pairs)
        return sent

    def _wait(self, photos: set[str], pairs: Collection[PhotoTag]) -> set[str]:
        """Wait until the stamps of photos have moved; return the photos that are not ready in time.

        A request that left a photo as it was, or found it deleted, began no job. So if other photos got ready, or none
        of the added `pairs` is there, waiting ends earlier, and the server's jobs don't count as stalled.
        """
        waiting, quiet, looks, works = set(photos), 0.0, 0, False
        while waiting and quiet < LIMIT:
            seconds = PAUSES[min(looks, len(PAUSES) - 1)]
            self._library.pause(seconds)
            quiet, looks = quiet + seconds, looks + 1
            stamps = self._library.recent(self._since).stamps
            ready = {photo for photo in waiting if stamps.get(photo, "") != self.stamps.get(photo, "")}
            if ready:
                quiet, works, waiting = 0.0, True, waiting - ready
                self.stamps |= {photo: stamps[photo] for photo in ready}
                self.touched |= {photo: stamps[photo] for photo in ready}
            elif quiet - seconds < NO_JOB <= quiet:
                works = works or not self._library.existing([pair for pair in pairs if pair.photo in waiting])
                if works:
                    return waiting
        self.stalled = bool(waiting)
        return waiting
