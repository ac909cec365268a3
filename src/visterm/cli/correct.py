"""`visterm correct`: give and take tags of photos of a catalogue, and say which predictions are right or wrong."""

from __future__ import annotations

from typing import Annotated

from visterm.cli import options
from visterm.cli.completion import one_tag
from visterm.cli.output import emit, say, show
from visterm.core.errors import DataError
from visterm.core.wording import count_of

EXAMPLES = (
    ("visterm correct catalogue photos/7.jpg --give 'red fox'", "tag a photo by hand"),
    ("visterm correct catalogue 7.jpg 8.jpg --reject wolf", "these show no wolf"),
    ("visterm correct catalogue 7.jpg", "show its tags"),
)

Tags = list[str] | None


def correct(
    catalogue: options.CatalogueFolder,
    photos: Annotated[list[str], options.argument(help="Photos of the catalogue: files, or names as searches show.")],
    give: Annotated[Tags, options.which_option(help="Add this tag, any word. Repeat for more.")] = None,
    take: Annotated[
        Tags, options.which_option(help="Take off this tag. Repeat for more.", autocompletion=one_tag)
    ] = None,
    accept: Annotated[
        Tags, options.which_option(help="Say that this tag is right. Repeat for more.", autocompletion=one_tag)
    ] = None,
    reject: Annotated[
        Tags, options.which_option(help="Say that this tag is wrong. Repeat for more.", autocompletion=one_tag)
    ] = None,
    json: options.Json = False,
) -> None:
    """Correct the tags of photos in a catalogue.

    Searches and exports follow at once; `visterm fit --catalogue` learns from it. All photos are corrected or, after
    an error, none. Without any tag it shows what the photos have.
    """
    from visterm.library.catalogue import Catalogue
    from visterm.library.like import id_of

    opened = Catalogue.load(catalogue)
    ids = {photo: id_of(opened.stored, photo) for photo in photos}
    if strange := [photo for photo, image_id in ids.items() if image_id is None]:
        raise DataError(f"{strange[0]} is not in {catalogue}. Put it there first: visterm index {catalogue} FOLDER")
    known = list(dict.fromkeys(image_id for image_id in ids.values() if image_id is not None))
    with opened.stored.database.transaction():
        for image_id in known:
            if give:
                opened.give(image_id, give)
            if take:
                opened.take(image_id, take)
            for tags, verdict in ((accept, 1), (reject, -1)):
                for tag in tags or ():
                    opened.judge(image_id, tag, verdict)
    done = {"given": give, "taken off": take, "accepted": accept, "rejected": reject}
    said = [f"{', '.join(tags)} {how}" for how, tags in done.items() if tags]
    if said:
        say(
            f"{count_of(len(known), 'photo')}: {'; '.join(said)}. To learn from it: visterm fit --catalogue {catalogue}"
        )
    for image_id in known:
        image = opened.image(image_id)
        rejected = sorted(tag for tag, verdict in image.verdicts.items() if verdict < 0)
        if json:
            emit({"image": image.record.name, "id": image_id, "tags": image.tags, "rejected": rejected})
        else:
            show(
                f"{image.record.name}: {', '.join(image.tags)}" + (f" (not {', '.join(rejected)})" if rejected else "")
            )
