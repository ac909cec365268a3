"""What every encoder promises, whether it looks at pixels or only at names: one row an image, under a fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
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
from numpy.typing import NDArray

from visterm.core.checks import finite_rows
from visterm.core.errors import DataError, ImageError, UserError
from visterm.core.estimator import Estimator, check_fitted
from visterm.core.learned import Flag, Kind
from visterm.core.packing import json_params
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.tables import ENCODERS
from visterm.core.types import Matrix, Skipped
from visterm.data.frames import listed

if TYPE_CHECKING:
    from sklearn.utils import Tags

T = TypeVar("T")
AnyImages: TypeAlias = "Sequence[Any]"  # Paths, pixels, names or numbers: what an encoder takes for images

NOT_FINITE = "no finite features: the encoder gave NaN or infinity"  # Why an image is skipped


class Encoded(NamedTuple):
    """Feature rows with the images that they belong to."""

    rows: Matrix  # array or CSR of float32, shape (n_readable, n_features)
    kept: NDArray[np.int64]  # shape (n_readable,): the position of each row's image among those given
    skipped: list[Skipped]  # The images that could not be read, or that an encoder of names does not know


class AnyEncoder(Estimator, ABC):
    """Turns images into feature rows, whatever it looks at: `Encoder` is this for pixels, `Ids` for names.

    Learned attributes end in ``_`` and are saved with the run. Parameters that do not change the output are named in
    `speed_params`.
    """

    reads: ClassVar[Literal["pixels", "names"]] = "pixels"
    """What it looks at. An encoder of names opens no image, and has rows only for the images that it knows."""

    by_number: ClassVar[bool] = False  # Whether all that is known of an image is which one it is: rows of the identity

    argument: str | None = None  # The parameter that ``--encoder name:argument`` fills
    speed_params: tuple[str, ...] = ("n_jobs", "batch_size")  # Leave the output as it is: not part of the fingerprint
    test_params: ClassVar[dict[str, object]] = {}  # Of a small, quick instance: what the contract suite runs on

    location_attributes: tuple[str, ...] = ()  # Learned, of where something lies: saved, not part of the fingerprint
    learned: ClassVar[dict[str, Kind]] = {"fitted_": Flag()}
    """What it learns, declared, so that files of a run can be checked; those of the base classes are added."""

    @property
    def width(self) -> int | None:
        """Columns of its rows, of a fitted encoder that knows without encoding; else None."""
        return None

    @property
    def blocks(self) -> Sequence[int] | None:
        """Widths of the kinds of features that lie side by side in the rows of a fitted encoder; None: one kind.

        Models that look at kinds one by one (`auto`, `jec`, `tagprop`, `two_pass_knn`) take them over.
        """
        return None

    def fit(
        self, images: AnyImages, y: object = None, *, skip_unreadable: bool = False, progress: Progress = SILENT
    ) -> Self:
        """Learn from images; for encoders that learn nothing, only checks.

        Parameters
        ----------
        images : sequence
            Paths, Pillow images or uint8 arrays (height, width, 3), also as a Series or the only column of a DataFrame;
            of an encoder that reads names, texts, paths or whole numbers.
        y : ignored
        skip_unreadable : bool
            Leave out images that cannot be read (`encode` lists them) instead of raising `ImageError`.
        progress : Progress
            Shows each image and step.
        """
        images = listed(images)
        if len(images) == 0:
            raise DataError(f"{type(self).__name__} was given no images to learn from; at least 1 is needed.")
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        self._fit_images(images, skip_unreadable, progress)
        self.fitted_ = True
        return self

    def fit_transform(self, images: AnyImages, y: object = None, **how: Any) -> Matrix:
        """Learn from images, and encode them; `how` as in `fit`."""
        return self.fit(images, y, **how).transform(images)

    def check_settings(self) -> None:
        """Refuse settings that cannot be used, files that are not there among them, before any image is looked at.

        Raises UserError if a setting is out of its range; StorageError if a file that the encoder needs is not there or
        cannot be used.
        """
        self._check_params()

    def check_stored_settings(self) -> None:
        """Refuse settings that were read from a run's files and cannot be used; opens no other file."""
        self._check_params()

    def check_allowed(self) -> None:
        """Refuse, before an image is opened, to send images to a server that nobody allowed; most encoders send none.

        Raises UserError if so.
        """

    def transform(self, images: AnyImages) -> Matrix:
        """Encode images: exactly one row each, in order.

        Raises ImageError if one cannot be read (`encode` skips and lists such images instead); DataError if the encoder
        reads names, and does not know one.
        """
        images = listed(images)
        rows, _, skipped = self.encode(images)
        if skipped:
            self.refuse_unknown(images)
            raise ImageError(skipped[0].image, skipped[0].reason)
        return rows

    def encode(self, images: AnyImages, *, progress: Progress = SILENT) -> Encoded:
        """Encode the images that can be read and, by an encoder of names, that it knows; list the others.

        Returns the rows, the positions of their images, and the images skipped with reasons. Raises DataError if the
        encoder reads names, and is given pixels.
        """
        images = listed(images)
        if not hasattr(self, "fitted_") and self._learns():
            check_fitted(self)
        self.check_allowed()

        with reported(progress, "encode photos", len(images)):
            unknown = self.unknown_images(images)
            known = np.array([i for i in range(len(images)) if i not in unknown], np.int64)
            progress.advance(len(unknown))
            known_images = [images[i] for i in known] if unknown else images
            rows, kept, skipped = self._encode_images(known_images, progress)
        kept, finite = np.asarray(kept, np.int64), finite_rows(rows)
        bad = [Skipped(name_of(known_images[i]), NOT_FINITE) for i in kept[~finite]]
        left_out = [Skipped(name_of(images[i]), reason) for i, reason in unknown.items()]
        return Encoded(rows if finite.all() else rows[finite], known[kept[finite]], [*left_out, *skipped, *bad])

    def unknown_images(self, images: AnyImages) -> dict[int, str]:
        """Return the images that have no row whatever their files hold, by position, with reasons; none for pixels.

        A reason reads on after "The image ... is": a category, a colon, and what to do.
        """
        return {}

    def refuse_unknown(self, images: AnyImages, *, only_if_all: bool = False) -> None:
        """Refuse images if one has no row, or with `only_if_all` if none has one: then other images are likely meant.

        Raises DataError if so.
        """
        unknown = self.unknown_images(images)
        n, n_unknown = len(images), len(unknown)
        if n_unknown == 0 or (only_if_all and n_unknown < n):
            return
        first, reason = next(iter(unknown.items()))
        line = f"The image '{name_of(images[first])}' is {reason}."
        raise DataError(f"None of the {n:,} images is known. {line}" if n == n_unknown > 1 else line)

    def _made_of(self, make: Callable[..., T], *given: object) -> T:
        """Return ``make(*given)``; call it again only if an array is another object, or another argument differs."""
        cache: dict[str, tuple[tuple[object, ...], T]] = self.__dict__.setdefault("_kept_made", {})
        before, made = cache.get(make.__qualname__, ((), None))
        arrays = (np.ndarray, sp.sparray)
        same = len(before) == len(given) and all(
            old is new or (not isinstance(new, arrays) and old == new) for old, new in zip(before, given, strict=True)
        )

        if made is None or not same:
            made = make(*given)
            cache[make.__qualname__] = given, made
        return made

    @property
    def reads_texts(self) -> bool:
        """Whether texts have vectors in the space of its rows, by a text tower that can be reached: `text_rows`."""
        return False

    def text_rows(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, of length 1, shape (n_texts, width); no `fit` is needed.

        Each is the same in any company. Raises UserError if the encoder has no text tower; StorageError, ServiceError
        or MissingExtraError if it cannot be reached.
        """
        raise no_text_tower(ENCODERS.name_of(self))

    @property
    def text_fingerprint(self) -> str:
        """Return a SHA-256 that changes with all that shapes `text_rows`; the errors are the same."""
        raise no_text_tower(ENCODERS.name_of(self))

    @property
    def fingerprint(self) -> str:
        """Return a name of the output: it changes with every parameter, learned array and network that shapes rows."""
        digest = hashlib.sha256()
        params = {k: v for k, v in json_params(self, ENCODERS).items() if k not in self.speed_params}
        digest.update(json.dumps([type(self).__name__, self._fingerprint_params(params)], sort_keys=True).encode())
        for key, value in sorted(vars(self).items()):
            if not key.endswith("_") or key.startswith("_") or key in self.location_attributes:
                continue
            digest.update(key.encode())
            if isinstance(value, list):
                names = [one.fingerprint if isinstance(one, AnyEncoder) else one for one in value]
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
        """Learn from images; set attributes ending in ``_``. What `skip_unreadable` skips may also be unknown."""

    @abstractmethod
    def _encode_images(self, images: AnyImages, progress: Progress) -> Encoded:
        """Return the rows of images that are known; advance `progress` by each, it is started and finished outside."""

    def _check_params(self) -> None:
        """Raise `UserError` for constructor parameters that cannot be used; by default all can."""

    def _learns(self) -> bool:
        """Return whether there is anything to encode by only after `fit`."""
        return True

    def _fingerprint_params(self, params: dict[str, object]) -> dict[str, object]:
        """Replace what does not name its content (a path) by what does (a hash)."""
        return params


def no_text_tower(name: str) -> UserError:
    """Return the error for a network or an encoder that has vectors of images alone."""
    problem = f"'{name}' has no text tower, so words have no vectors in the space of its rows."
    advice = "Take a network that has one (visterm encoders lists them), immich or open_clip."
    return UserError(problem, setting="encoder", value=name, advice=advice)


def name_of(image: object) -> str:
    """Return the name of an image: a text or a path as it is, a whole number as its digits.

    Raises DataError if it is none of these: pixels, for example.
    """
    if isinstance(image, str | os.PathLike):
        return os.fspath(image)
    if isinstance(image, int | np.integer) and not isinstance(image, bool):
        return str(image)
    raise DataError(
        f"An image is named by a text, a path or a whole number here, not {type(image).__name__}: this encoder does "
        "not look at pixels. Choose another one for that."
    )


class Places(NamedTuple):
    """A feature row taken apart: ``Σ rows + elsewhere``."""

    # Shape (n_places, 4): left, top, right and bottom, as shares of the picture's sides. Places may overlap.
    boxes: NDArray[np.float64]
    rows: Matrix  # array or CSR of float64, shape (n_places, n_features). What each place gave to the row.
    elsewhere: NDArray[np.float64]  # shape (n_features,): what comes from no place
    # What a place and a feature are called: "block" and "visterm"
    place: str
    feature: str
    source: str = ""  # What `elsewhere` is; empty where it is nothing


def no_places(row: Matrix, source: str) -> Places:
    """Return the row of one image, (1, n_features), as what comes from no place; `source` says what it is."""
    values: Any = row
    values = values.toarray() if sp.issparse(row) else values
    rows = sp.csr_array((0, values.shape[1]), dtype=np.float64)
    return Places(np.empty((0, 4)), rows, np.asarray(values[0], np.float64), "place", "feature", source)


def stacked_places(parts: Sequence[Places], factors: NDArray[np.float64]) -> Places:
    """Return places that several encoders have of one picture as those of their joined rows, each times its factor."""
    scaled = [factor * part.rows for part, factor in zip(parts, factors, strict=True)]
    places = {part.place for part in parts if len(part.boxes)}
    features = {part.feature for part in parts if len(part.boxes)}
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
    """An encoder that knows which places of a picture its row comes from."""

    def places(self, image: Any) -> Places:
        """Return the row of one image (a path, or an upright RGB array) by places.

        Raises ImageError if it cannot be read; UserError if with these settings the row is no sum over places.
        """
