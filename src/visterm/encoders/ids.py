"""Ids: each image has a number and the corresponding row of the identity matrix; no file is opened."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import DataError
from visterm.core.learned import Kind, Listed, Text
from visterm.core.progress import Progress
from visterm.encoders.contract import AnyEncoder, AnyImages, Encoded, name_of


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

    reads: ClassVar[Literal["pixels", "names"]] = "names"
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
