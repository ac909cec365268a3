"""The tags that programs write for themselves: where a photo was exported to, its labels, which faces have no name.

They say nothing of what a photo shows, and lie on most photos, so that nothing reads them as tags of people. Sources:
darktable's ``src/common/tags.c`` and whatever calls ``dt_tag_new("darktable|...")``; digiKam's ``tagscache.cpp``,
``coredbconstants.cpp`` and ``facetags.cpp``; the machine tags of Flickr's and Google Earth's programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from visterm.core.vocabulary import tag_key

# Names under which all is a program's own, as in ``darktable|format|jpg``; alone, the first may be a person's tag
ROOTS = ("darktable", "_Digikam_Internal_Tags_")

# Whole paths that are a program's own, though others beside them are not: digiKam's of faces without a name
PATHS = tuple(("People", name) for name in ("Unknown", "Unconfirmed", "Ignored"))

# Tags of digiKam that are its own wherever they stand; no others are so by their name alone
COLOURS = ("None", "Red", "Orange", "Yellow", "Green", "Blue", "Magenta", "Gray", "Black", "White")
NAMES = (
    "_Digikam_Internal_Tags_", "_Digikam_root_tag_", "Scanned for Faces", "Need Resolving History",
    "Need Tagging History Graph", "Version Always Visible", *(f"Color Label {colour}" for colour in COLOURS),
    *(f"Pick Label {label}" for label in ("None", "Rejected", "Pending", "Accepted")),
)  # fmt: skip

# Beginnings of tags that only programs write: those that note a place as tags, and Flickr's
BEGINNINGS = ("geo:lat=", "geo:lon=", "uploaded:by=", "flickriosapp:filter=")

_BETWEEN = re.compile(r"[|/]")  # Parents and children, in one program or another
# What such tags begin with, and few others
MAY_BE_A_PROGRAMS = re.compile("|".join(map(re.escape, [*ROOTS, *NAMES, *BEGINNINGS, *{path[0] for path in PATHS}])))


def program_path(tag: str) -> tuple[str, ...]:
    """Return the names in a tag or path that a program wrote for itself, the topmost first; none of a person's tag."""
    if MAY_BE_A_PROGRAMS.match(tag.strip()) is None:  # as most
        return ()
    parts = tuple(part.strip() for part in _BETWEEN.split(tag))
    is_program = (len(parts) > 1 and parts[0] in ROOTS) or parts in PATHS or parts[-1] in NAMES
    return parts if is_program else (tag,) if tag.strip().startswith(BEGINNINGS) else ()


def program_names(tags: Iterable[str]) -> set[str]:
    """Return the keys of the names in programs' own paths: flat ones among a photo's tags are explained by these."""
    return {tag_key(name) for tag in tags for name in program_path(tag)}


def of_people(tags: Iterable[str]) -> list[str]:
    """Leave out programs' own tags: paths, and the flat names that a path among the tags explains."""
    tags = list(tags)
    programs = program_names(tags)
    return [tag for tag in tags if tag_key(tag) not in programs and not program_path(tag)] if programs else tags
