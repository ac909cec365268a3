"""Using a features folder instead of its images: rows without decoding, and the corpus with its tags."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, Unpack

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import stack_rows
from visterm.core.errors import DataError, StorageError, TagFileError
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.remote import as_path
from visterm.core.types import Matrix, Skipped
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.data.feature_shards import read_shard, read_shard_index
from visterm.data.image_folders import Unsearched, find_images
from visterm.data.tag_files import find_tags
from visterm.data.tag_formats.record import TagsFound, merged_by_image, record
from visterm.data.tag_formats.tables import TableOptions, read_table
from visterm.encoders.contract import AnyEncoder, Encoded
from visterm.features.folder import Contents, FeatureFolder
from visterm.features.remote_folder import feature_folder


class StoredRow(NamedTuple):
    """The name and the hash of an image, and the position of its row: number of the shard, and row in the shard."""

    name: str
    sha256: str
    shard: int
    row: int


class FolderRows:
    """The rows of a features folder with these `contents`; shards are checked now, and read when needed.

    `stored` lists the images with a row, in the order of the folder, and `intact` the numbers of undamaged shards.
    Raises CorruptFileError if a shard is missing or was changed; with `spare_damaged` the shard is skipped instead.
    """

    def __init__(self, folder: FeatureFolder, contents: Contents, *, spare_damaged: bool = False) -> None:
        self._folder, self._contents = folder, contents
        self.intact: list[int] = []
        for number, entry in enumerate(contents.shards):
            if folder.is_intact(entry):
                self.intact.append(number)
            elif not spare_damaged:
                raise folder.damaged(entry)

        sources = [folder.source(contents.shards[number]) for number in self.intact]
        self.stored = [
            StoredRow(name, digest, number, row)
            for number, (names, sha256) in zip(self.intact, folder.read_each(read_shard_index, sources), strict=True)
            for row, (name, digest) in enumerate(zip(names, sha256, strict=True))
        ]

    def take(self, requested: Sequence[StoredRow]) -> Matrix:
        """Return the rows of images in the given order; each shard is read once."""
        shards = np.array([row.shard for row in requested], np.int64)
        rows = np.array([row.row for row in requested], np.int64)
        order = np.argsort(shards, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(shards[order])) + 1) if requested else []
        files = map(self._folder.local, [self._contents.shards[shards[part[0]]] for part in parts])
        blocks = (read_shard(file).rows[rows[part]] for file, part in zip(files, parts, strict=True))
        shape = (len(requested), self._contents.width)
        if self._contents.layout == "dense":
            dense = np.empty(shape, np.float32)
            for part, block in zip(parts, blocks, strict=True):
                dense[part] = block
            return dense
        return stack_rows([*blocks])[np.argsort(order)] if parts else sp.csr_array(shape, dtype=np.float32)


class Features:
    """The rows of a features folder by image; see `Corpus.encoded`.

    Raises StorageError if there is no features folder, or its job is not finished; CorruptFileError if a file is
    missing or was changed.

    Parameters
    ----------
    path : path-like
        A folder written by `visterm encode`.

    Attributes
    ----------
    images : Path
        The image folder at the time of encoding.
    contents : Contents
        The contents according to the manifest.
    fingerprint : str
        Fingerprint of the fitted encoder: rows of different encoders cannot be combined.
    requested : str
        Fingerprint of the requested encoder before it was fitted.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._folder = folder = feature_folder(path)
        self.contents = contents = finished_contents(folder)
        self.path, self.images = folder.path, as_path(contents.images)
        self.fingerprint, self.requested = contents.fingerprint, contents.asked
        self._rows = FolderRows(folder, contents)
        self._stored = {row.name: row for row in self._rows.stored}
        self._skipped = {item.image: item for item in folder.skipped()}

    def __len__(self) -> int:
        return len(self._stored)

    @cached_property
    def encoder(self) -> AnyEncoder:
        """The fitted encoder that made the rows, set to use all cores; loaded on first use."""
        return self._folder.load_encoder(None)[0]

    def encode(self, images: Sequence[Any], *, progress: Progress = SILENT) -> Encoded:
        """Return the rows of images without opening them; images are paths in the image folder, as in the corpus.

        Raises DataError if an image is not in the folder; CorruptFileError if a shard is missing or was changed.
        """
        with reported(progress, "read features", len(images)):
            entries = [self._look_up(image) for image in images]
            positions = [n for n, row in enumerate(entries) if isinstance(row, StoredRow)]
            skipped = [
                Skipped(str(image), row.reason)
                for image, row in zip(images, entries, strict=True)
                if isinstance(row, Skipped)
            ]
            rows = self._rows.take([row for row in entries if isinstance(row, StoredRow)])
            progress.advance(len(images))
        return Encoded(rows, np.array(positions, np.int64), skipped)

    def sha256_of(self, image: str | os.PathLike[str]) -> str:
        """Return the hash of an image's file when it was encoded. Raises DataError if it has no row."""
        row = self._look_up(image)
        if isinstance(row, Skipped):
            raise self._unknown(row.image)
        return row.sha256

    def corpus(self, tags: str | os.PathLike[str] | None = None, **columns: Unpack[TableOptions]) -> Corpus:
        """Join the images with their tags; the image folder is not read if the tags are in a table.

        `tags` and the columns are as in `Corpus.read`; None means all images, without tags. Raises TagFileError as
        `Corpus.read` does, and if the tags must be read from an image folder that no longer exists.
        """
        names = sorted([*self._stored, *self._skipped])
        if tags is None:
            tags_found = TagsFound([record(name, [], None) for name in names], [])
        elif not isinstance(tags, str | os.PathLike) or as_path(tags).is_file():
            tags_found = TagsFound(merged_by_image(read_table(tags, **columns)), [])
        elif self.images.is_dir():
            unsearched = Unsearched()
            tags_found = find_tags(tags, self.images, find_images(self.images, unsearched=unsearched), **columns)
            tags_found = tags_found._replace(skipped=[*unsearched.closed, *tags_found.skipped])
        else:
            raise TagFileError(
                f"The image folder of {self.path}, {self.images}, is no longer there, so no tags can be found in it.",
                setting="tags", value=tags, advice="Name a table of tags as `tags`.",
            )  # fmt: skip
        return Corpus.joined(self.images, [self.images / name for name in names], tags_found, encoded=self)

    def _look_up(self, image: str | os.PathLike[str]) -> StoredRow | Skipped:
        """Return the position of an image's row, or why it was skipped; DataError if it is not in this folder."""
        path = as_path(image)
        name = path.relative_to(self.images).as_posix() if path.is_relative_to(self.images) else path.as_posix()
        row = self._skipped.get(name) or self._stored.get(name)
        if row is None:
            raise self._unknown(name)
        return row

    def _unknown(self, name: str) -> DataError:
        return DataError(
            f"The image '{name}' is not among the {count_of(len(self._stored), 'image')} of {self.path}. "
            "Encode it first: run the command of visterm encode that made it again."
        )


def finished_contents(folder: FeatureFolder) -> Contents:
    """Read the contents of a features folder, after completing an interrupted change.

    Raises StorageError if it is not a features folder, or its job is not finished; CorruptFileError if a file is
    missing or was changed.
    """
    contents: Contents | None = folder.contents()
    if contents is not None:
        return contents
    if folder.is_begun():
        raise StorageError(
            f"{folder.path} is not finished: visterm encode was stopped before the last photo, or is "
            "still running. Run the same command again to continue."
        )
    raise StorageError(f"{folder.path} is not a features folder. Make one with: visterm encode IMAGES -o FEATURES")
