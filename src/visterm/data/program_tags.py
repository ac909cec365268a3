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
ROOTS = {
    "darktable": "darktable (exported, changed, format, style, printed, problem, mode, locations, ...)",
    "_Digikam_Internal_Tags_": "digiKam (labels, versions, faces that were looked for)",
}

# Whole paths that are a program's own, though others beside them are not
PATHS = {("People", name): "digiKam (faces without a name)" for name in ("Unknown", "Unconfirmed", "Ignored")}

# Tags that are a program's own wherever they stand; no others are so by their name alone
NAMES = {
    "_Digikam_Internal_Tags_": "digiKam",
    "_Digikam_root_tag_": "digiKam",
    "Scanned for Faces": "digiKam",
    "Need Resolving History": "digiKam",
    "Need Tagging History Graph": "digiKam",
    "Version Always Visible": "digiKam",
    **{
        f"Color Label {colour}": "digiKam"
        for colour in ("None", "Red", "Orange", "Yellow", "Green", "Blue", "Magenta", "Gray", "Black", "White")
    },
    **{f"Pick Label {label}": "digiKam" for label in ("None", "Rejected", "Pending", "Accepted")},
}

# Beginnings of tags that only programs write
BEGINNINGS = {
    "geo:lat=": "programs that note a place as tags",
    "geo:lon=": "programs that note a place as tags",
    "uploaded:by=": "Flickr's programs",
    "flickriosapp:filter=": "Flickr's programs",
}

_BETWEEN = re.compile(r"[|/]")  # Parents and children, in one program or another
_MAY_BE = re.compile("|".join(map(re.escape, [*ROOTS, *NAMES, *BEGINNINGS, *{path[0] for path in PATHS}])))


def program_path(tag: str) -> tuple[str, ...]:
    """Return the names in a tag or path that a program wrote for itself, the topmost first; none of a person's tag."""
    if _MAY_BE.match(tag.strip()) is None:  # as most
        return ()
    parts = tuple(part.strip() for part in _BETWEEN.split(tag))
    is_program = (len(parts) > 1 and parts[0] in ROOTS) or parts in PATHS or parts[-1] in NAMES
    return parts if is_program else (tag,) if tag.strip().startswith(tuple(BEGINNINGS)) else ()


def program_names(tags: Iterable[str]) -> set[str]:
    """Return the keys of the names in programs' own paths: flat ones among a photo's tags are explained by these."""
    return {tag_key(name) for tag in tags for name in program_path(tag)}


def of_people(tags: Iterable[str]) -> list[str]:
    """Leave out programs' own tags: paths, and the flat names that a path among the tags explains."""
    tags = list(tags)
    programs = program_names(tags)
    return [tag for tag in tags if tag_key(tag) not in programs and not program_path(tag)] if programs else tags
