"""The tags that programs write for their own use: export targets, labels, faces without a name.

They do not describe what a photo shows, but are on most photos, so they are never read as people's tags. Sources:
darktable's ``src/common/tags.c`` and all calls of ``dt_tag_new("darktable|...")``; digiKam's ``tagscache.cpp``,
``coredbconstants.cpp`` and ``facetags.cpp``; the machine tags of Flickr's and Google Earth's programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from visterm.core.vocabulary import tag_key

# Roots of programs' own paths, such as ``darktable|format|jpg``; "darktable" alone may be a person's tag
ROOTS = ("darktable", "_Digikam_Internal_Tags_")

# Programs' own full paths, below a tag with people's tags too: digiKam's faces without a name
PATHS = tuple(("People", name) for name in ("Unknown", "Unconfirmed", "Ignored"))

# Names that digiKam uses for its own tags, at any place in a path
COLOUR_LABELS = ("None", "Red", "Orange", "Yellow", "Green", "Blue", "Magenta", "Gray", "Black", "White")
NAMES = (
    "_Digikam_Internal_Tags_", "_Digikam_root_tag_", "Scanned for Faces", "Need Resolving History",
    "Need Tagging History Graph", "Version Always Visible", *(f"Color Label {colour}" for colour in COLOUR_LABELS),
    *(f"Pick Label {label}" for label in ("None", "Rejected", "Pending", "Accepted")),
)  # fmt: skip

# Prefixes of tags that only programs write: geographic coordinates, and Flickr's tags
PREFIXES = ("geo:lat=", "geo:lon=", "uploaded:by=", "flickriosapp:filter=")

_SEPARATORS = re.compile(r"[|/]")  # Between parent and child, depending on the program
# Matches the beginning of all programs' tags, and of few other tags
PROGRAM_PREFIX = re.compile("|".join(map(re.escape, [*ROOTS, *NAMES, *PREFIXES, *{path[0] for path in PATHS}])))


def program_path(tag: str) -> tuple[str, ...]:
    """Return the parts of a program's own tag or path, the topmost first; empty for a person's tag."""
    if PROGRAM_PREFIX.match(tag.strip()) is None:  # most tags
        return ()
    parts = tuple(part.strip() for part in _SEPARATORS.split(tag))
    is_program = (len(parts) > 1 and parts[0] in ROOTS) or parts in PATHS or parts[-1] in NAMES
    return parts if is_program else (tag,) if tag.strip().startswith(PREFIXES) else ()


def program_names(tags: Iterable[str]) -> set[str]:
    """Return the keys of the names in programs' own paths, which may also be among a photo's tags without a path."""
    return {tag_key(name) for tag in tags for name in program_path(tag)}


def people_tags(tags: Iterable[str]) -> list[str]:
    """Return tags without programs' own tags: neither paths, nor the names in these paths."""
    tags = list(tags)
    program_keys = program_names(tags)
    return [tag for tag in tags if tag_key(tag) not in program_keys and not program_path(tag)] if program_keys else tags
