"""Images joined with their tags and splits."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np

from visterm.core.errors import DataError, ShapeError, TagFileError, UnknownNameError, UserError
from visterm.data.image_folders import find_images
from visterm.data.image_names import ImageNames
from visterm.data.images import ImageLike
from visterm.data.splits import split_name
from visterm.data.tag_files import read_tag_table, read_tags
from visterm.data.tag_formats.record import TagRecord, merged, merged_by_split, record

_PER_IMAGE = ("images", "names", "tags", "negatives", "splits")


@dataclass(frozen=True)
class Corpus:
    """Images with what is known of each; the lists that belong to images have one entry each.

    Attributes
    ----------
    images : list of paths or uint8 arrays (height, width, 3)
    names : list of str
        As in the tag file, or paths inside the image folder.
    tags, negatives : list of lists of str
        Given, and explicitly not there.
    splits : list of str or None
        "train", "valid", "test" or another name; None where nothing is said.
    missing : list of str
        Names in the tag file that no image file has.
    untagged : list of str
        Image files that the tag file does not name, as paths inside the image folder.
    """

    images: list[ImageLike]
    names: list[str]
    tags: list[list[str]]
    negatives: list[list[str]]
    splits: list[str | None]
    missing: list[str] = field(default_factory=list)
    untagged: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        sizes = {name: len(getattr(self, name)) for name in _PER_IMAGE}
        if len(set(sizes.values())) > 1:
            raise ShapeError(f"A corpus needs one entry an image in each list, not {sizes}.")

    @classmethod
    def read(
        cls,
        images: str | os.PathLike[str],
        tags: str | os.PathLike[str] = "auto",
        *,
        image_column: str | None = None,
        tags_column: str | None = None,
        separator: str | None = None,
    ) -> Self:
        """Read a folder of images and its tags.

        A row belongs to the file with its path, or to the one file whose path ends as it does (``1.jpg`` to
        ``sea/1.jpg``, and ``photos/1.jpg`` to ``1.jpg``).

        Parameters
        ----------
        images : path-like
            The image folder.
        tags : "auto" or path-like
            As in `read_tags`.
        image_column, tags_column, separator : str, optional
            As in `read_tags`.

        Returns
        -------
        Corpus
            In the order of the tag file. Rows without an image and images without a row are listed, not an error.

        Raises
        ------
        DataError
            If there is no such folder, or no image in it.
        TagFileError
            If the tags cannot be understood, a name fits several images, or none of the names fits any.
        """
        folder = Path(images)
        if not folder.is_dir():
            raise DataError(f"There is no image folder {folder}. Give the folder that the tags belong to.")
        paths = find_images(folder)
        if not paths:
            raise DataError(f"There are no images in the folder {folder}, nor in its sub-folders.")
        records = read_tags(tags, folder, image_column=image_column, tags_column=tags_column, separator=separator)
        files = ImageNames(folder, paths)
        found: list[tuple[Path, TagRecord]] = []
        missing: list[str] = []
        for row in records:
            path = files.find(row.image)
            if path is None:
                missing.append(row.image)
            else:
                found.append((path, row))
        if not found:
            example = missing[0] if missing else "nothing"
            raise TagFileError(
                f"None of the {len(records)} images named by the tags is among the {len(paths)} in {folder}: "
                f"the tags name '{example}', the folder has '{paths[0].relative_to(folder).as_posix()}'. "
                "Check the image folder, and the column of file names (--image-column)."
            )
        rows = _one_row_a_file(found)
        untagged = [path.relative_to(folder).as_posix() for path in paths if path not in rows]
        return cls._of_records(list(rows), list(rows.values()), missing, untagged)

    @classmethod
    def of(
        cls,
        images: Sequence[ImageLike],
        names: Sequence[str],
        tags: Sequence[Iterable[str]],
        splits: Sequence[str | None] | None = None,
    ) -> Self:
        """Make a corpus of images and lists of tags side by side; a tag written ``-beach`` is a negative.

        Raises
        ------
        ShapeError
            If the lists differ in length.
        DataError
            If the tags of an image are not a list of texts.
        """
        splits = [None] * len(images) if splits is None else splits
        if not len(images) == len(names) == len(tags) == len(splits):
            raise ShapeError(
                f"There are {len(images)} images, {len(names)} names, tags of {len(tags)} and splits of {len(splits)}; "
                "expected as many of each."
            )
        for given in tags:
            if isinstance(given, str):
                raise DataError(f"The tags of an image are the text '{given}'; expected a list, such as ['{given}'].")
        rows = [record(name, given, split_name(s)) for name, given, s in zip(names, tags, splits, strict=True)]
        return cls._of_records(list(images), rows, [], [])

    @classmethod
    def _of_records(
        cls, images: Sequence[ImageLike], rows: Sequence[TagRecord], missing: list[str], untagged: list[str]
    ) -> Self:
        return cls(
            images=list(images),
            names=[row.image for row in rows],
            tags=[row.tags for row in rows],
            negatives=[row.negatives for row in rows],
            splits=[row.split for row in rows],
            missing=missing,
            untagged=untagged,
        )

    @classmethod
    def read_names(
        cls,
        tags: str | os.PathLike[str],
        *,
        image_column: str | None = None,
        tags_column: str | None = None,
        separator: str | None = None,
    ) -> Self:
        """Read a table of tags alone, for images that are known only by name or number; no image is looked for.

        The rows of one image are joined: one row a pair of image and tag will do. Splits are those of the tags: an
        image with tags in two splits has an entry in each.

        Parameters
        ----------
        tags : path-like
            A CSV, TSV or JSON-lines file.
        image_column, tags_column, separator : str, optional
            As in `read_tags`.

        Raises
        ------
        TagFileError
            If there is no such file, or it cannot be understood.
        """
        table = read_tag_table(tags, image_column=image_column, tags_column=tags_column, separator=separator)
        rows = merged_by_split(table)
        return cls._of_records([row.image for row in rows], rows, [], [])

    def __len__(self) -> int:
        return len(self.images)

    def subset(self, indices: Iterable[int]) -> Self:
        """Give the images at some positions, in that order."""
        chosen = [int(i) for i in indices]
        return replace(self, **{name: [getattr(self, name)[i] for i in chosen] for name in _PER_IMAGE})

    def select(self, split: str) -> Self:
        """Give the images of one split.

        Parameters
        ----------
        split : str
            "train", "valid" (or "validation", "val", "dev"), "test", another name that the tag file has, or "all".

        Raises
        ------
        UnknownNameError
            If no image is in that split; the message lists the splits there are.
        """
        wanted = split_name(split)
        if wanted == "all":
            return self
        chosen = [i for i, own in enumerate(self.splits) if own is not None and own == wanted]
        if not chosen:
            counts = Counter(own for own in self.splits if own is not None)
            there = ", ".join(f"'{name}' ({count} images)" for name, count in sorted(counts.items()))
            raise UnknownNameError(
                f"No image is in the split '{split}'. "
                + (f"The tags name these: {there}; or 'all'." if there else "The tags name no splits: use 'all'.")
            )
        return self.subset(chosen)

    def without_splits(self) -> Self:
        """Give the same images with nothing said of splits."""
        return replace(self, splits=[None] * len(self))

    def warnings(self) -> list[str]:
        """Say, in a line each, what of the tags and of the images did not meet: nothing where all did."""
        lines = []
        if self.missing:
            lines.append(f"Tags name {_some(self.missing)} not in the image folder; left out.")
        if self.untagged:
            lines.append(f"The image folder has {_some(self.untagged)} that the tags do not name; left out.")
        return lines

    def holdout(self, share: float, seed: int) -> tuple[Self, Self]:
        """Part the images at random.

        Parameters
        ----------
        share : float
            Of the images that go to the second part; rounded, but at least one where there are two or more images
            and the share is above 0.
        seed : int
            The same seed gives the same parts.

        Returns
        -------
        tuple of Corpus
            The images to learn from, and those held out, each in the order of the corpus.
        """
        if not 0 <= share < 1:
            raise UserError(f"share is {share!r}; expected 0 or more and below 1.")
        n = len(self)
        held = min(max(round(share * n), int(share > 0)), max(n - 1, 0))
        order = np.random.default_rng(seed).permutation(n)
        return self.subset(np.sort(order[held:])), self.subset(np.sort(order[:held]))


def _some(names: Sequence[str]) -> str:
    """Count images, with an example."""
    return f"{len(names):,} image{'s' if len(names) > 1 else ''} (such as '{names[0]}')"


def _one_row_a_file(found: Sequence[tuple[Path, TagRecord]]) -> dict[Path, TagRecord]:
    """Join the rows that name one file in different ways."""
    rows: dict[Path, TagRecord] = {}
    for path, row in found:
        first = rows.get(path)
        rows[path] = row if first is None else merged([first, row._replace(image=first.image)])[0]
    return rows
