"""`visterm index`, `watch` and `map`: put photos into a catalogue, keep it up to date, and draw its map."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Annotated

import typer

import visterm
from visterm.cli import options
from visterm.cli.command_line import imported_when_used, wording_for
from visterm.cli.output import Bars, JsonObject, check_tags_read, emit, say, say_not_read, say_skipped, show
from visterm.core.errors import UserError
from visterm.core.wording import count_of

with imported_when_used():
    from visterm.connectors import folder_changes
    from visterm.connectors import watch as watched_folders
    from visterm.core import persist
    from visterm.data import tag_rules as rules_of_tags
    from visterm.encoders import named
    from visterm.features import training_rows
    from visterm.library import photo_map, photos
    from visterm.store import lance_rows

EXAMPLES = (
    ("visterm index run photos -o catalogue", "make a catalogue"),
    ("visterm index catalogue photos", "bring it up to date"),
    ("visterm index better_run photos -o catalogue", "replace its run"),
)


def index(
    run: Annotated[Path, typer.Argument(help="A run, or a catalogue to update with its own run.", show_default=False)],
    images: options.ImagesOrFeatures,
    out: Annotated[
        Path | None,
        options.out_option(help="The catalogue to make or update, a folder [default: RUN, if that is a catalogue]."),
    ] = None,
    tags: Annotated[
        str | None,
        options.input_option(
            help="People's tags to store with the photos: a tag file, a folder of .txt files, 'xmp' or 'auto'."
        ),
    ] = None,
    tag_rules: options.TagRulesFile = None,
    store: Annotated[
        str | None,
        options.output_option(
            help="Where a new catalogue keeps its rows: files, lance (for over ten million photos; extra lance), or "
            "lance:URI for another place [default: files]."
        ),
    ] = None,
    follow_links: Annotated[
        bool,
        options.input_option(
            "--follow-links", help="Also index links to photos outside IMAGES; by default they are skipped."
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """Put photos into a catalogue, to search them by words.

    Run it again to continue after a stop, and to find new, changed, moved and deleted photos. Another run replaces the
    catalogue's own. The exit code is 3 if photos were skipped.
    """
    rules = rules_of_tags.TagRules.of(tag_rules)
    catalogue, path, is_new = _open(run, out, store)
    tag_facts = JsonObject()
    try:
        if tags is None:
            result = catalogue.index(images, follow_links=follow_links, progress=Bars())
        else:
            corpus = training_rows.read_corpus(catalogue.tagger.encoder, images, tags, **rules.columns())
            for remark in corpus.remarks:
                say(remark)
            tag_facts = check_tags_read(corpus, rules, paths=catalogue.tagger.tree is not None)
            result = catalogue.index(corpus, folder=images, follow_links=follow_links, progress=Bars())
    except Exception:
        if is_new and catalogue.stored.images.count() == 0:
            catalogue.stored.close()
            shutil.rmtree(path)
        raise

    not_read = say_not_read([images], videos=True, counted=result.not_read)
    for remark in result.remarks:
        say(remark)
    say(f"Indexed {count_of(len(catalogue), 'photo')} ({result.summary()}). The catalogue is in {path}.")
    if (line := named.encoder_line(catalogue.tagger.encoder)) is not None:
        say(line)
    if json:
        emit({"catalogue": str(path), "images": len(catalogue), **result.as_dict(), **tag_facts, "not_read": not_read})
    raise typer.Exit(say_skipped(result.skipped, path / "skipped.jsonl"))


def _open(run: Path, out: Path | None, store: str | None) -> tuple[visterm.Catalogue, Path, bool]:
    """Open or create the catalogue; return it, its path, and whether it is new."""
    lance_rows.lance_uri(store or lance_rows.FILES)  # raises an error if `store` is invalid
    tagger = None
    if persist.folder_kind(run) == "catalogue":
        if out is not None and out.resolve() != run.resolve():
            raise UserError(
                f"{run} is a catalogue, and is updated where it is. Leave -o out; or, for a new catalogue, pass a run."
            )
        out = run
    elif out is None and not run.exists():
        raise UserError(
            f"There is no run or catalogue at {run}. Make a catalogue with: visterm index RUN IMAGES -o {run}"
        )
    elif out is None:
        raise UserError("Missing catalogue: pass -o CATALOGUE, a new folder or a catalogue to update.")
    else:
        persist.check_target(out, "catalogue")
        tagger = visterm.Tagger.load(run)
        if persist.folder_kind(out) != "catalogue":
            return visterm.Catalogue.create(out, tagger, store=store or lance_rows.FILES), out, True

    catalogue = visterm.Catalogue.load(out, run=tagger)
    photos.check_not_connected(catalogue.stored)
    _check_store(catalogue, store)
    filled = catalogue.use(tagger, progress=Bars()) if tagger is not None else None
    if filled and filled.rows:
        say(f"{count_of(filled.rows, 'row')} of the new run, {filled.encoded:,} by encoding images again.")
    return catalogue, out, False


def _check_store(catalogue: visterm.Catalogue, store: str | None) -> None:
    """Refuse another `store` than the catalogue's own; an empty catalogue, left by a kill, is changed to `store`."""
    stored = catalogue.stored
    if store is None or stored.keeps_rows_in(store):
        return
    uri = lance_rows.lance_uri(store)
    if uri is None or stored.images.count():
        raise UserError(
            f"--store {store} is for new catalogues, and this one keeps its rows in {stored.where_rows_are()}. "
            "Leave it out, or name a new catalogue: -o CATALOGUE."
        )
    stored.keep_in_lance(uri)


WATCH_EXAMPLES = (
    ("visterm watch catalogue", "the folders that were indexed into it"),
    ("visterm watch catalogue /mnt/nas/photos --poll 5m", "look every five minutes"),
)


def watch(
    context: typer.Context,
    catalogue: options.CatalogueFolder,
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of photos [default: those that were indexed].", show_default=False),
    ] = None,
    poll: Annotated[
        str | None,
        options.input_option(
            metavar="TIME",
            help="Check the folders at this interval, such as 30s or 5m. Folders on a network are always checked every "
            "30 s, because their changes are not reported.",
        ),
    ] = None,
) -> None:
    """Keep a catalogue up to date while photos come and go.

    It looks for changes since the last time, and then waits for new ones; people's tags are read from where
    `index --tags` read them. If a folder disappears, it waits until the folder is back. Ctrl-C or SIGTERM ends it; a
    kill loses nothing.
    """
    seconds = options.seconds_of(poll, "--poll")
    opened = visterm.Catalogue.load(catalogue)
    watched_paths = watched_folders.folders_to_watch(opened.stored, folders or ())
    source = watched_folders.tags_as_indexed(opened.stored)
    stop = folder_changes.Stop()

    def end(number: int, frame: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C does not wait

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    source_note = f", with tags from {source}" if source else ""
    say(f"Watching {', '.join(watched_paths)}{source_note}. Ctrl-C ends it.")
    watcher = watched_folders.FolderWatcher(
        opened, watched_paths, tags=source, poll=seconds, stop=stop, say=say, wording=wording_for(context, "index"),
        progress=Bars(lines=False),
    )  # fmt: skip
    told: set[str] = set()  # Lines that need not be repeated
    for folder, result in watcher.rounds():
        for remark in (remark for remark in result.remarks if folder and remark not in told):
            say(remark)
            told.add(remark)
        changes, n_skipped = result.summary(kept=False), len(result.skipped)
        skipped_note = f", {n_skipped:,} skipped, listed in {catalogue / 'skipped.jsonl'}" if n_skipped else ""
        prefix = f"{folder}: " if folder else ""
        line = f"{prefix}{changes}{skipped_note}; {count_of(len(opened), 'photo')} in the catalogue"
        if changes != "nothing new" or (line not in told and (n_skipped or folder)):
            show(line)
        told.add(line)

    say("Stopped.")


MAP_EXAMPLES = (("visterm map catalogue", "draw the map, or add new photos to it"),)


def map(catalogue: options.CatalogueFolder) -> None:
    """Draw a map of the photos, with similar ones close together.

    The page shows it: visterm serve CATALOGUE, then /map. It needs the extra `map` (umap-learn). Photos that you add
    later are placed by their neighbours, so that the map stays as you know it.
    """
    drawn_map = photo_map.draw_map(visterm.Catalogue.load(catalogue), progress=Bars())
    if drawn_map is None:
        say("The map was cancelled. Start it again to continue.")
        raise typer.Exit(1)
    say(f"{count_of(len(drawn_map.ids), 'photo')} on the map.")
