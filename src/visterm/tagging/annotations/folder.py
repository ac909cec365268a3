"""A folder of tags on disk, or at an address: parts of JSON lines, and a manifest that says which and in which order.

OUT
├── manifest.json     what is whole: the run, what was wanted, counts, the parts in order with their hashes
├── skipped.jsonl     the images that could not be read
├── data/             the parts: a line an image, as `visterm annotate --json` prints them
└── .annotating/      while a job goes on, and after a kill: the parts done so far

It changes in one step as a features folder does, and a change that is cut off is found again likewise.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar

from visterm.core.learned import Listed, Record, Text, Whole
from visterm.core.remote import is_remote
from visterm.features.contents import ENTRY, ShardEntry
from visterm.features.folder import FeatureFolder
from visterm.features.remote_folder import BEGUN, RemoteFeatureFolder

ANNOTATIONS = "folder of annotations"
"""The kind in the manifest."""


@dataclass(frozen=True, slots=True)
class AnnotationContents:
    """What a folder of annotations holds.

    Attributes
    ----------
    run : str
        The run, in full.
    asked : str
        Fingerprint of the run and of what was wanted: of the lines of each image.
    wanted : dict
        How many tags, and of which kind.
    n_images, n_skipped : int
        Images, and those that could not be read; all others have a line.
    shards : list of ShardEntry
        The parts, in the order of the images.
    """

    run: str
    asked: str
    wanted: dict[str, Any]
    n_images: int
    n_skipped: int
    shards: list[ShardEntry]

    @property
    def n_rows(self) -> int:
        """Images that have a line."""
        return sum(shard.rows for shard in self.shards)


class AnnotationFolder(FeatureFolder):
    """The files of a folder of annotations on this machine; `annotation_folder` also gives those at an address."""

    kind: ClassVar[str] = ANNOTATIONS
    unfinished_name: ClassVar[str] = ".annotating"
    manifest_kind: ClassVar[Record] = Record(
        {
            "run": Text(),
            "asked": Text(),
            "wanted": Record(),
            "n_images": Whole(),
            "n_skipped": Whole(),
            "shards": Listed(ENTRY),
        }
    )

    def _contents_of(self, facts: dict[str, Any], shards: list[ShardEntry]) -> AnnotationContents:
        names = [name for name in AnnotationContents.__slots__ if name != "shards"]
        return AnnotationContents(**{name: facts[name] for name in names}, shards=shards)


class RemoteAnnotationFolder(AnnotationFolder, RemoteFeatureFolder):
    """The files of a folder of annotations at an address."""

    def begin(self) -> None:
        """Finish a change that a kill cut off; whoever is stopped from here on leaves what is seen to be begun."""
        super().begin()
        (self.unfinished / BEGUN).write_bytes(b"")


def annotation_folder(path: str | os.PathLike[str]) -> AnnotationFolder:
    """Return the folder of annotations at a path of this machine, or at an address."""
    return RemoteAnnotationFolder(path) if is_remote(path) else AnnotationFolder(path)
