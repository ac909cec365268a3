"""`visterm index` and `union`: keep the rows of photos in a catalogue, up to date; search several as one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, exit_code, say
from visterm.cli.progress import Bars
from visterm.core.errors import UserError
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.library.catalogue import Catalogue
    from visterm.library.index import Indexed

EXAMPLES = (
    "Examples:  visterm index run photos -o catalogue && visterm search catalogue 'snow tree'   ·   "
    "visterm index catalogue photos   ·   visterm index better_run photos -o catalogue"
)
UNION_EXAMPLES = (
    "Examples:  visterm union holidays work -o everything && visterm search everything 'snow tree'   ·   "
    "visterm search everything snow --ray HEAD:6379"
)


def index(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run: the folder that `visterm fit` wrote; or a catalogue, to be updated with its own run.",
            show_default=False,
        ),
    ],
    images: options.ImagesOrFeatures,
    out: Annotated[
        Path | None,
        options.output_option(
            "-o",
            "--out",
            help="The catalogue: a new folder, or one to be updated [default: RUN, where that is a catalogue].",
        ),
    ] = None,
    tags: Annotated[
        str | None,
        options.input_option(
            "--tags",
            help="Tags that people gave, to store with the images: a tag file, a folder of `.txt` files, or 'auto'.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        options.output_option(
            help="Where a new catalogue keeps its rows: files, lance (LanceDB's tables in its folder, for libraries "
            "past ten million photos; extra lance), or lance:URI (tables at another place, such as "
            "lance:s3://bucket/rows) [default: files].",
        ),
    ] = None,
    follow_links: Annotated[
        bool,
        options.input_option(
            "--follow-links", help="Take links to photos outside of IMAGES, too; otherwise they are listed as skipped."
        ),
    ] = False,
    device: options.Device = None,
    jobs: options.Jobs = None,
    image_column: options.ImageColumn = None,
    tags_column: options.TagsColumn = None,
    separator: options.Separator = None,
    json: options.Json = False,
) -> None:
    """Keep the rows of photos in a catalogue, to be searched by words.

    Given again, it sees which photos are new, changed, moved or gone, and encodes no others; stopped at any moment, it
    goes on. Another run takes the place of the catalogue's own. The exit code is 3 if images were skipped.
    """
    from visterm.features.training_rows import read_corpus
    from visterm.tagging.part_settings import move_encoder

    catalogue, path, is_new = _open(run, out, jobs, store)
    if device is not None:
        move_encoder(catalogue.tagger.encoder, device)
    try:
        if tags is None:
            done = catalogue.index(images, follow_links=follow_links, progress=Bars())
        else:
            corpus = read_corpus(
                catalogue.tagger.encoder, images, tags,
                image_column=image_column, tags_column=tags_column, separator=separator,
            )  # fmt: skip
            for warning in corpus.remarks:
                say(warning)
            done = catalogue.index(corpus, folder=images, follow_links=follow_links, progress=Bars())
    except Exception:
        if is_new and catalogue.stored.images.count() == 0:
            shutil.rmtree(path)
        raise
    say(f"Indexed {count_of(len(catalogue), 'image')} ({_in_words(done)}); the catalogue is {path}")
    if json:
        emit({"catalogue": str(path), "images": len(catalogue), **done.as_dict()})
    raise typer.Exit(exit_code(done.skipped, path / "skipped.jsonl"))


def union(
    catalogues: Annotated[
        list[Path],
        typer.Argument(help="Catalogues of the same run, in the order of equal results.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The union to write: a new, small folder.")],
    json: options.Json = False,
) -> None:
    """Name several catalogues, to be searched as one: `visterm search UNION WORDS`.

    Nothing is copied. What is found is what one catalogue of all their photos would find. For more photos than one
    machine holds, or libraries that are kept apart.
    """
    from visterm.core.persist import check_target
    from visterm.library.union import CatalogueUnion

    check_target(out, "union")
    with CatalogueUnion(catalogues) as opened:
        opened.save(out)
        counts = dict(zip(opened.paths, opened.counts(), strict=True))
    n_catalogues = count_of(len(counts), "catalogue")
    say(f"{n_catalogues} with {count_of(sum(counts.values()), 'image')} can be searched as one: {out}")
    if json:
        emit({"union": str(out), "images": sum(counts.values()), "catalogues": counts})


def _open(run: Path, out: Path | None, jobs: int | None, store: str | None) -> tuple[Catalogue, Path, bool]:
    """Return the catalogue that is meant, its place, and whether it was just made."""
    from visterm.core.persist import check_target, folder_kind
    from visterm.library.catalogue import Catalogue
    from visterm.store.lance_segment import FILES, lance_uri
    from visterm.tagging.tagger import Tagger

    lance_uri(store or FILES)  # refuses a mistyped one
    if folder_kind(run) == "catalogue":
        if out is not None and out.resolve() != run.resolve():
            raise UserError(
                f"{run} is a catalogue, and is updated where it is. Leave -o out; or, for a new catalogue, give a run."
            )
        catalogue = Catalogue.load(run, n_jobs=jobs)
        _check_store(catalogue, store)
        return catalogue, run, False
    if out is None and not run.exists():
        raise UserError(
            f"There is no run or catalogue at {run}. Make a catalogue with: visterm index RUN IMAGES -o {run}"
        )
    if out is None:
        raise UserError("Missing catalogue: pass -o CATALOGUE, a new folder or a catalogue to update.")
    check_target(out, "catalogue")
    tagger = Tagger.load(run, n_jobs=jobs)
    if folder_kind(out) != "catalogue":
        return Catalogue.create(out, tagger, store=store or FILES), out, True
    catalogue = Catalogue.load(out, n_jobs=jobs)
    _check_store(catalogue, store)
    filled = catalogue.use(tagger, progress=Bars())
    if filled.rows:
        say(f"{count_of(filled.rows, 'row')} of the new run, {filled.encoded:,} by encoding images again.")
    return catalogue, out, False


def _check_store(catalogue: Catalogue, store: str | None) -> None:
    """Refuse another store than the one that a catalogue has: rows stay where they are."""
    from visterm.store.lance_segment import lance_uri

    stored = catalogue.stored
    if store is None or stored.keeps_rows_in(store):
        return
    uri = lance_uri(store)
    if uri is None or stored.images.count():
        raise UserError(
            f"--store {store} is for new catalogues, and this one keeps its rows in {stored.where_rows_are()}. "
            "Leave it out, or name a new catalogue: -o CATALOGUE."
        )
    stored.keep_in_lance(uri)  # a kill left it just made


def _in_words(done: Indexed) -> str:
    counts = {"new": done.new, "changed": done.changed, "moved": done.moved, "gone": done.gone, "unchanged": done.kept}
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "nothing new"
