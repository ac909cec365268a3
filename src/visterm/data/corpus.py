"""Images joined with their tags and splits."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, Unpack

from visterm.core.errors import ShapeError, TagFileError, UnknownNameError
from visterm.core.remote import as_path, is_remote
from visterm.core.types import Skipped
from visterm.core.vocabulary import checked_lists
from visterm.core.wording import count_of
from visterm.data.frames import FrameTable
from visterm.data.image_folders import Unsearched, images_in, match_names, plain_name
from visterm.data.images import ImageLike
from visterm.data.program_stores import is_store, store_name
from visterm.data.tag_files import KEYWORDS, find_tags
from visterm.data.tag_formats.record import (
    TagRecord,
    TagsFound,
    contradiction_remarks,
    merged_by_image,
    record,
    split_name,
    without_contradictions,
)
from visterm.data.tag_formats.tables import TableOptions, TagSource, read_table, table_records

_PER_IMAGE = ("images", "names", "tags", "negatives", "splits", "users", "known")


@dataclass(frozen=True)
class Corpus:
    """Images with their tags, splits and users; the lists per image have one entry for each image."""

    images: list[ImageLike]  # Paths, Pillow images or uint8 arrays (height, width, 3)
    names: list[str]  # As in the tag file, or paths inside the image folder
    # Positive tags, and tags that the image explicitly does not have
    tags: list[list[str]]
    negatives: list[list[str]]
    splits: list[str | None]  # "train", "valid", "test" or another name; None if not given
    users: list[str | None]  # Owners of the images; None if not given
    known: list[bool]  # Whether anything is known of their tags; not if a cell or text is empty
    missing: list[str] = field(default_factory=list)  # Names in the tag file without an image file
    # Image files that are not in the tag file, as paths inside the image folder
    untagged: list[str] = field(default_factory=list)
    folder: Path | None = None  # The image folder, if the images are files
    # Lines for the user: where "auto" found the tags, and which tags and images did not match
    remarks: list[str] = field(default_factory=list)
    source: str = ""  # Where `read` found the tags: an absolute path, "xmp" or "auto"; empty if unknown
    encoded: Any = None  # `features.stored.Features` with the rows of the images, if they are already encoded
    tree: Sequence[tuple[str, str]] = ()  # Child and parent of tags, if the tags were given as paths
    aliases: Mapping[str, str] = field(default_factory=dict)  # Synonyms of tags, where the tags came with them
    tag_order: Sequence[str] = ()  # The tags of the columns, if the tags were given as a matrix
    skipped: Sequence[Skipped] = ()  # Folders that cannot be listed, and tag files without permission to read

    @classmethod
    def read(cls, images: str | os.PathLike[str], tags: TagSource = "auto", **options: Unpack[TableOptions]) -> Self:
        """Read a folder of images and its tags.

        `tags` and the options are those of `find_tags`. A row is matched with the file at its path, or with the only
        file whose path ends the same (``1.jpg`` with ``sea/1.jpg``, and ``photos/1.jpg`` with ``1.jpg``). Without a
        match, a name may differ in capitals from a file that no other row names, or lack its suffix; `remarks` counts
        such rows. The corpus is in the order of the tag file; rows without an image and images without a row are
        listed, and are not an error. Raises DataError if the folder does not exist or has no images; TagFileError if
        the tags cannot be parsed, a name matches several images, or no name matches.
        """
        folder = as_path(images)
        unsearched = Unsearched()
        paths = images_in(folder, unsearched=unsearched)
        corpus = cls.joined(folder, paths, find_tags(tags, folder, paths, **options))
        source = os.fspath(tags) if isinstance(tags, str | os.PathLike) else ""
        if source not in ("", KEYWORDS, "auto") and not is_remote(source):
            source = store_name(source) if is_store(source) else os.path.abspath(source)
        remarks, skipped = [*corpus.remarks, *unsearched.remarks()], [*unsearched.closed, *corpus.skipped]
        return replace(corpus, source=source, remarks=remarks, skipped=skipped)

    @classmethod
    def joined(cls, folder: Path, paths: Sequence[Path], tags: TagsFound, *, encoded: object = None) -> Self:
        """Join the images of a folder with `tags`, by name, as `read` does.

        The files at `paths` need not exist if `encoded` has the rows of the images. Raises TagFileError if a name
        matches several images, or no name matches.
        """
        records = tags.records
        matches = list(zip(match_names(folder, paths, [row.image for row in records]), records, strict=True))
        missing_names = list(dict.fromkeys(plain_name(row.image) for match, row in matches if match is None))
        matched_rows = [(match, row._replace(image=match.name)) for match, row in matches if match is not None]
        if not matched_rows:
            example = missing_names[0] if missing_names else "nothing"
            raise TagFileError(
                f"The tags name {count_of(len(records), 'file')} (such as '{example}'), but none is in {folder} "
                f"(such as '{paths[0].relative_to(folder).as_posix()}').",
                advice="Check the folder, or name the column in `tag_rules`: image_column.",
            )

        rows: dict[Path, TagRecord] = {}
        for match, row in matched_rows:  # several rows may name the same file in different ways
            previous = rows.get(match.path)
            same_file = [row] if previous is None else [previous, row._replace(image=previous.image)]
            rows[match.path] = merged_by_image(same_file)[0]

        untagged = [path.relative_to(folder).as_posix() for path in paths if path not in rows]
        remarks = list(tags.remarks)
        loose_matches = [match for match, _ in matched_rows if match.is_loose]
        for match in loose_matches[:1]:
            example = f"such as '{match.name}' and '{match.path.relative_to(folder).as_posix()}'"
            n_names = count_of(len(loose_matches), "name")
            remarks.append(f"Images that differ in capitals or endings were taken for {n_names} ({example}).")
        if missing_names:
            n_missing = count_of(len(missing_names), "image")
            remarks.append(f"Tags name {n_missing} (such as '{missing_names[0]}') not in the image folder; left out.")
        if untagged:
            n_images = f"{len(untagged):,} of {count_of(len(paths), 'photo')}"
            remarks.append(f"Without tags: {n_images} (such as '{untagged[0]}'), {tags.untagged_reason}.")
        return cls._of_records(
            rows, list(rows.values()), missing=missing_names, untagged=untagged,
            remarks=remarks, folder=folder, encoded=encoded, tree=tags.tree, skipped=tags.skipped,
            aliases=tags.aliases,
        )  # fmt: skip

    @classmethod
    def of(cls, images: Sequence[ImageLike], names: Sequence[str], tags: Sequence[Iterable[str]]) -> Self:
        """Make a corpus from parallel lists of images and tags; a tag written ``-beach`` is a negative.

        Raises ShapeError if the lists differ in length; DataError if the tags of an image are not a list of texts.
        """
        if not len(images) == len(names) == len(tags):
            counts = f"{len(images)} images, {len(names)} names and tags of {len(tags)}"
            raise ShapeError(f"There are {counts}; expected the same number of each.")
        rows = [record(name, image_tags, None) for name, image_tags in zip(names, checked_lists(tags), strict=True)]
        return cls._of_records(images, rows)

    @classmethod
    def _of_records(cls, images: Iterable[ImageLike], rows: Sequence[TagRecord], **fields: Any) -> Self:
        contradictions: list[str] = []
        rows = [without_contradictions(row, contradictions) if row.negatives else row for row in rows]
        if contradictions:
            fields["remarks"] = [*fields.get("remarks", ()), *contradiction_remarks(contradictions)]
        return cls(
            images=list(images), names=[row.image for row in rows], tags=[row.tags for row in rows],
            negatives=[row.negatives for row in rows], splits=[row.split for row in rows],
            users=[row.user for row in rows], known=[row.is_known for row in rows], **fields,
        )  # fmt: skip

    @classmethod
    def of_table(cls, table: FrameTable, **options: Unpack[TableOptions]) -> Self:
        """Make a corpus from a DataFrame or a list of dicts with names or pixels of photos, and their tags.

        Options are those of `read`; rows of the same image are merged. Raises TagFileError if a column is missing or
        invalid.
        """
        images, records = table_records(table, **options)
        records = [row._replace(image=row.image.replace(os.sep, "/")) for row in records]
        first_image = {row.image: image for row, image in zip(reversed(records), reversed(images), strict=True)}
        rows = merged_by_image(records)
        return cls._of_records((first_image[row.image] for row in rows), rows)

    @classmethod
    def read_names(cls, tags: TagSource, **options: Unpack[TableOptions]) -> Self:
        """Read a table of tags without image files, for images that are known only by name or number.

        The table is CSV, TSV or JSON lines, a DataFrame or a list of dicts; options are those of `read`. Rows of the
        same image are merged, so a table may have one row per pair of image and tag. An image with tags in two splits
        has an entry in each split. Raises TagFileError if the file is missing or cannot be parsed.
        """
        records = (row._replace(image=plain_name(row.image)) for row in read_table(tags, **options))
        rows = merged_by_image(records, per_split=True)
        return cls._of_records((row.image for row in rows), rows)

    def __len__(self) -> int:
        return len(self.images)

    def subset(self, indices: Iterable[int]) -> Self:
        """Return the images at these positions, in the given order."""
        positions = [int(i) for i in indices]
        lists: dict[str, Any] = {name: [getattr(self, name)[i] for i in positions] for name in _PER_IMAGE}
        return replace(self, **lists)

    def known_only(self) -> Self:
        """Return the images of a folder whose tags are known, and count the others in a remark.

        All, if the others would have a tag in common: then only the images of which nothing is known can lack it.
        """
        known = [i for i, is_known in enumerate(self.known) if is_known]
        if self.folder is None or len(known) in (0, len(self)) or set.intersection(*(set(self.tags[i]) for i in known)):
            return self
        n_photos = f"{len(self) - len(known):,} of {count_of(len(self), 'photo')}"
        remark = f"Without tags: {n_photos} (such as '{self.names[self.known.index(False)]}'), named without a tag."
        return replace(self.subset(known), remarks=[*self.remarks, remark])

    def select(self, split: str) -> Self:
        """Return the images of one split.

        It is "train", "valid" (or "validation", "val", "dev"), "test", another name in the tag file, or "all".
        Raises UnknownNameError if no image is in that split; the message lists the existing splits.
        """
        requested = split_name(split)
        if requested == "all":
            return self
        positions = [i for i, name in enumerate(self.splits) if name is not None and name == requested]
        if not positions:
            counts = Counter(filter(None, self.splits))
            if not counts:
                problem, advice = "The tags have no column 'split'.", "Leave `split` out, or add the column."
                raise UnknownNameError(problem, setting="split", value=split, advice=advice)
            available = "".join(f"'{name}' ({count_of(count, 'image')}), " for name, count in sorted(counts.items()))
            problem, expected = f"No image is in the split '{split}'.", f"{available}or 'all'"
            raise UnknownNameError(problem, setting="split", value=split, expected=expected)
        return self.subset(positions)
