"""Feature rows of data sets that hold features and tags in one file; no image is opened."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from visterm.core.checks import as_csr, stack_rows
from visterm.core.errors import ShapeError
from visterm.core.learned import Kind, Listed, Text, Whole
from visterm.core.progress import Progress
from visterm.core.types import Matrix
from visterm.data.data_sets import ROW, is_data_set, read_data_set
from visterm.encoders.contract import AnyEncoder, AnyImages, Encoded, name_of


class DataSetRows(AnyEncoder):
    """Takes the row of an image from the file in its name: ``delicious-test.arff#17`` is the 17th row.

    Fitting only records what the features are. Rows of another file are encoded, too, if it has the same features, such
    as the test rows of a set. A svmlight file, which names no features, may have fewer.
    """

    reads: ClassVar[Literal["pixels", "names"]] = "names"
    learned: ClassVar[dict[str, Kind]] = {"width_": Whole(least=1), "features_": Listed(Text())}

    width_: int
    features_: list[str]

    def unknown_images(self, images: AnyImages) -> dict[int, str]:
        """Return the images that are no row of a data set, by position, with advice."""
        return {i: reason for i, image in enumerate(images) if (reason := _problem(name_of(image)))}

    def _fit_images(self, images: AnyImages, skip_unreadable: bool, progress: Progress) -> None:
        self.refuse_unknown(images, only_if_all=skip_unreadable)
        files = dict.fromkeys(name.rpartition(ROW)[0] for name in map(name_of, images) if not _problem(name))
        data = [read_data_set(file) for file in files]
        self.features_, self.width_ = data[0].features, max(one.X.shape[1] for one in data)

    def _encode_images(self, images: AnyImages, progress: Progress) -> Encoded:
        positions: dict[str, list[int]] = {}
        for position, image in enumerate(images):
            positions.setdefault(name_of(image).rpartition(ROW)[0], []).append(position)
        rows = {file: [int(name_of(images[i]).rpartition(ROW)[2]) - 1 for i in at] for file, at in positions.items()}
        parts = [self._features(file)[rows[file]] for file in positions]
        order = np.argsort(np.array([i for at in positions.values() for i in at], np.int64))
        progress.advance(len(images))
        stacked = stack_rows(parts)[order] if parts else as_csr(np.empty((0, self.width_)))
        return Encoded(stacked, np.arange(len(images)), [])

    def _features(self, file: str) -> Matrix:
        data = read_data_set(file)
        if data.features != self.features_ or data.X.shape[1] > self.width_:
            problem = f"{file} has {data.X.shape[1]:,} features, others than the {self.width_:,} of the fit."
            raise ShapeError(problem, advice="Use a file of the same data set.")
        rows = data.X.copy()
        rows.resize(rows.shape[0], self.width_)
        return rows


def _problem(name: str) -> str:
    """Return why a name is no row of a data set; empty if it is one."""
    file, _, row = name.rpartition(ROW)
    if not (is_data_set(file) and row.isascii() and row.isdigit() and int(row)):
        return f"not a row of a data set; expected a name such as delicious-test.arff{ROW}17"
    n_rows = read_data_set(file).X.shape[0]
    return "" if int(row) <= n_rows else f"not among the {n_rows:,} rows of {file}"
