"""`visterm export` and `visterm push`: write tags for other programs, and share a run on the Hugging Face hub."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import visterm
from visterm.cli import options
from visterm.cli.command_line import imported_when_used
from visterm.cli.output import Bars, emit, say, say_skipped, show, table
from visterm.core.errors import UserError
from visterm.core.types import Skipped
from visterm.core.wording import count_of, one_of

with imported_when_used():
    from visterm.data.xmp import keywords
    from visterm.library.export import items as export_items
    from visterm.library.export import onnx_model, sources, tables, writing
    from visterm.library.export import request as export_request
    from visterm.tagging import hub_runs

if TYPE_CHECKING:
    from visterm.library.export.items import ExportItem, FileChange


EXAMPLES = (
    ("visterm export catalogue --dry-run", "show what would be written into XMP files"),
    ("visterm export catalogue", "write XMP files"),
    ("visterm export catalogue --undo", "remove them again"),
    ("visterm export catalogue --to immich", "write what Immich reads"),
    ("visterm export run photos --to csv -o tags.csv -k 3", "a table, without a catalogue"),
    ("visterm export catalogue --to imagefolder -o tagged", "for Hugging Face datasets"),
    ("visterm export run --to onnx -o model", "the run itself, as one ONNX graph"),
)
MODEL_TARGETS = ("onnx", "photoprism-model")  # They export the run itself


def export(
    source: Annotated[
        Path,
        typer.Argument(metavar="CATALOGUE", help="A catalogue, or a run for the photos of IMAGES.", show_default=False),
    ],
    images: Annotated[
        Path | None, typer.Argument(help="With a run: a folder of photos, or one photo.", show_default=False)
    ] = None,
    to: Annotated[
        str,
        options.output_option(
            help="Tags of photos: xmp (a file beside each), embed (into the photos, with exiftool), txt, or where a "
            "program reads: lightroom, digikam, darktable, immich, photoprism. A table, -o FILE: csv or jsonl. A data "
            "set, -o FOLDER: fiftyone or imagefolder. A run as a model, -o FOLDER: onnx or photoprism-model.",
            show_default=True,
            metavar="TARGET",
        ),
    ] = "xmp",
    out: Annotated[Path | None, options.out_option(help="The file or folder of a table, data set or model.")] = None,
    min_confidence: Annotated[
        float | None,
        options.confidence_option(help="Write predictions with at least this confidence (0-1) [default: 0.5]."),
    ] = None,
    precision: Annotated[
        float | None, options.precision_option(help="Choose each tag's cut-off for this expected precision, e.g. 0.9.")
    ] = None,
    k: Annotated[
        int, options.which_option("-k", min=0, help="Maximum predictions per photo; 0 for no limit.", show_default=True)
    ] = 0,
    parent: Annotated[
        str | None,
        options.output_option(
            help="The tag under which predictions are written, such as visterm [default: none].",
            metavar="TAG",
            show_default=False,
        ),
    ] = None,
    take_off: Annotated[
        bool,
        options.output_option(
            "--take-off", help="Also remove keywords that other programs wrote and people rejected in the catalogue."
        ),
    ] = False,
    dry_run: Annotated[bool, options.output_option("--dry-run", help="Show the changes without making them.")] = False,
    undo: Annotated[
        bool, options.output_option("--undo", help="Remove all tags that visterm wrote with the same --to.")
    ] = False,
    overwrite: Annotated[
        bool,
        options.output_option(
            "--overwrite", help="With tags inside photos: keep no backup of the original (photo.jpg_original)."
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """Write tags where other programs find them.

    Writes people's tags and confident predictions. visterm adds tags, marks them as its own, and keeps what people
    wrote. The exit code is 3 if photos were skipped.
    """
    into_files = to in writing.TARGETS
    if not into_files and to not in (*tables.TABLES, *tables.DATASETS, *MODEL_TARGETS):
        raise UserError(
            f"--to is '{to}'; expected {one_of((*writing.TARGETS, *tables.TABLES, *tables.DATASETS, *MODEL_TARGETS))}."
        )

    if into_files and out is not None:
        raise UserError(f"-o is for tables, data sets and models; {to} writes beside or into the photos. Leave it out.")
    file_options = {"--undo": undo, "--overwrite": overwrite, "--take-off": take_off, "--parent": parent}
    if not into_files and (option := next((name for name, value in file_options.items() if value), None)):
        raise UserError(f"{option} is for tags in files of photos. To undo --to {to}, delete its output.")

    if not into_files and out is None and (not dry_run or to in MODEL_TARGETS):
        raise UserError(
            f"Missing output: --to {to} writes {'a file' if to in tables.TABLES else 'a folder'}, named by -o."
        )

    if to in MODEL_TARGETS:
        _export_model(source, images, to, Path(out or ""), json=json)
        return
    limits = sources.Limits(k, min_confidence, precision)
    if into_files:
        request = export_request.ExportRequest(
            to=to, limits=limits, parent=parent, take_off=take_off, undo=undo, dry_run=dry_run,
            keep_originals=not overwrite,
        )  # fmt: skip
        skipped, totals = _export_to_files(source, images, request, json=json)
    else:
        skipped, totals = _export_to_table(source, images, to, limits, None if dry_run else out, json=json)
    if json and dry_run:
        emit({"totals": totals})
    raise typer.Exit(say_skipped(skipped))


def _export_to_files(
    source: Path, images: Path | None, request: export_request.ExportRequest, *, json: bool
) -> tuple[list[Skipped], dict[str, object]]:
    """Write tags next to photos or into them, or undo that; return the skipped photos, and totals."""
    request.check()
    tag_source = sources.open_source(source, images, into_files=not request.undo)
    totals = export_request.ExportTotals()
    for change in export_request.export_files(tag_source, request, totals, Bars()):
        if json:
            emit(change.as_dict())
        elif request.dry_run:
            _show_change(change)

    say(totals.summary(request))
    if totals.staying and not request.take_off:
        say("--take-off removes them.")
    if request.undo and not totals.counts["files"]:
        say("What was written with another --to is undone with the same.")
    if request.to in writing.PROFILES and not request.dry_run and not request.undo:
        say(writing.PROFILES[request.to].next_step)
    return totals.skipped, totals.as_dict()


def _export_to_table(
    source: Path, images: Path | None, to: str, limits: sources.Limits, out: Path | None, *, json: bool
) -> tuple[list[Skipped], dict[str, object]]:
    """Write a table or a data set, or show it if `out` is None; return the skipped photos, and counts."""
    tag_source = sources.open_source(source, images)
    totals = export_request.ExportTotals()
    counts = totals.counts
    source_items = tag_source.items(limits, Bars())
    items = _count_tags(
        totals.items(tables.only_pictures(source_items) if to in tables.DATASETS else source_items), counts
    )
    if to not in tables.DATASETS:
        text = tables.table_of(items, to, run=tag_source.tagger.fingerprint)
        if out is not None:
            tables.write_table(out, text)
        for line in text.splitlines() if out is None and (to != tables.CSV or not json) else ():
            show(line)
    elif out is None:
        deque(items, maxlen=0)
    else:
        tables.export_dataset(items, to, out)

    photos, tags = count_of(counts["photos"], "photo"), count_of(counts["tags"], "tag")
    predicted = count_of(counts["predicted"], "prediction")
    say(f"{'Would write' if out is None else f'Wrote {out}'}: {photos}, {tags} of people, {predicted}.")
    return totals.skipped, {**counts, "skipped": len(totals.skipped)}


def _export_model(run: Path, images: Path | None, to: str, out: Path, *, json: bool) -> None:

    if images is not None:
        raise UserError(f"--to {to} writes a run, without photos. Leave IMAGES out.")
    tagger = visterm.Tagger.load(run)
    graph = (onnx_model.export_model if to == "onnx" else onnx_model.export_photoprism_model)(tagger, out)
    if json:
        emit({"folder": str(out), "tags": len(tagger.vocabulary), "bytes": len(graph.content), "views": graph.n_views})
    tags = count_of(len(tagger.vocabulary), "tag")
    say(f"Wrote {out}: {tags}, {len(graph.content) / 1e6:.1f} MB. Its README.md says how to use it.")
    if warning := onnx_model.privacy_warning(tagger):
        say(" ".join(warning.split()))


def _count_tags(items: Iterable[ExportItem], counts: Counter[str]) -> Iterator[ExportItem]:
    """Yield photos, and count their tags."""
    for item in items:
        for mark in item.marks_to_write(None, export_items.Parents()):
            counts["tags" if mark.source == keywords.GIVEN else "predicted"] += 1
        yield item


def _show_change(change: FileChange) -> None:
    marks = [f"+{m.tag}" + ("" if m.confidence is None else f" {m.confidence:.0%}") for m in change.added]
    marks += [f"-{tag}" for tag in (*change.removed, *change.taken_off)] + [f"({tag})" for tag in change.left_out]
    marks += [*(f"={tag}" for tag in (*change.copied, *change.put_back)), *(f"{tag} stays" for tag in change.staying)]
    show(f"{change.target or change.image}: {', '.join(marks)}")


PUSH_EXAMPLES = (
    ("visterm push my_run ann/holidays --dry-run", "show what would be pushed"),
    ("visterm push my_run ann/holidays", "push to a private repository"),
    ("visterm annotate hub:ann/holidays photos", "tag photos with it on another machine"),
)


def push(
    run: Annotated[Path, options.argument(help="The run to push.")],
    repository: Annotated[str, options.argument(help="Where to: OWNER/NAME. It is created if it doesn't exist.")],
    public: Annotated[bool, options.output_option("--public", help="Let everybody read a new repository.")] = False,
    with_photos: Annotated[
        bool,
        options.output_option(
            "--with-photos", help="Also push names of photos, and tags of photos where the model has them."
        ),
    ] = False,
    dry_run: Annotated[bool, options.output_option("--dry-run", help="List the files without pushing them.")] = False,
) -> None:
    """Share a run on the Hugging Face hub.

    Pushes JSON, safetensors and a model card with measured figures. Names of photos, which photo has which tags, and
    where files are on this machine stay here. Log in once before: hf auth login.
    """
    pushed = hub_runs.push_run(
        visterm.Tagger.load(run), repository, public=public, with_photos=with_photos, dry_run=dry_run
    )
    table([[name, f"{size:,}"] for name, size in pushed.files.items()], ["file", "bytes"])
    total = f"{len(pushed.files)} files, {sum(pushed.files.values()) / 1e6:.1f} MB"
    say(f"Would push to {pushed.page}: {total}." if dry_run else f"Pushed to {pushed.page}: {total}.")
