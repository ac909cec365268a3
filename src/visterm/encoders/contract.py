"""The base class of all encoders, of pixels or names: one row per image, and a fingerprint of the output."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import finite_rows, row_lengths
from visterm.core.errors import DataError, ImageError, UserError
from visterm.core.estimator import Estimator, check_fitted
from visterm.core.learned import Flag, Kind
from visterm.core.packing import json_params
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.tables import ENCODERS
from visterm.core.types import Doubles, Floats, Ints, Matrix, Skipped
from visterm.core.wording import count_of
from visterm.data.frames import listed

if TYPE_CHECKING:
    from sklearn.utils import Tags

T = TypeVar("T")
AnyImages: TypeAlias = "Sequence[Any]"  # Images as an encoder accepts them: paths, pixels, names or numbers

NOT_FINITE = "no finite features: the encoder returned NaN or infinity"  # A reason to skip an image


class Encoded(NamedTuple):
    """Feature rows and the images they belong to."""

    rows: Matrix  # array or CSR of float32, shape (n_readable, n_features)
    kept: Ints  # shape (n_readable,): the position of each row's image in the input
    skipped: list[Skipped]  # Images that could not be read, or that an encoder of names does not know


class AnyEncoder(Estimator, ABC):
    """Turns images into feature rows, from pixels (see `Encoder`) or from names (see `Ids`).

    Learned attributes end in ``_`` and are saved with the run. Parameters that do not change the output are named in
    `speed_params`.
    """

    reads: ClassVar[Literal["pixels", "names", "rows"]] = "pixels"
    """What the encoder reads. An encoder of names opens no image and has rows only for images that it knows."""

    by_number: ClassVar[bool] = False  # Whether images are known by number only: rows of the identity matrix

    argument: str | None = None  # The parameter that ``--encoder name:argument`` sets
    speed_params: tuple[str, ...] = ("n_jobs", "batch_size")  # Do not change the output; not part of the fingerprint
    test_params: ClassVar[dict[str, object]] = {}  # Parameters of a small instance for the contract tests

    location_attributes: tuple[str, ...] = ()  # Learned locations: saved, not part of the fingerprint
    learned: ClassVar[dict[str, Kind]] = {"fitted_": Flag()}
    """Declares the learned attributes, so that a run's files can be checked; those of base classes are added."""

    @property
    def width(self) -> int | None:
        """Number of columns if it is known after fitting; else None."""
        return None

    @property
    def blocks(self) -> Sequence[int] | None:
        """Widths of the kinds of features that the rows of a fitted encoder consist of; None: a single kind.

        Models that treat kinds separately (`auto`, `jec`, `tagprop`, `two_pass_knn`) use these widths.
        """
        return None

    def fit(
        self, images: AnyImages, y: object = None, *, skip_unreadable: bool = False, progress: Progress | None = None
    ) -> Self:
        """Learn from images; encoders without learned attributes only check their settings.

        Parameters
        ----------
        images : sequence
            Paths, Pillow images or uint8 arrays (height, width, 3), also as a Series or the only column of a DataFrame.
            For an encoder of names: texts, paths or whole numbers.
        y : ignored
        skip_unreadable : bool
            Skip images that cannot be read (`encode` lists them) instead of raising `ImageError`.
        progress : Progress, optional
            Shows each image and step.
        """
        images = listed(images)
        if len(images) == 0:
            raise DataError(f"{type(self).__name__} has no images to learn from; at least 1 is needed.")
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        self._fit_images(images, skip_unreadable, progress or SILENT)
        self.fitted_ = True
        return self

    def fit_transform(self, images: AnyImages, y: object = None, *, progress: Progress | None = None) -> Matrix:
        """Learn from images and encode them, each of which must be readable."""
        return self.fit(images, y, progress=progress).transform(images)

    def check_settings(self) -> None:
        """Check settings and files before any image is read.

        Raises UserError if a setting is out of its range; StorageError if a file that the encoder needs is missing or
        cannot be used.
        """
        self._check_params()

    def check_stored_settings(self) -> None:
        """Raise UserError for invalid settings that were read from a run's files, without opening other files."""
        self._check_params()

    def check_allowed(self) -> None:
        """Raise UserError, before an image is opened, if images would be sent to a server that is not allowed."""

    def transform(self, images: AnyImages) -> Matrix:
        """Encode images: exactly one row per image, in order.

        Raises ImageError if an image cannot be read (`encode` skips and lists such images instead); DataError if an
        encoder of names does not know an image.
        """
        images = listed(images)
        rows, _, skipped = self.encode(images)
        if skipped:
            self.refuse_unknown(images)
            raise ImageError(skipped[0].image, skipped[0].reason)
        if remark := self.remark_on_zeros(rows):
            warnings.warn(remark, stacklevel=2)
        return rows

    def remark_on_zeros(self, rows: Matrix) -> str:
        """Return a sentence about photos whose rows are all zeros; empty if there are none."""
        n_zeros = 0 if self.reads != "pixels" else int((row_lengths(rows) == 0).sum())
        if n_zeros == 0:
            return ""
        n_rows, name = count_of(rows.shape[0], "photo"), ENCODERS.name_of(self)
        problem = f"{n_zeros:,} of {n_rows}: '{name}' sees nothing that sets them apart (rows of zeros)"
        return f"{problem}. More photos to learn from, or another encoder, may help."

    def encode(self, images: AnyImages, *, progress: Progress | None = None) -> Encoded:
        """Encode the images that can be read or, for an encoder of names, are known; return also the skipped images.

        Returns the rows, the positions of their images, and the skipped images with reasons. Raises DataError if pixels
        are passed to an encoder of names.
        """
        images = listed(images)
        if not hasattr(self, "fitted_") and self._learns():
            check_fitted(self)
        self.check_allowed()
        progress = progress or SILENT

        with reported(progress, "encode photos", len(images)):
            unknown = self.unknown_images(images)
            known_positions = np.array([i for i in range(len(images)) if i not in unknown], np.int64)
            progress.advance(len(unknown))
            known_images = [images[i] for i in known_positions] if unknown else images
            rows, kept, skipped = self._encode_images(known_images, progress)

        kept, finite = np.asarray(kept, np.int64), finite_rows(rows)
        not_finite = [Skipped(name_of(known_images[i]), NOT_FINITE) for i in kept[~finite]]
        left_out = [Skipped(name_of(images[i]), reason) for i, reason in unknown.items()]
        return Encoded(
            rows if finite.all() else rows[finite], known_positions[kept[finite]], [*left_out, *skipped, *not_finite]
        )

    def unknown_images(self, images: AnyImages) -> dict[int, str]:
        """Return the images that an encoder of names has no row for, by position, with reasons; {} for pixels.

        A reason completes the sentence "The image ... is": a category, a colon, and advice.
        """
        return {}

    def refuse_unknown(self, images: AnyImages, *, only_if_all: bool = False) -> None:
        """Raise DataError if an image has no row or, with `only_if_all`, if no image has a row.

        If all images are unknown, they are probably the wrong images.
        """
        unknown = self.unknown_images(images)
        n, n_unknown = len(images), len(unknown)
        if n_unknown == 0 or (only_if_all and n_unknown < n):
            return
        first, reason = next(iter(unknown.items()))
        message = f"The image '{name_of(images[first])}' is {reason}."
        raise DataError(f"None of the {n:,} images is known. {message}" if n == n_unknown > 1 else message)

    def _cached(self, make: Callable[..., T], *args: object) -> T:
        """Return ``make(*args)``, cached: call it again only if an array is another object or an argument differs."""
        cache: dict[str, tuple[tuple[object, ...], T]] = self.__dict__.setdefault("_cache", {})
        old_args, result = cache.get(make.__qualname__, ((), None))
        arrays = (np.ndarray, sp.sparray)
        is_same = len(old_args) == len(args) and all(
            old is new or (not isinstance(new, arrays) and old == new) for old, new in zip(old_args, args, strict=True)
        )

        if result is None or not is_same:
            result = make(*args)
            cache[make.__qualname__] = args, result
        return result

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in vars(self).items() if not key.startswith(("_cache", "_opened", "_kept"))}

    @property
    def reads_texts(self) -> bool:
        """Whether a text tower is available that maps texts into the space of the rows (`text_rows`)."""
        return False

    def text_rows(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts, of length 1, shape (n_texts, width); no `fit` is needed.

        A vector does not depend on the other texts. Raises UserError if the encoder has no text tower; StorageError,
        ServiceError or MissingExtraError if the tower is not available.
        """
        raise no_text_tower(ENCODERS.name_of(self))

    @property
    def text_fingerprint(self) -> str:
        """Return a SHA-256 of everything that `text_rows` depends on; raises the same errors."""
        raise no_text_tower(ENCODERS.name_of(self))

    @property
    def fingerprint(self) -> str:
        """Return a hash that identifies the output: of all parameters, learned arrays and networks that affect rows."""
        digest = hashlib.sha256()
        params = {k: v for k, v in json_params(self, ENCODERS).items() if k not in self.speed_params}
        digest.update(json.dumps([type(self).__name__, self._fingerprint_params(params)], sort_keys=True).encode())
        for key, value in sorted(vars(self).items()):
            if not key.endswith("_") or key.startswith("_") or key in self.location_attributes:
                continue
            digest.update(key.encode())
            if isinstance(value, list):
                names = [item.fingerprint if isinstance(item, AnyEncoder) else item for item in value]
                digest.update(json.dumps(names).encode())
                continue
            for part in (value.data, value.indices, value.indptr) if sp.issparse(value) else (np.asarray(value),):
                digest.update(str(value).encode() if part.dtype == object else np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()[:16]

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import TransformerTags

        tags = super().__sklearn_tags__()
        tags.transformer_tags = TransformerTags()
        return tags

    @abstractmethod
    def _fit_images(self, images: AnyImages, skip_unreadable: bool, progress: Progress) -> None:
        """Learn from images; set attributes ending in ``_``. `skip_unreadable` also skips unknown images."""

    @abstractmethod
    def _encode_images(self, images: AnyImages, progress: Progress) -> Encoded:
        """Return the rows of known images; advance `progress` once per image. The caller starts and ends it."""

    def _check_params(self) -> None:
        """Raise `UserError` for invalid constructor parameters; does nothing by default."""

    def _learns(self) -> bool:
        """Return whether the encoder needs `fit` before it can encode."""
        return True

    def _fingerprint_params(self, params: dict[str, object]) -> dict[str, object]:
        """Replace parameters that do not identify their content, such as paths, by hashes of the content."""
        return params


def no_text_tower(name: str) -> UserError:
    """Return the error for a network or an encoder without a text tower."""
    problem = f"'{name}' has no text tower, so words have no vectors in the space of its rows."
    advice = "Use a network with a text tower (visterm encoders lists them), immich or open_clip."
    return UserError(problem, setting="encoder", value=name, advice=advice)


def name_of(image: object) -> str:
    """Return the name of an image: a text or path unchanged, a whole number as digits.

    Raises DataError for anything else, such as pixels.
    """
    if isinstance(image, str | os.PathLike):
        return os.fspath(image)
    if isinstance(image, int | np.integer) and not isinstance(image, bool):
        return str(image)
    raise DataError(
        f"This encoder looks up images by name: expected a text, a path or a whole number, not {type(image).__name__}. "
        "For pixels, choose another encoder."
    )


class Places(NamedTuple):
    """A feature row as a sum of the contributions of places: ``Σ rows + elsewhere``."""

    # shape (n_places, 4): left, top, right and bottom, as shares of the picture's sides. Places may overlap.
    boxes: Doubles
    rows: Matrix  # array or CSR of float64, shape (n_places, n_features): each place's contribution to the row
    elsewhere: Doubles  # shape (n_features,): the part that belongs to no place
    # Singular nouns for places and features, such as "block" and "visterm"
    place_noun: str
    feature_noun: str
    source: str = ""  # Description of `elsewhere`; empty if it is 0


def no_places(row: Matrix, source: str) -> Places:
    """Return the row of one image, (1, n_features), as `Places` without places; `source` describes it."""
    values: Any = row
    values = values.toarray() if sp.issparse(row) else values
    rows = sp.csr_array((0, values.shape[1]), dtype=np.float64)
    return Places(np.empty((0, 4)), rows, np.asarray(values[0], np.float64), "place", "feature", source)


def stacked_places(parts: Sequence[Places], factors: Doubles) -> Places:
    """Join the places of several encoders for one picture; each encoder's values are multiplied by its factor."""
    scaled = [factor * part.rows for part, factor in zip(parts, factors, strict=True)]
    places = {part.place_noun for part in parts if len(part.boxes)}
    features = {part.feature_noun for part in parts if len(part.boxes)}
    return Places(
        np.concatenate([part.boxes for part in parts]),
        sp.csr_array(sp.block_diag([sp.csr_array(rows) for rows in scaled], format="csr")),
        np.concatenate([factor * part.elsewhere for part, factor in zip(parts, factors, strict=True)]),
        places.pop() if len(places) == 1 else "place",
        features.pop() if len(features) == 1 else "feature",
        ", ".join(dict.fromkeys(part.source for part in parts if part.source)),
    )


@runtime_checkable
class HasPlaces(Protocol):
    """An encoder that can split the row of a picture into contributions of places."""

    def places(self, image: Any) -> Places:
        """Split the row of one image (a path, or an upright RGB array) into contributions of places.

        Raises ImageError if the image cannot be read; UserError if these settings give rows that are not such sums.
        """
