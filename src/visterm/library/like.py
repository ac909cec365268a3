"""Pictures like another one: by the cosine of their rows in the space of the run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import check_k
from visterm.core.errors import DataError
from visterm.core.remote import real_path
from visterm.core.types import Matrix, Ranking
from visterm.data.contents import is_there
from visterm.kernels.topk import top_k
from visterm.store.rows import row_lengths

if TYPE_CHECKING:
    from visterm.store.reader import CatalogueReader
    from visterm.tagging.tagger import Tagger

ImageLike: TypeAlias = "str | os.PathLike[str] | NDArray[np.uint8] | int"


def ranked_by_likeness(
    tagger: Tagger, stored: CatalogueReader, image: ImageLike, k: int, among: NDArray[np.int64] | None
) -> tuple[Ranking, Matrix]:
    """Rank images by how like another they are, see `Searchable.like`; return its row, too."""
    image_id = id_of(stored, image)
    if image_id is None:
        X, _, skipped = tagger.encoder.encode([image])
        if skipped:
            raise DataError(f"{skipped[0].image} cannot be read: {skipped[0].reason}.")
    row: Matrix = tagger.model.image_rows(X) if image_id is None else stored.current_rows().rows([image_id])
    row = row / np.maximum(row_lengths(row)[0], np.finfo(np.float32).tiny)
    while True:
        rows = stored.current_rows()
        ids = rows.ids if among is None else among
        cosines = rows.products(row, among, unit=True)[:, 0]  # of all, one stream of the rows
        if len(cosines) == len(ids):  # else rows were written between the two looks at them
            break
    others = np.flatnonzero(ids != image_id) if image_id is not None else np.arange(len(ids))
    places, scores = top_k(np.ascontiguousarray(cosines[None, others], np.float32), check_k(k, len(others)))
    return Ranking(ids[others[places]], scores), row


def id_of(stored: CatalogueReader, image: ImageLike) -> int | None:
    """Return the id of an image of the catalogue with a row: meant by id, by its file, or by its name; None of another.

    Raises DataError if no such image is there, nor a file; or two images have the name.
    """
    if not isinstance(image, str | os.PathLike | int | np.integer):
        return None
    if isinstance(image, int | np.integer):
        if int(image) not in stored.current_rows().ids:
            raise DataError(
                f"The catalogue has no image {image} to search by. Searches give the ids of images (--json)."
            )
        return int(image)
    there = stored.at_path(real_path(image))
    if there is not None:
        return there if there in stored.current_rows().ids else None
    name = os.fspath(image)
    if is_there(name):
        return None
    found = stored.called(name)
    if len(found) > 1:
        raise DataError(f"{len(found)} images of the catalogue are called {name}. Write more of the path, or the id.")
    if not found:
        raise DataError(f"There is no file {name}, and no image of the catalogue is called so.")
    return found[0] if found[0] in stored.current_rows().ids else None
