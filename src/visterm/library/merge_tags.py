"""Merging tags: the images that have one get another in its place, as if people had written that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visterm.core.errors import UserError
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.store.filters import Filter

if TYPE_CHECKING:
    from visterm.library.catalogue import Catalogue


def merge_tags(catalogue: Catalogue, tag: str, into: str) -> int:
    """Give the images that have a tag another one in its place; all or nothing, and noted in the history.

    What a tag file gives is rejected there, so that the next look at the file does not bring it back. Runs learn of it
    by the next full fit; then no image has the tag any more, and they forget it.

    Parameters
    ----------
    catalogue : Catalogue
    tag, into : str

    Returns
    -------
    int
        Images that had the tag.

    Raises
    ------
    UserError
        If both are one tag, or one of them is empty.
    """
    if tag_key(tag) == tag_key(into):
        raise UserError(f"'{tag}' and '{into}' are one tag already, however it is spelled. Name two tags.")
    if not clean_tag(tag) or not clean_tag(into):
        raise UserError("A tag that is merged has a name, and so has the one that it is merged into: give both.")
    stored = catalogue.stored
    with stored.database.transaction():
        images = stored.find(Filter(tags=(clean_tag(tag),))).tolist()
        for image_id in images:
            catalogue.give(image_id, [into])
            catalogue.take(image_id, [tag])
        stored.history.note("merge tags", tag=clean_tag(tag), into=clean_tag(into), images=len(images))
    return len(images)
