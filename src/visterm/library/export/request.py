"""A request to write tags into files of photos or to remove them, for the command line and the service; its totals."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from visterm.core.errors import UserError
from visterm.core.progress import SILENT, Progress
from visterm.core.remote import is_remote
from visterm.core.types import Skipped
from visterm.core.wording import count_of
from visterm.data.xmp.keywords import GIVEN
from visterm.library.export.items import ExportItem, FileChange, Parents, branch_path
from visterm.library.export.sources import CatalogueSource, Limits, RunSource
from visterm.library.export.writing import TXT, XMP, export_tags, make_target, undo_tags

COUNTED = ("added", "removed", "left_out", "copied", "taken_off", "put_back")  # Changes whose tags are counted
SHOWN_PRECISION = 0.9  # Precision with which a dry run compares the default
MAX_NAMED_KEYWORDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """Tags to write into files of photos, or to remove from them."""

    to: str = XMP  # One of `writing.TARGETS`
    limits: Limits = field(default_factory=Limits)
    parent: str | None = None  # Tag or path above all predictions; None: none
    take_off: bool = False  # Whether keywords of other programs that people rejected are removed, too
    undo: bool = False  # Whether tags that visterm wrote are removed
    dry_run: bool = False
    keep_originals: bool = True  # Whether photos into which tags are written are kept as they were

    def check(self) -> None:
        """Raise UserError if the target or the parent is invalid, or they don't go with each other."""
        branch_path(self.parent)
        make_target(self.to, keep_originals=self.keep_originals).close()
        for name, value in (("parent", self.parent), ("take_off", self.take_off)):
            if value and (self.to == TXT or self.undo):
                where = "is for keywords in XMP" if self.to == TXT else "does not go with `undo`, which takes all back"
                raise UserError(f"`{name}` {where}.", setting=name, value=value, advice=f"Leave `{name}` out.")


@dataclass(slots=True)
class ExportTotals:
    """The totals of an export or an undo, and the photos that were skipped."""

    counts: Counter[str] = field(default_factory=Counter)  # Photos and files, and tags by the kinds of `COUNTED`
    right: float | None = 0.0  # Expected number of right ones among the added tags; None without confidences
    n_predicted: int = 0  # Number of predictions among the added tags
    staying: Counter[str] = field(default_factory=Counter)  # Rejected keyword in files -> number of photos
    n_staying_photos: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    precise: ExportTotals | None = None  # In a dry run: what `SHOWN_PRECISION` would add

    def items(self, source_items: Iterable[ExportItem | Skipped]) -> Iterator[ExportItem]:
        """Yield and count the photos to write; keep those that cannot be read."""
        self.counts["photos"] = 0
        for item in source_items:
            if isinstance(item, Skipped):
                self.skipped.append(item)
                continue
            self.counts["photos"] += bool(item.name)  # the old paths of moved photos have no name
            yield item

    def changes(self, changes: Iterable[FileChange | Skipped]) -> Iterator[FileChange]:
        """Yield and count the changes of files; keep the photos that cannot be written."""
        for change in changes:
            if isinstance(change, Skipped):
                self.skipped.append(change)
                continue
            self.counts["files"] += change.is_write
            for kind in COUNTED:
                self.counts[kind] += len(getattr(change, kind))
            for mark in change.added:
                self.n_predicted += mark.source != GIVEN
                if mark.source != GIVEN and mark.confidence is None:
                    self.right = None
                elif self.right is not None:
                    self.right += 1.0 if mark.source == GIVEN else mark.confidence or 0.0
            self.staying.update(change.staying)
            self.n_staying_photos += bool(change.staying)
            yield change

    def as_dict(self) -> dict[str, object]:
        """Return the totals as JSON data."""
        counts = {name: self.counts[name] for name in ("photos", "files", *COUNTED)}
        facts: dict[str, object] = {"right": self.right and round(self.right, 1), "staying": dict(self.staying)}
        precise = self.precise
        if precise is not None:
            facts["precise"] = {
                "precision": SHOWN_PRECISION, "added": precise.counts["added"], "right": round(precise.right or 0, 1)
            }  # fmt: skip
        return {**counts, **facts, "skipped": len(self.skipped)}

    def summary(self, request: ExportRequest) -> str:
        """Return the totals as sentences."""
        counts, undo = self.counts, request.undo
        add, remove = ("Would add", "would remove") if request.dry_run else ("Added", "removed")
        files = f"{count_of(counts['files'], 'file')} for {count_of(counts['photos'], 'photo')}"
        if undo and not counts["removed"] and not counts["put_back"]:
            message = f"Nothing to remove from {files}"
        elif not counts["removed"] and not undo:
            message = f"{add} {count_of(counts['added'], 'tag')} to {files}{self._right()}"
        elif not counts["added"]:
            message = f"{remove.capitalize()} {count_of(counts['removed'], 'tag')} from {files}"
        else:
            message = f"{add} {count_of(counts['added'], 'tag')} and {remove} {counts['removed']:,} in {files}"
            message += self._right()

        if self.precise is not None:
            tags = count_of(self.precise.counts["added"], "tag")
            message += f"; with precision {SHOWN_PRECISION:g}: {tags}{self.precise._right(always=True)}"
        if counts["left_out"]:
            message += f"; {counts['left_out']:,} not written (a person has removed them, or a character does not fit)"
        if counts["copied"]:
            copied_text = "tag of other programs" if counts["copied"] == 1 else "tags of other programs"
            fields = "out of the fields that they were copied to" if undo else "into the other fields of keywords"
            message += f"; {counts['copied']:,} {copied_text} {fields}"
        for kind, verb in (("taken_off", "removed"), ("put_back", "put back")):
            if counts[kind]:
                message += f"; {count_of(counts[kind], 'keyword')} {'to be ' * request.dry_run}{verb}"
        return f"{message}.{self._staying()}"

    def _right(self, *, always: bool = False) -> str:
        """Return how many of the added tags are expected to be right, if there are predictions with confidences."""
        return f", about {self.right:,.0f} right" if self.right is not None and (always or self.n_predicted) else ""

    def _staying(self) -> str:
        n_tags, n_photos = len(self.staying), self.n_staying_photos
        if not n_tags:
            return ""
        named = [f"{tag} ({n:,})" for tag, n in self.staying.most_common(MAX_NAMED_KEYWORDS)]
        more = ", ..." if n_tags > len(named) else ""
        stay = "stays" if n_tags == 1 else "stay"
        keywords, photos = count_of(n_tags, "keyword"), count_of(n_photos, "file")
        return f" {keywords} that you rejected {stay} in {photos}: {', '.join(named)}{more}."


def export_files(
    source: RunSource | CatalogueSource,
    request: ExportRequest,
    totals: ExportTotals,
    progress: Progress = SILENT,
    *,
    folders: Sequence[Path] | None = None,
) -> Generator[FileChange]:
    """Write or remove tags photo by photo; yield each change, and count it in `totals`.

    Photos outside of `folders`, which have no links, are skipped; None: all are written. A dry run of a catalogue's
    export with the default limits also counts what `SHOWN_PRECISION` would add.
    """
    request.check()
    target = make_target(request.to, keep_originals=request.keep_originals)
    notes = source.notes(target.name)
    if request.undo:
        items = totals.items(_inside(source.written(target.name), folders))
        yield from totals.changes(undo_tags(items, target, dry_run=request.dry_run, progress=progress, notes=notes))
        return

    items = totals.items(_inside(source.items(request.limits, progress), folders))
    parents = Parents.of_run(source.tagger, branch_path(request.parent))
    yield from totals.changes(
        export_tags(
            items, target, run=source.tagger.fingerprint, parents=parents, dry_run=request.dry_run, notes=notes,
            take_off=request.take_off,
        )
    )  # fmt: skip
    if not request.dry_run or request.limits != Limits() or not isinstance(source, CatalogueSource):
        return
    precise = ExportTotals()
    with suppress(UserError):  # a run without figures for the cut-offs
        request = replace(request, limits=Limits(precision=SHOWN_PRECISION))
        deque(export_files(source, request, precise, progress, folders=folders), maxlen=0)
        totals.precise = precise


def _inside(items: Iterable[ExportItem | Skipped], folders: Sequence[Path] | None) -> Iterator[ExportItem | Skipped]:
    for item in items:
        if isinstance(item, Skipped) or folders is None or is_remote(item.path):
            yield item
            continue
        folder = item.path.parent.resolve()
        if any(folder.is_relative_to(indexed_folder) for indexed_folder in folders):
            yield item
        elif item.name:
            yield Skipped(item.name, "outside of the indexed folders")
