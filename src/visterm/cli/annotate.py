"""`visterm annotate`, `explain` and `encode`: predict tags, show where in a photo they come from, compute features."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

import visterm
from visterm.cli import options
from visterm.cli.command_line import imported_when_used
from visterm.cli.output import Bars, by_confidence, emit, percent, say, say_not_read, say_skipped, show, show_all, table
from visterm.core.errors import UserError
from visterm.core.remote import as_path
from visterm.core.types import Skipped
from visterm.core.wording import count_of

with imported_when_used():
    from visterm.core import persist
    from visterm.data import images as image_files
    from visterm.features import folder as feature_folder
    from visterm.features import job as encoding
    from visterm.tagging import annotating, annotation_job, part_relations
    from visterm.tagging import explain as explaining

EXAMPLES = (
    ("visterm annotate run photo.jpg", "five tags for one photo"),
    ("visterm annotate run new_photos -k 10 --json > tags.jsonl", "ten tags each, for programs"),
    ("visterm annotate run new_photos --precision 0.9", "about 9 in 10 tags are right"),
    ("visterm annotate run 123 456 --new-only", "only new tags (a run with --encoder ids)"),
    ("visterm annotate run car.jpg wheel.jpg --pair", "a thing and a part of it, together"),
    ("visterm annotate run features -o tags --ray HEAD:6379", "into a folder, on a cluster"),
)


def annotate(
    run: options.Run,
    images: Annotated[
        list[str],
        options.argument(
            help="Photos, folders of photos, or folders of features; names, if the run has the encoder ids or "
            "precomputed."
        ),
    ],
    k: Annotated[
        int | None,
        options.which_option("-k", min=0, help="Tags per photo; 0 for all [default: 5; with a cut-off, all above it]."),
    ] = None,
    precision: Annotated[
        float | None,
        options.precision_option(
            help="Choose the cut-off for this expected precision, e.g. 0.9; a photo may get no tag."
        ),
    ] = None,
    min_confidence: Annotated[
        float | None, options.confidence_option(help="Keep tags with at least this confidence (0-1).")
    ] = None,
    new_only: Annotated[
        bool, options.which_option("--new-only", help="With --encoder ids: leave out tags that an image already has.")
    ] = False,
    added: Annotated[
        bool, options.which_option("--added", help="Also use words added by `visterm tags RUN --add`, marked *.")
    ] = False,
    out: Annotated[
        Path | None,
        options.out_option(
            help="Write the tags into this folder instead of printing them; later runs add what is missing.",
            parser=as_path,
        ),
    ] = None,
    pair: Annotated[
        bool,
        options.which_option(
            "--pair", help="Tag two pictures together, of an object and of a part of it (runs of objects_and_parts)."
        ),
    ] = False,
    json: options.Json = False,
    ray: options.Ray = None,
) -> None:
    """Tag photos, and say how likely each tag is right.

    The confidence, in percent, is the chance that people would give the photo this tag. The exit code is 3 if
    photos were skipped.
    """
    if pair:
        if len(images) != 2 or any((precision is not None, min_confidence is not None, new_only, added, out, ray)):
            problem = "--pair takes two pictures, of an object and of its part, and only the options -k and --json."
            raise UserError(problem)
        pairs = part_relations.label_pair(visterm.Tagger.load(run), images[0], images[1], 5 if k is None else k)
        rows = [[item.object, item.part, f"{item.score:.3f}"] for item in pairs]
        show_all((item._asdict() for item in pairs), rows, ["object", "part", "score"], json=json)
        return

    tagger = visterm.Tagger.load(run, whole=False)
    if added and not tagger.words.added:
        raise UserError(f"No words were added to {run}. Leave --added out, or add some: visterm tags {run} --add FILE")
    source = annotation_job.find(tagger.encoder, images)
    not_read = say_not_read([] if tagger.encoder.reads == "names" else images, videos=True)
    limits = annotating.TagsWanted(k, new_only, added, precision, min_confidence=min_confidence)
    executor = options.executor_of(ray)
    if out is not None:
        start = time.monotonic()
        skipped_file = out / feature_folder.SKIPPED
        report = annotation_job.annotate_into(out, tagger, source, limits, executor=executor, progress=Bars())
        seconds = time.monotonic() - start
        if json:
            speed = {"seconds": seconds, "images_per_second": report.new / seconds}
            emit({"annotations": str(out), **report._asdict(), **speed, "not_read": not_read})
        if ray is not None and not report.shared:
            say(annotation_job.DONE_HERE)
        tag_file = out / feature_folder.DATA
        say(f"Tagged {count_of(report.new, 'photo')} ({report.reused:,} unchanged). The tags are in {tag_file}.")
        raise typer.Exit(say_skipped(persist.read_skipped(skipped_file), skipped_file))

    skipped: list[Skipped] = []
    for item in annotation_job.annotate_found(tagger, source, limits, executor=executor, say=say, progress=Bars()):
        if isinstance(item, Skipped):
            skipped.append(item)
        elif json:
            emit(item.as_dict())
        else:
            cells = []
            for tag in by_confidence(item.tags):
                confidence_text = "" if tag.confidence is None else f" {percent(tag.confidence)}"
                cells.append(f"{tag.tag}{'' if tag.trained else '*'}{confidence_text}")
            show(f"{item.image}: {', '.join(cells)}")

    raise typer.Exit(say_skipped(skipped))


EXPLAIN_EXAMPLES = (
    ("visterm explain run photo.jpg beach -o heat.png", "draw where the tag comes from"),
    ("visterm explain run photo.jpg beach --json", "all shares"),
)

MAX_ROWS = 5  # Maximum number of features, and of places, in the tables; JSON has all


def explain(
    run: options.Run,
    image: Annotated[Path, typer.Argument(help="A photo.", show_default=False)],
    tag: Annotated[str, options.argument(help="A tag of the run.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Draw the shares over the photo: a .png, .jpg or .webp file.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Show which places in a photo a tag comes from.

    Prints how much each feature and each place (in pixels) adds to the tag's score.
    For models whose scores are sums over features (ridge, wsabie, pamir, ...), on visterms or
    networks with average pooling.
    """
    if out is not None:
        explaining.format_of(out)  # raises an error for another extension before any work
        options.may_replace(out)
    explanation = explaining.explain(visterm.Tagger.load(run), image, tag)
    if out is not None:
        explaining.heat_map_size(explanation)  # raises an error if there is no heat map, before the photo is read
        explaining.draw_heat(image_files.read_image(image, max_side=explaining.PHOTO_SIDE), explanation, out)
        say(f"The shares are drawn in {out}")
    if json:
        emit(explanation.as_dict())
        return

    rank = f"rank {explanation.rank:,} of {explanation.n_tags:,} tags"
    show(f"{explanation.image}: {explanation.tag}: score {explanation.score:.3f}, {rank}")
    show(f"explained by {', '.join(explanation.explained_by)}")
    if explanation.no_heat_map_reason:
        show(f"no heat map: {explanation.no_heat_map_reason}")
    rows = []
    if not explanation.no_heat_map_reason:
        share_of_places = sum(cell.share for cell in explanation.places)
        places = f"all {len(explanation.places):,} {explanation.place_noun}s of the picture"
        rows = [[places, f"{share_of_places:+.4f}"]]

    rows += [[f"without a place: {name}", f"{share:+.4f}"] for name, share in explanation.elsewhere.items()]
    show("")
    table(rows, ["part of the score", "share"])
    features = [[str(item.index), f"{item.share:+.4f}", str(item.places)] for item in explanation.features[:MAX_ROWS]]
    show("")
    if explanation.no_heat_map_reason:
        table([row[:2] for row in features], [explanation.feature_noun, "share"])
        return

    table(features, [explanation.feature_noun, "share", f"{explanation.place_noun}s"])
    show("")
    strongest = sorted(explanation.places, key=lambda cell: -abs(cell.share))[:MAX_ROWS]
    table(
        [
            [*(f"{side:.0f}" for side in (cell.left, cell.top, cell.right, cell.bottom)), f"{cell.share:+.4f}"]
            for cell in strongest
        ],
        ["left", "top", "right", "bottom", f"share of the {explanation.place_noun}"],
    )


ENCODE_EXAMPLES = (
    ("visterm encode photos -o features", "with the default network"),
    ("visterm encode photos --encoder onnx:net.onnx -o features", "a network of your own"),
    ("visterm encode new_photos --encoder run -o new_features", "the encoder of a run"),
    ("visterm encode s3://bucket/photos -o s3://bucket/features", "object stores"),
)


def encode(
    images: Annotated[
        Path,
        options.argument(
            help="A folder of photos, with its sub-folders; also s3://BUCKET/NAME (extra s3).", parser=as_path
        ),
    ],
    out: Annotated[
        Path, options.out_option(help="The features folder to write or update; also s3://BUCKET/NAME.", parser=as_path)
    ],
    encoder: Annotated[
        str | None,
        options.model_option(
            help="How photos become features: a name from `visterm encoders`, NAME:ARGUMENT, or a run whose encoder is "
            "used [default: the folder's; if new the first network listed there that is on this machine, or visterms].",
            autocompletion=options.encoder_names,
        ),
    ] = None,
    encoder_set: options.EncoderSettings = None,
    shard_size: Annotated[
        int | None,
        options.scale_option(
            min=1, help="About how many photos go into one file; if stopped, at most one file is lost [default: 512]."
        ),
    ] = None,
    ray: options.Ray = None,
) -> None:
    """Compute the features of photos once, to use them again.

    Other commands take the features folder instead of the photos, and are faster. Run it again to continue after a
    stop, and to encode new and changed photos. The exit code is 3 if photos were skipped.
    """
    run = Path(encoder) if encoder is not None and persist.folder_kind(Path(encoder)) == "run" else None
    report = encoding.encode_folder(
        images, out, encoder=None if run else encoder, run=run, shard_size=shard_size,
        encoder_params=options.settings(encoder_set or [], "--encoder-set"), executor=options.executor_of(ray), say=say,
        progress=Bars(),
    )  # fmt: skip
    say_not_read([images])
    if ray is not None and not report.shared:
        say("--ray ignored: the job fits in one shard. A smaller --shard-size makes more of them.")
    say(
        f"Wrote the features of {count_of(report.rows, 'photo')} to {out}: {report.encoded:,} new, {report.reused:,} "
        f"unchanged, {report.gone:,} removed ({report.width:,} numbers each, {count_of(report.shards, 'file')})."
    )
    skipped_file = out / feature_folder.SKIPPED
    raise typer.Exit(say_skipped(persist.read_skipped(skipped_file), skipped_file))
