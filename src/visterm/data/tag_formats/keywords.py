"""Tags as photo programs keep them: keywords in XMP files beside images, and in the images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from visterm.core.errors import DataError
from visterm.core.wording import count_of
from visterm.data.sidecars import Sidecars
from visterm.data.tag_formats.record import TagRecord, record


class KeywordTags(NamedTuple):
    """The tags of the images that have keywords, and what is to be told."""

    records: list[TagRecord]
    remarks: list[str]


def read_keyword_tags(folder: Path, images: Sequence[Path]) -> KeywordTags:
    """Read the keywords of each image, of all fields that programs use.

    Predictions that visterm wrote there are left out: a run shall not learn from what another run guessed.

    Parameters
    ----------
    folder : Path
        The image folder.
    images : sequence of Path
        The images in it.

    Returns
    -------
    KeywordTags
        A record for each image that has keywords. Files that cannot be understood are told of, and no error.
    """
    sidecars = Sidecars()
    records, bad, n_predicted = [], [], 0
    for image in images:
        try:
            keywords = sidecars.keywords(image)
            tags = keywords.of_people
            found = record(image.relative_to(folder).as_posix(), tags, None, place=str(image))
        except DataError as error:
            bad.append(str(error))
            continue
        n_predicted += len(keywords.tags) - len(tags)
        if tags:
            records.append(found)
    remarks = []
    if n_predicted:
        remarks.append(f"Left out: {count_of(n_predicted, 'tag')} that visterm wrote there as a prediction.")
    if bad:
        remarks.append(f"Left out: {count_of(len(bad), 'image')} whose keywords cannot be read, such as: {bad[0]}")
    return KeywordTags(records, remarks)
