"""`visterm tag`: give tags to photos of a catalogue by hand, and take tags off that are wrong."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from visterm.cli import options
from visterm.cli.completion import one_tag
from visterm.cli.output import emit, say, show
from visterm.core.errors import DataError, UserError
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.library.catalogue import Catalogue

EXAMPLES = (
    ("visterm tag catalogue photos/7.jpg 8.jpg --add 'red fox'", "tag photos by hand"),
    ("visterm tag catalogue 7.jpg --remove dog --remove wolf", "these are not there"),
    ("visterm tag catalogue 7.jpg", "show its tags"),
    ("visterm tag catalogue --undo 12", "take back what was said in a step"),
)

Tags = list[str] | None


def tag(
    catalogue: options.CatalogueFolder,
    photos: Annotated[
        list[str] | None, options.argument(help="Photos of the catalogue: files, or names as searches show.")
    ] = None,
    add: Annotated[
        Tags, options.which_option(help="Add this tag, any word. Repeat for more.", autocompletion=one_tag)
    ] = None,
    remove: Annotated[
        Tags,
        options.which_option(
            help="Take off this tag, and say that it is wrong. Repeat for more.", autocompletion=one_tag
        ),
    ] = None,
    undo: Annotated[
        int | None, options.which_option(help="Take back all of a step, by its number.", metavar="STEP")
    ] = None,
    json: options.Json = False,
) -> None:
    """Tag photos of a catalogue by hand, or show their tags.

    Searches and exports follow at once; `visterm fit CATALOGUE` learns from it. All photos are changed or, after
    an error, none. `visterm judge` asks about tags that visterm suggests.
    """
    from visterm.library.catalogue import Catalogue
    from visterm.library.steps import tag_photos, undo_step

    done = {"given": add, "taken off": remove}
    said = [f"{', '.join(tags)} {how}" for how, tags in done.items() if tags]
    if undo is None and not photos:
        raise UserError(
            "PHOTOS are missing. Name at least one photo of the catalogue, or a step to take back (--undo)."
        )
    if undo is not None and (photos or said):
        raise UserError("--undo takes back a whole step. Leave the photos and tags out.")
    opened = Catalogue.load(catalogue)
    if undo is not None:
        images = undo_step(opened, undo).images
        say(f"Step {undo} is taken back: {count_of(len(images), 'photo')}")
    else:
        images = ids_of(opened, photos or [], catalogue)
    if said:
        step = tag_photos(opened, images, give=add or (), take=remove or (), wrong=remove or ())
        say(
            f"{count_of(len(images), 'photo')}: {'; '.join(said)}. To learn from it: visterm fit "
            f"{catalogue}; to take it back: visterm tag {catalogue} --undo {step.number}"
        )
    for image_id in images:
        image = opened.image(image_id)
        rejected = sorted(name for name, verdict in image.verdicts.items() if verdict < 0)
        if json:
            emit({"image": image.record.name, "id": image_id, "tags": image.tags, "rejected": rejected})
        else:
            show(
                f"{image.record.name}: {', '.join(image.tags)}" + (f" (not {', '.join(rejected)})" if rejected else "")
            )


def ids_of(catalogue: Catalogue, photos: Iterable[str], folder: Path | None) -> list[int]:
    """Return the ids of photos of a catalogue, named by their files or as searches show them, each once.

    `folder` is what errors call the catalogue. Raises DataError if one is not there.
    """
    from visterm.library.like import id_of

    found: dict[int, None] = {}
    for photo in photos:
        image_id = id_of(catalogue.stored, photo)
        if image_id is None:
            raise DataError(f"{photo} is not in {folder}. Put it there first: visterm index {folder} FOLDER")
        found[image_id] = None
    return list(found)
