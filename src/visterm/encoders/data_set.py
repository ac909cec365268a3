"""Feature rows of data sets that hold features and tags in one file; no image is opened."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from visterm.core.checks import as_csr, stack_rows
from visterm.core.errors import ShapeError
from visterm.core.learned import Kind, Listed, Text, Whole
from visterm.core.progress import Progress
from visterm.core.types import Matrix
from visterm.data.data_sets import ROW, is_data_set, read_data_set_again
from visterm.encoders.contract import AnyEncoder, AnyImages, Encoded, name_of


class DataSetRows(AnyEncoder):
    """Takes the row of an image from the file that its name gives: ``delicious-test.arff#17`` is the 17th row.

    The file may be another one than those that the encoder was fitted on, if it has the same features: the test rows of
    a set, for example. Fitting only records which features these are. The files are read into memory.

    Attributes
    ----------
    n_features_ : int
    features_ : list of str
        Names of the features; empty if the file has none (svmlight). A svmlight file may have fewer features.
    """

    reads: ClassVar[Literal["pixels", "names"]] = "names"

    learned: ClassVar[dict[str, Kind]] = {"n_features_": Whole(least=1), "features_": Listed(Text())}

    n_features_: int
    features_: list[str]

    @property
    def width(self) -> int | None:
        """Number of features."""
        return self.n_features_

    def unknown_images(self, images: AnyImages) -> dict[int, str]:
        """Return the images that are no row of a data set, by position, with advice."""
        return {i: reason for i, image in enumerate(images) if (reason := _problem(name_of(image)))}

    def _fit_images(self, images: AnyImages, skip_unreadable: bool, progress: Progress) -> None:
        self.refuse_unknown(images, only_if_all=skip_unreadable)
        unknown = self.unknown_images(images)
        names = [name_of(image) for i, image in enumerate(images) if i not in unknown]
        files = list(dict.fromkeys(_place(name)[0] for name in names))
        self.features_ = read_data_set_again(files[0]).features
        self.n_features_ = max(read_data_set_again(file).X.shape[1] for file in files)

    def _encode_images(self, images: AnyImages, progress: Progress) -> Encoded:
        rows_of: dict[str, list[tuple[int, int]]] = {}
        for position, image in enumerate(images):
            file, row = _place(name_of(image))
            rows_of.setdefault(file, []).append((position, row))
        parts = [self._rows(file)[[row for _, row in rows]] for file, rows in rows_of.items()]
        positions = np.array([position for rows in rows_of.values() for position, _ in rows], np.int64)
        stacked = stack_rows(parts) if parts else as_csr(np.empty((0, self.n_features_), np.float32))
        progress.advance(len(images))
        return Encoded(stacked[np.argsort(positions)], np.arange(len(images)), [])

    def _rows(self, file: str) -> Matrix:
        """Return the features of a data set, with as many columns as at `fit`."""
        data = read_data_set_again(file)
        n_features = data.X.shape[1]
        if data.features != self.features_ or n_features > self.n_features_:
            raise ShapeError(
                f"{file} has {n_features:,} features, others than the {self.n_features_:,} that this encoder was "
                "fitted on. Use a file of the same data set."
            )
        rows = data.X.copy()
        rows.resize(data.X.shape[0], self.n_features_)
        return rows


def _place(name: str) -> tuple[str, int]:
    """Return the file of an image and its row, counted from 0."""
    file, _, row = name.rpartition(ROW)
    return file, int(row) - 1


def _problem(name: str) -> str:
    """Return why a name is no row of a data set; empty if it is one."""
    file, _, row = name.rpartition(ROW)
    if not (is_data_set(file) and row.isascii() and row.isdigit() and int(row)):
        return f"not a row of a data set: expected a name such as delicious-test.arff{ROW}17"
    n_rows = read_data_set_again(file).X.shape[0]
    return "" if int(row) <= n_rows else f"not among the {n_rows:,} rows of {file}"
