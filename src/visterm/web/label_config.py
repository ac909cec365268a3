"""What a labelling configuration of Label Studio asks for: which choices, of which picture."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import NamedTuple

from visterm.core.errors import DataError
from visterm.core.vocabulary import tag_key

LONGEST = 2**20
_DECLARES = re.compile(r"<!(DOCTYPE|ENTITY)", re.IGNORECASE)


class ChoicesWanted(NamedTuple):
    """The first list of choices for a picture.

    Attributes
    ----------
    from_name, to_name : str
        Names of the list and of the picture, which a prediction repeats.
    value : str
        Where tasks have the picture: ``data[value]``.
    choices : dict of str to str
        The choices by what makes tags equal; empty: any tag.
    single : bool
        Whether one choice only may be made.
    """

    from_name: str = "tags"
    to_name: str = "image"
    value: str = "image"
    choices: dict[str, str] = {}  # noqa: RUF012  # read only
    single: bool = False


def read_config(text: str | None) -> ChoicesWanted:
    """Read a labelling configuration; none is that of tags of an image.

    Raises
    ------
    DataError
        If it is no XML, declares entities, or has no choices for a picture.
    """
    if not text:
        return ChoicesWanted()
    if len(text) > LONGEST or _DECLARES.search(text):
        raise DataError("label_config is too long or declares a document type, which Label Studio's never do.")
    try:
        root = ET.fromstring(text)
    except (ET.ParseError, ValueError) as error:
        raise DataError(f"label_config is not well-formed XML: {error}.") from error
    pictures = {image.get("name", ""): image.get("value", "").lstrip("$") for image in root.iter("Image")}
    for found in root.iter("Choices"):
        to_name = found.get("toName", "")
        if to_name in pictures:
            names = [choice.get("value", "") for choice in found.iter("Choice")]
            single = found.get("choice", "single") != "multiple"
            choices = {tag_key(name): name for name in names}
            return ChoicesWanted(found.get("name", ""), to_name, pictures[to_name], choices, single)
    raise DataError(
        'label_config has no <Choices> for an <Image>. Label with <Image name="image" value="$image"/> and '
        '<Choices name="tags" toName="image" choice="multiple">.'
    )
