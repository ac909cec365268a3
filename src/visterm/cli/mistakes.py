"""`visterm mistakes`: tags that are probably wrong, and tags that are probably missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.cli import options
from visterm.cli.output import check_tags_read, emit, percent, say, table
from visterm.cli.progress import Bars
from visterm.core.errors import UnknownNameError, UserError
from visterm.core.vocabulary import tag_key
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from visterm.data.images import ImageLike
    from visterm.library.catalogue import Catalogue
    from visterm.tagging.mistakes import Mistake

EXAMPLES = (
    ("visterm mistakes catalogue", "list the likeliest mistakes"),
    ("visterm mistakes catalogue --only wrong --csv wrong.csv", "write the wrong tags for a spreadsheet"),
    ("visterm mistakes catalogue --sheet mistakes.html", "look at them: a page with the photos"),
    ("visterm mistakes run photos --tags tags.csv --tag dog", "check one tag of tagged photos"),
)


def mistakes(
    run: Annotated[Path, options.argument(metavar="RUN|CATALOGUE", help="A catalogue; or a run, with IMAGES.")],
    images: options.ImagesOrNone = None,
    tags: options.TagFile = "auto",
    image_column: options.ImageColumn = None,
    tags_column: options.TagsColumn = None,
    separator: options.Separator = None,
    only: Annotated[
        str | None, typer.Option(help="List only 'wrong' or only 'missing' tags.", show_default=False)
    ] = None,
    tag: Annotated[str | None, typer.Option(help="List mistakes of this tag only.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, help="Mistakes to list, half of them wrong, half missing.")] = 50,
    csv: Annotated[Path | None, options.output_option(help="Write the list to this CSV.")] = None,
    sheet: Annotated[
        Path | None, options.output_option(help="Write a page to this HTML file: the photo of each mistake.")
    ] = None,
    json: options.Json = False,
    jobs: options.Jobs = None,
) -> None:
    """List tags that are probably wrong or missing.

    The run's model learns five times, each time from four fifths of the photos, and judges the others. Nothing is
    changed. A catalogue keeps the list for its page, and leaves out what you have answered.
    """
    from visterm.core.persist import folder_kind
    from visterm.library.catalogue import Catalogue
    from visterm.tagging.mistakes import KINDS, mistakes_of

    if only not in (None, *KINDS):
        raise UserError(f"--only is {only!r}; expected {' or '.join(KINDS)}. Leave it out for both.")
    if folder_kind(run) == "catalogue":
        if images is not None or tags != "auto":
            raise UserError("A catalogue has its photos and tags. Leave IMAGES and --tags out, or pass a run.")
        catalogue = Catalogue.load(run, n_jobs=jobs)
        if tag is not None and tag not in catalogue.tagger.vocabulary and not catalogue.stored.held([tag_key(tag)]):
            raise UnknownNameError(catalogue.tagger.vocabulary.unknown_words([tag]))
        catalogue.look_for_mistakes(progress=Bars())
        found = catalogue.mistakes(limit, kind=only, tag=tag) or []
        photos: Iterable[tuple[str, ImageLike, Sequence[str]]] = ()
        if sheet is not None:
            photos = _catalogue_photos(catalogue, found)
    else:
        from visterm.features.training_rows import read_corpus
        from visterm.tagging.tagger import Tagger

        tagger = Tagger.load(run, n_jobs=jobs)
        corpus = read_corpus(
            tagger.encoder, images, tags, image_column=image_column, tags_column=tags_column, separator=separator
        )
        check_tags_read(corpus, separator, paths=tagger.tree is not None)
        found = mistakes_of(tagger, corpus, limit, kind=only, tag=tag, progress=Bars())
        photos = zip(corpus.names, corpus.images, corpus.tags, strict=True)
    found = sorted(found, key=lambda mistake: -mistake.chance)
    if sheet is not None:
        _write_sheet(sheet, run, found, photos)
    if csv is not None:
        from visterm.data.relation_files import write_pairs

        rows = [[m.image, m.tag, m.kind, *(f"{value:.4f}" for value in (m.chance, m.low, m.high))] for m in found]
        write_pairs(csv, ("image", "tag", "kind", "chance", "low", "high"), rows)
        say(f"{count_of(len(found), 'probable mistake')} written to {csv}")
    if json:
        for mistake in found:
            emit(mistake.as_dict())
    elif csv is None and sheet is None and found:
        cells = [
            [percent(m.chance), f"{percent(m.low)} to {percent(m.high)}", m.kind, _with_what_follows(m), m.image]
            for m in found
        ]
        table(cells, ["chance", "95 % interval", "the tag is", "tag", "photo"])
    elif not found:
        say("No mistakes were found.")


def _with_what_follows(mistake: Mistake) -> str:
    """Return the tag, and the tags above it that are missing with it."""
    return f"{mistake.tag} (so {', '.join(mistake.follows)}, too)" if mistake.follows else mistake.tag


def _catalogue_photos(catalogue: Catalogue, found: Sequence[Mistake]) -> list[tuple[str, ImageLike, list[str]]]:
    """Return the photos of mistakes: names, pictures, and the tags that they have."""
    from visterm.library.videos import CatalogueVideos

    stored, videos = catalogue.stored, CatalogueVideos(catalogue.stored)
    ids = sorted({mistake.image_id for mistake in found if mistake.image_id is not None})
    held = stored.tags.held(ids)
    records = stored.images.get_many(ids)
    return [(image.name, videos.picture_of(image) or image.name, held.get(image.id, [])) for image in records]


def _write_sheet(
    file: Path, run: Path, found: Sequence[Mistake], photos: Iterable[tuple[str, ImageLike, Sequence[str]]]
) -> None:
    """Write a page with the photo of each mistake, the tag and its chance, and the tags that the photo has."""
    from visterm.core.types import Tag
    from visterm.evaluation.html_report import Report, Shown

    named = {name: (picture, tags) for name, picture, tags in photos}
    report = Report(
        "Probable mistakes", f"{count_of(len(found), 'tag')} of {run.name} probably wrong or missing, likeliest first."
    )
    cards = []
    for m in found:
        picture, tags = named[m.image]
        note = f"Probably {m.kind}: {percent(m.chance)} ({percent(m.low)} to {percent(m.high)})"
        note += f"; so {', '.join(m.follows)}, too" if m.follows else ""
        cards.append(
            (Shown(picture, name=m.image), note, [Tag(m.tag, m.chance)], {0} if m.kind == "missing" else (), tags)
        )
    report.legend("missing", "wrong")
    report.tagged(cards)
    report.write(file)
    say(f"{count_of(len(found), 'probable mistake')} written to {file}")
