"""`visterm export`: write tags back, to XMP files, images, texts or a table, and take them back."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, list_skipped, say, show
from visterm.cli.progress import Bars
from visterm.core.errors import UserError
from visterm.core.wording import count_of, one_of

if TYPE_CHECKING:
    from visterm.core.types import Skipped
    from visterm.library.export.items import Change, ExportItem

EXAMPLES = (
    ("visterm export catalogue --to xmp --dry-run", "show what would be written"),
    ("visterm export catalogue --to xmp", "write XMP files"),
    ("visterm export catalogue --to xmp --undo", "remove them again"),
    ("visterm export catalogue --for immich", "write what Immich reads"),
    ("visterm export run photos --to csv -o tags.csv -k 3", "a table, without a catalogue"),
    ("visterm export catalogue --to imagefolder -o tagged", "for Hugging Face datasets"),
    ("visterm export run --to onnx -o model", "the run itself, as one ONNX graph"),
)


def export(
    source: Annotated[
        Path,
        typer.Argument(metavar="CATALOGUE", help="A catalogue, or a run for the photos of IMAGES.", show_default=False),
    ],
    images: Annotated[
        Path | None, typer.Argument(help="With a run: a folder of photos, or one photo.", show_default=False)
    ] = None,
    to: Annotated[
        str | None,
        options.output_option(
            help="xmp: a file beside each photo; embed: into the photos, with exiftool; txt: a text file beside each; "
            "csv or jsonl: one table, -o FILE; fiftyone or imagefolder: a data set, -o FOLDER; onnx: a run as one "
            "graph, -o FOLDER [default: xmp]."
        ),
    ] = None,
    program: Annotated[
        str | None,
        options.output_option(
            "--for",
            help="Write where a program reads: lightroom, digikam, darktable, immich or photoprism."
            " It takes the place of --to. With --to onnx, photoprism is a model for PhotoPrism.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        options.output_option(
            "-o", "--out", help="The file of csv or jsonl; the folder of fiftyone, imagefolder or onnx."
        ),
    ] = None,
    min_confidence: Annotated[
        float | None,
        options.which_option(
            help="Write predictions with at least this confidence (0-1) [default: 0.5].",
            callback=options.in_range("--min-confidence", least=0, most=1),
        ),
    ] = None,
    precision: Annotated[
        float | None,
        options.which_option(
            help="Choose each tag's cut-off for this expected precision, e.g. 0.9.",
            callback=options.in_range("--precision", above=0, below=1),
        ),
    ] = None,
    k: Annotated[
        int, options.which_option("-k", min=0, help="Most predictions per photo; 0 for no limit.", show_default=True)
    ] = 0,
    dry_run: Annotated[bool, options.output_option("--dry-run", help="Show the changes without making them.")] = False,
    undo: Annotated[bool, options.output_option("--undo", help="Remove all tags that visterm wrote.")] = False,
    keep_originals: Annotated[
        bool,
        options.output_option(
            "--keep-originals/--overwrite",
            help="With --to embed: keep a backup of the original (photo.jpg_original).",
            show_default=True,
        ),
    ] = True,
    guard: Annotated[
        bool,
        options.output_option(
            "--guard/--no-guard",
            help="With --to csv: put ' before cells that a spreadsheet would compute (=, +, -, @).",
            show_default=True,
        ),
    ] = True,
    copy: Annotated[
        bool,
        options.output_option("--copy", help="With --to fiftyone or imagefolder: copy the photos instead of linking."),
    ] = False,
    follow_links: Annotated[
        bool, options.output_option("--follow-links", help="Also write to links that lead out of a photo's folder.")
    ] = False,
    json: options.Json = False,
    jobs: options.Jobs = None,
    skipped: options.SkippedFile = None,
) -> None:
    """Write tags where other programs find them.

    Writes people's tags and confident predictions. visterm adds tags, marks them as its own, and keeps what people
    wrote. With --to onnx, it writes a run's network, model and confidences as one graph instead. The exit code is 3 if
    photos were skipped.
    """
    if to == "onnx":
        _export_model(source, images, program, out, json=json)
        return
    from visterm.library.export.datasets import DATASETS, export_dataset, only_pictures
    from visterm.library.export.items import Parents
    from visterm.library.export.profiles import profile_of
    from visterm.library.export.sources import Limits, open_source
    from visterm.library.export.tables import CSV, TABLES, table_of
    from visterm.library.export.writing import TARGETS, XMP, export_tags, make_target, undo_tags

    if program is not None:
        profile = profile_of(program, to=to, keep_originals=keep_originals)
        to = profile.to
    to = to or XMP
    _check(to, TARGETS, (*TABLES, *DATASETS), out, undo=undo, dry_run=dry_run)
    if copy and to not in DATASETS:
        raise UserError(f"--copy is for --to {' and '.join(DATASETS)}. Leave it out.")
    target = None
    if to in TARGETS:
        target = make_target(to, program=program, keep_originals=keep_originals, follow_links=follow_links)
    opened = open_source(source, images, jobs, into_files=target is not None and not undo)
    run = opened.tagger.fingerprint
    bad: list[Skipped] = []
    notes = opened.notes(to)
    counts: Counter[str] = Counter()
    if undo and target is not None:
        items = _counted(opened.written(to), bad, counts)
        changes = undo_tags(items, target, dry_run=dry_run, progress=Bars(), notes=notes)
        _show_changes(changes, bad, counts, json=json, dry_run=dry_run, undo=True)
    else:
        found = opened.items(Limits(k, min_confidence, precision), Bars())
        items = _counted(only_pictures(found) if to in DATASETS else found, bad, counts, tags=target is None)
        if to in DATASETS:
            if dry_run or out is None:
                deque(items, maxlen=0)
            else:
                export_dataset(items, to, out, copy=copy)
            _say_table(None if dry_run else out, counts)
        elif target is None:
            _put_table(
                table_of(items, to, run=run, guard=guard), None if dry_run else out, counts, shown=to != CSV or not json
            )
        else:
            parents = Parents.of_run(opened.tagger)
            changes = export_tags(items, target, run=run, parents=parents, dry_run=dry_run, notes=notes)
            _show_changes(changes, bad, counts, json=json, dry_run=dry_run)
    if program is not None and not dry_run and not undo:
        say(profile.then)
    if json and dry_run:
        emit({"totals": {**counts, "skipped": len(bad)}})
    raise typer.Exit(list_skipped(bad, skipped))


def _export_model(run: Path, images: Path | None, program: str | None, out: Path | None, *, json: bool) -> None:
    """Write a run as one ONNX graph, for any program or for PhotoPrism."""
    from visterm.library.export.onnx_model import check_runtime, export_model, holding_photos
    from visterm.library.export.photoprism_model import export_photoprism_model
    from visterm.tagging.tagger import Tagger

    if images is not None or out is None:
        raise UserError("--to onnx writes a run into a folder: visterm export RUN --to onnx -o FOLDER")
    if program not in (None, "photoprism"):
        raise UserError(f"--for is '{program}'; with --to onnx expected photoprism, or leave --for out.")
    check_runtime()
    tagger = Tagger.load(run)
    graph = (export_model if program is None else export_photoprism_model)(tagger, out)
    if json:
        emit({"folder": str(out), "tags": len(tagger.vocabulary), "bytes": len(graph.content), "views": graph.n_views})
    tags = count_of(len(tagger.vocabulary), "tag")
    say(f"Wrote {out}: {tags}, {len(graph.content) / 1e6:.1f} MB. Its README.md says how to use it.")
    if held := holding_photos(tagger):
        say(" ".join(held.split()))


def _check(
    to: str, targets: Sequence[str], tables: Sequence[str], out: Path | None, *, undo: bool, dry_run: bool
) -> None:
    """Refuse options that do not go together, before anything is read."""
    if to not in (*targets, *tables):
        raise UserError(f"--to is '{to}'; expected {one_of((*targets, *tables, 'onnx'))}.")
    if to in tables and undo:
        raise UserError(f"--undo is for tags in files of photos; what {to} writes is by itself, and you can delete it.")
    if to in tables and out is None and not dry_run:
        what, where = ("one table", "FILE") if to in ("csv", "jsonl") else ("a folder", "FOLDER")
        raise UserError(f"--to {to} writes {what}: say where by -o {where}, or look at it with --dry-run.")
    if to in targets and out is not None:
        raise UserError(f"-o is for --to {' and '.join(tables)}; {to} writes beside or into the photos. Leave it out.")


def _counted(
    items: Iterable[ExportItem | Skipped], bad: list[Skipped], counts: Counter[str], *, tags: bool = False
) -> Iterator[ExportItem]:
    """Yield the photos to write, counted, with their tags if asked; those that cannot be read go to `bad`."""
    from visterm.core.types import Skipped
    from visterm.data.xmp.keywords import GIVEN
    from visterm.library.export.items import Parents

    counts["photos"] = 0
    for item in items:
        if isinstance(item, Skipped):
            bad.append(item)
            continue
        counts["photos"] += bool(item.name)  # places that photos have left have none
        for mark in item.wanted(None, Parents()) if tags else ():
            counts["tags" if mark.source == GIVEN else "predicted"] += 1
        yield item


def _put_table(text: str, out: Path | None, counts: Counter[str], *, shown: bool) -> None:
    """Write a table into a file, or show it, and say how many photos and tags it has."""
    from visterm.library.export.tables import write_table

    if out is not None:
        write_table(out, text)
    elif shown:
        for line in text.splitlines():
            show(line)
    _say_table(out, counts)


def _say_table(out: Path | None, counts: Counter[str]) -> None:
    photos, tags = count_of(counts["photos"], "photo"), count_of(counts["tags"], "tag")
    predicted = count_of(counts["predicted"], "prediction")
    say(f"{'Would write' if out is None else f'Wrote {out}'}: {photos}, {tags} of people, {predicted}.")


def _show_changes(
    changes: Iterable[Change | Skipped],
    bad: list[Skipped],
    counts: Counter[str],
    *,
    json: bool,
    dry_run: bool,
    undo: bool = False,
) -> None:
    """Show changes one by one if they are only planned, or in JSON, and say how many there are."""
    from visterm.core.types import Skipped

    counts.update({"files": 0, "added": 0, "removed": 0, "left_out": 0, "copied": 0})
    for change in changes:
        if isinstance(change, Skipped):
            bad.append(change)
            continue
        counts["files"] += bool(change.added or change.removed or change.copied)
        counts["added"] += len(change.added)
        counts["removed"] += len(change.removed)
        counts["left_out"] += len(change.left_out)
        counts["copied"] += len(change.copied)
        if json:
            emit(change.as_dict())
        elif dry_run:
            show(f"{change.target}: {', '.join(_words(change))}")
    add, remove = ("Would add", "would remove") if dry_run else ("Added", "removed")
    files = f"{count_of(counts['files'], 'file')} for {count_of(counts['photos'], 'photo')}"
    if undo and not counts["removed"]:
        message = f"Nothing to remove from {files}: what was written with --to or --for is undone with the same option"
    elif not counts["removed"]:
        message = f"{add} {count_of(counts['added'], 'tag')} to {files}"
    elif not counts["added"]:
        message = f"{remove.capitalize()} {count_of(counts['removed'], 'tag')} from {files}"
    else:
        message = f"{add} {count_of(counts['added'], 'tag')} and {remove} {counts['removed']:,} in {files}"
    if counts["left_out"]:
        message += f"; {counts['left_out']:,} not written (a person has removed them, or a character does not fit)"
    if counts["copied"]:
        what = "tag of other programs", "tags of other programs"
        fields = "out of the fields that they were copied to" if undo else "into the other fields of keywords"
        message += f"; {counts['copied']:,} {what[counts['copied'] != 1]} {fields}"
    say(f"{message}.")


def _words(change: Change) -> Iterator[str]:
    for mark in change.added:
        yield f"+{mark.tag}" if mark.confidence is None else f"+{mark.tag} {mark.confidence:.0%}"
    yield from (f"-{tag}" for tag in change.removed)
    yield from (f"({tag})" for tag in change.left_out)
    yield from (f"={tag}" for tag in change.copied)
