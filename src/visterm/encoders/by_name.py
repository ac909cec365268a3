"""Encoders that open no image: rows of files, of data sets and in memory, and numbers of images."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import as_csr, finite_rows, stack_rows
from visterm.core.errors import DataError, EncoderMismatchError, ShapeError, StorageError, UserError
from visterm.core.learned import FILE_NAME, HASH, Kind, Listed, Text, Whole
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.types import Ints, Matrix
from visterm.core.wording import count_of
from visterm.data.data_sets import ROW, is_data_set, read_data_set
from visterm.data.feature_files import FeatureTable, read_features
from visterm.data.image_folders import PathsByEnd, name_key
from visterm.encoders.contract import AnyEncoder, AnyImages, Encoded, name_of

ROWS_PER_READ = 4096  # Number of rows that are read at a time to hash a file


@dataclass(kw_only=True, eq=False, repr=False)
class Precomputed(AnyEncoder):
    """Feature rows from a file that another program wrote; see `read_features` for the formats.

    The row of an image is the row with the same path, or the only row where one of both paths ends with the other
    (``1.jpg`` and ``photos/1.jpg``). Images without a row are skipped and listed. All used rows are read into memory:
    only features written by ``visterm encode`` are streamed. You can add rows of new images, made by the same network,
    to the file. The rows of the images that the encoder was fitted on must not change: this is checked when the file is
    opened, and the encoder's fingerprint depends on them.

    Parameters
    ----------
    path : path-like
        The features: ``.npy``, ``.npz``, ``.parquet`` or svmlight, or a folder of Parquet files.
    names : path-like, optional
        A text file with the name of each row, one per line. None: ``NAME.names.txt`` next to ``NAME.npy``; for Parquet,
        a column.
    column, name_column : str, optional
        Columns of a Parquet file. None: `read_features` chooses them.

    Attributes
    ----------
    names_ : list of str
        Names, in the file, of the images that the encoder was fitted on.
    rows_sha256_ : str
        Hash of the rows of these images.
    features_path_, names_path_ : str
        Absolute paths at `fit` (empty without names). Files may move: `path` and `names` are tried first.
    """

    reads: ClassVar[Literal["pixels", "names", "rows"]] = "names"
    argument = "path"
    location_attributes = ("features_path_", "names_path_")

    learned: ClassVar[dict[str, Kind]] = {
        "names_": Listed(Text()),
        "rows_sha256_": Text(pattern=HASH),
        "features_path_": Text(pattern=FILE_NAME),
        "names_path_": Text(pattern=FILE_NAME),
    }

    path: str | os.PathLike[str] | None = None
    names: str | os.PathLike[str] | None = None
    column: str | None = None
    name_column: str | None = None

    def unknown_images(self, images: AnyImages) -> dict[int, str]:
        """Return the images that have no row in the file, by position, with advice.

        Raises DataError if the name of an image fits several rows, or the names of two images fit the same row.
        """
        table = self._open()
        reason = (
            f"not among the {count_of(len(table.names), 'image')} of {table.file} (such as '{table.names[0]}'): "
            "compute its features with the same network and add its row to the file, or fit with an encoder that "
            "looks at pixels"
        )
        return dict.fromkeys(np.flatnonzero(table.rows_of(images) < 0).tolist(), reason)

    def _check_learned(self) -> None:
        if not self.names_:
            raise DataError("names_ is empty; expected at least 1 image")

    def _fit_images(self, images: AnyImages, skip_unreadable: bool, progress: Progress) -> None:
        table = self._open()
        self.refuse_unknown(images, only_if_all=skip_unreadable)
        positions = table.rows_of(images)
        rows = np.array(list(dict.fromkeys(positions[positions >= 0].tolist())), np.int64)
        with reported(progress, "read features", len(rows)):
            self.rows_sha256_ = table.digest(rows, progress)
        self.names_ = [table.names[row] for row in rows]
        self.features_path_ = os.path.abspath(table.file)
        self.names_path_ = "" if self.names is None else os.path.abspath(self.names)

    def _encode_images(self, images: AnyImages, progress: Progress) -> Encoded:
        table = self._open()
        rows = table.take(table.rows_of(images))
        progress.advance(len(images))
        return Encoded(rows, np.arange(len(images)), [])

    def _open(self) -> _OpenFeatures:
        """Read the file at first use, and again if a parameter that selects it has changed."""
        rows_sha256 = getattr(self, "rows_sha256_", None)
        return self._cached(self._read, self.path, self.names, self.column, self.name_column, rows_sha256)

    def _read(self, *_: object) -> _OpenFeatures:
        """Read the file, and check that it still has the rows that the encoder was fitted on."""
        path, names = self._find()
        table = read_features(path, names=names, column=self.column, name_column=self.name_column)
        features = _OpenFeatures(table, path)
        rows = features.rows_of(self.names_ if hasattr(self, "rows_sha256_") else [])
        if (rows < 0).any():
            name = self.names_[int(np.argmin(rows))]
            raise EncoderMismatchError(
                f"{path} no longer has a row of '{name}', on which this encoder was fitted. You can add rows, but "
                "not remove the rows of training images. Put them back, or fit again."
            )
        if len(rows) and features.digest(rows) != self.rows_sha256_:
            raise EncoderMismatchError(
                f"{path} has other rows than those that this encoder was fitted on ({len(rows):,} images, such "
                f"as '{self.names_[0]}'). Put the old rows back, or fit again."
            )
        return features

    def _find(self) -> tuple[str, str | None]:
        """Return the paths of the features and their names: the parameters or, if missing, those of `fit`."""
        if self.path is None:
            advice = "Pass `encoder` precomputed:FEATURES.npy, or `encoder.path`=FEATURES.npy."
            raise UserError("precomputed needs a file of features.", setting="path", advice=advice)
        paths = (os.fspath(self.path), None if self.names is None else os.fspath(self.names))
        if not hasattr(self, "features_path_") or os.path.exists(paths[0]):
            return paths

        if os.path.exists(self.features_path_):
            return self.features_path_, self.names_path_ or None
        tried_paths = dict.fromkeys([os.path.abspath(paths[0]), self.features_path_])
        raise StorageError(
            f"The features that this encoder was fitted with are not at {' nor at '.join(tried_paths)}. Put them "
            "back, or in Python set their new path: encoder.set_params(path=...)."
        )

    def _fingerprint_params(self, params: dict[str, object]) -> dict[str, object]:
        return params | {"path": None, "names": None} if hasattr(self, "rows_sha256_") else params


class _OpenFeatures:
    """An open file of features whose rows are looked up by name."""

    def __init__(self, table: FeatureTable, path: str | os.PathLike[str]) -> None:
        self.names, self._rows = table
        self.file = os.fspath(path)
        self._row_of_key = {name_key(name): row for row, name in enumerate(self.names)}
        self._paths_by_end = PathsByEnd(self._row_of_key)

    def rows_of(self, images: AnyImages) -> Ints:
        """Return the row of each image; -1 for images without a row."""
        rows = np.full(len(images), -1, np.int64)
        name_of_row: dict[int, str] = {}
        for i, image in enumerate(images):
            name = name_of(image)
            key = name_key(name)
            if key in self._row_of_key:
                rows[i] = self._row_of_key[key]
                continue
            matches = self._paths_by_end.paths_matching(key)
            if len(matches) > 1:
                raise DataError(
                    f"The image '{name}' may be {len(matches)} rows of {self.file}: {', '.join(matches[:3])}"
                    f"{', …' if len(matches) > 3 else ''}. Use its path in the file."
                )
            if matches:
                row = self._row_of_key[matches[0]]
                first_path, second_path = (f"/{path}" for path in (name_of_row.setdefault(row, name), name))
                if not first_path.endswith(second_path) and not second_path.endswith(first_path):
                    raise DataError(
                        f"The images '{name_of_row[row]}' and '{name}' would both have the row '{self.names[row]}' of "
                        f"{self.file}. Write longer paths into the file, to distinguish the images."
                    )
                rows[i] = row
        return rows

    def take(self, rows: Ints) -> Matrix:
        """Return rows as float32. Raises DataError for rows that are not finite."""
        values = self._block(rows)
        is_finite = finite_rows(values)
        if not is_finite.all():
            raise DataError(
                f"The features of '{self.names[rows[np.argmin(is_finite)]]}' in {self.file} have NaN, infinity or a "
                "number too large for float32; expected finite numbers."
            )
        return values

    def digest(self, rows: Ints, progress: Progress = SILENT) -> str:
        """Return the SHA-256 of rows as float32, in hex."""
        digest = hashlib.sha256(str(self._rows.shape[1]).encode())
        for start in range(0, len(rows), ROWS_PER_READ):
            block = rows[start : start + ROWS_PER_READ]
            values = self._block(block)
            if isinstance(values, np.ndarray):
                digest.update(values.data)
            else:
                for part in (values.indptr.astype(np.int64), values.indices.astype(np.int64), values.data):
                    digest.update(np.ascontiguousarray(part).data)
            progress.advance(len(block))
        return digest.hexdigest()

    def _block(self, rows: Ints) -> Matrix:
        values = self._rows[rows]
        if sp.issparse(values):
            return as_csr(values)
        with np.errstate(over="ignore"):  # numbers that are too large become infinity
            return np.ascontiguousarray(values, dtype=np.float32)


class DataSetRows(AnyEncoder):
    """Takes the row of an image from the file in its name: ``delicious-test.arff#17`` is the 17th row.

    Rows of another file, such as test rows, are encoded if it has the same features; a svmlight file may have fewer.
    """

    reads: ClassVar[Literal["pixels", "names", "rows"]] = "names"
    learned: ClassVar[dict[str, Kind]] = {"width_": Whole(least=1), "features_": Listed(Text())}

    width_: int
    features_: list[str]

    def unknown_images(self, images: AnyImages) -> dict[int, str]:
        """Return the images that are no row of a data set, by position, with advice."""
        return {i: reason for i, image in enumerate(images) if (reason := _row_problem(name_of(image)))}

    def _fit_images(self, images: AnyImages, skip_unreadable: bool, progress: Progress) -> None:
        self.refuse_unknown(images, only_if_all=skip_unreadable)
        files = dict.fromkeys(name.rpartition(ROW)[0] for name in map(name_of, images) if not _row_problem(name))
        data = [read_data_set(file) for file in files]
        self.features_, self.width_ = data[0].features, max(one.X.shape[1] for one in data)

    def _encode_images(self, images: AnyImages, progress: Progress) -> Encoded:
        parts, first, rows = [as_csr(np.empty((0, self.width_)))], {}, []
        for file, _, number in (name_of(image).rpartition(ROW) for image in images):
            if file not in first:
                first[file] = sum(part.shape[0] for part in parts)
                parts.append(self._features(file))
            rows.append(first[file] + int(number) - 1)
        progress.advance(len(images))
        return Encoded(stack_rows(parts)[rows], np.arange(len(images)), [])

    def _features(self, file: str) -> sp.csr_array:
        data = read_data_set(file)
        if data.features != self.features_ or data.X.shape[1] > self.width_:
            raise ShapeError(
                f"{file} has {data.X.shape[1]:,} features, others than the {self.width_:,} of the fit.",
                advice="Use a file of the same data set.",
            )
        return sp.csr_array((data.X.data, data.X.indices, data.X.indptr), shape=(data.X.shape[0], self.width_))


def _row_problem(name: str) -> str:
    """Return why a name is no row of a data set; empty if it is one."""
    file, _, row = name.rpartition(ROW)
    if not (is_data_set(file) and row.isascii() and row.isdigit() and int(row)):
        return f"not a row of a data set; expected a name such as delicious-test.arff{ROW}17"
    n_rows = read_data_set(file).X.shape[0]
    return "" if int(row) <= n_rows else f"not among the {n_rows:,} rows of {file}"


class FeatureRows(AnyEncoder):
    """Takes features in memory as they are: `visterm.fit` uses it for a matrix in place of photos.

    To tag, pass a row of the same features for each image.

    Attributes
    ----------
    width_ : int
        Number of features.
    """

    reads: ClassVar[Literal["pixels", "names", "rows"]] = "rows"
    learned: ClassVar[dict[str, Kind]] = {"width_": Whole(least=1)}

    width_: int

    def _fit_images(self, images: AnyImages, skip_unreadable: bool, progress: Progress) -> None:
        self.width_ = _matrix_of(images).shape[1]

    def _encode_images(self, images: AnyImages, progress: Progress) -> Encoded:
        rows = _matrix_of(images) if len(images) else np.empty((0, self.width_), np.float32)
        if rows.shape[1] != self.width_:
            problem = f"The rows have {rows.shape[1]:,} features."
            raise ShapeError(problem, setting="images", value=rows.shape, expected=f"{self.width_:,}, as in the fit")
        progress.advance(len(images))
        return Encoded(rows, np.arange(len(images)), [])


def is_row(image: object) -> bool:
    """Return whether an image is a row of features, as `split_rows` returns them."""
    return sp.issparse(image) or (isinstance(image, np.ndarray) and image.ndim == 1)


def _matrix_of(rows: AnyImages) -> Matrix:
    """Return rows of features as a matrix. Raises DataError if they are anything else, or not finite."""
    if not all(map(is_row, rows)):
        problem = "The encoder 'rows' takes features, not photos, names or single numbers."
        raise DataError(problem, setting="images", expected="a matrix, (n_images, n_features)")
    matrix = as_csr(sp.vstack(rows)) if sp.issparse(rows[0]) else np.array(rows, np.float32)
    if not (is_finite := finite_rows(matrix)).all():
        advice = "Leave these rows out, or fill in the missing features."
        raise DataError(f"Row {np.argmin(is_finite)} has NaN or infinity.", setting="images", advice=advice)
    return matrix


class Ids(AnyEncoder):
    """Numbers the images that it is fitted on; the row of an image is the row of the identity matrix with its number.

    An embedding model then learns a separate vector for each image, as in the VSE-ens paper and in recommenders, where
    images are users and tags are items. An image may be named by a text, a path or a whole number; 7 and ``"7"`` are
    the same image. Images that were not passed to `fit` have no row.

    Attributes
    ----------
    names_ : list of str
        The name of each row; repeated images have a single row.

    References
    ----------
    Guo, Zhai, Yuan, Liu, Wang: VSE-ens: Visual-semantic embeddings with efficient negative sampling. AAAI 2018.
    """

    reads: ClassVar[Literal["pixels", "names", "rows"]] = "names"
    by_number = True

    learned: ClassVar[dict[str, Kind]] = {"names_": Listed(Text())}

    names_: list[str]

    @property
    def width(self) -> int | None:
        """One column per image."""
        return len(self.names_)

    def _check_learned(self) -> None:
        if len(set(self.names_)) < len(self.names_):
            raise DataError("names_ has duplicate names")

    def _fit_images(self, images: AnyImages, skip_unreadable: bool, progress: Progress) -> None:
        self.names_ = list(dict.fromkeys(map(name_of, images)))

    def unknown_images(self, images: AnyImages) -> dict[int, str]:
        """Return the images that the encoder was not fitted on, by position, with advice."""
        numbers = self._numbers_by_name()
        reason = (
            f"not among the {len(numbers):,} images that this run was fitted on: it knows images by number only; fit "
            "again with the tags of this image, or with an encoder that looks at pixels"
        )
        return {i: reason for i, image in enumerate(images) if name_of(image) not in numbers}

    def _encode_images(self, images: AnyImages, progress: Progress) -> Encoded:
        numbers = self._numbers_by_name()
        columns = np.empty(len(images), np.int32)
        for row, image in enumerate(images):
            columns[row] = numbers[name_of(image)]
            progress.advance()
        n = len(images)
        rows = sp.csr_array((np.ones(n, np.float32), columns, np.arange(n + 1)), shape=(n, len(numbers)))
        return Encoded(rows, np.arange(n), [])

    def _numbers_by_name(self) -> dict[str, int]:
        """Return the number of each name, computed at first use after loading: only the names are saved."""
        return self._cached(lambda names: {name: number for number, name in enumerate(names)}, self.names_)
