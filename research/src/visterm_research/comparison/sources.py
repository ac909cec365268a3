"""Which data a comparison runs on: what the folders given hold; and features of photos, encoded once and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import DataError, UserError
from visterm.core.packing import key_of
from visterm.core.progress import SILENT, Progress
from visterm.core.vocabulary import Vocabulary
from visterm.data import Corpus
from visterm.encoders import AnyEncoder, make_encoder
from visterm_research.comparison.problem import Rows
from visterm_research.comparison.run import Comparison

COREL = "corel5k"
DELICIOUS = "delicious"
NUSWIDE = "nuswide"


@dataclass(frozen=True)
class Source:
    """How problems are made.

    Attributes
    ----------
    cache : Path
        Where drawn photos and encoded features are kept.
    seed : int
    n_jobs : int or None
    quick : bool
        Drawn sets of a few hundred images.
    progress : Progress
    before_work : callable
        Called before anything is drawn or encoded that was not before; what it raises ends the work.
    """

    cache: Path
    seed: int = 0
    n_jobs: int | None = None
    quick: bool = False
    progress: Progress = SILENT
    before_work: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, comparison: Comparison) -> Source:
        """Return that of a comparison; nothing is drawn or encoded after the end of the time."""
        options = comparison.options
        return cls(
            comparison.out / "data",
            options.seed,
            options.n_jobs,
            options.quick,
            options.progress,
            comparison.trials.check_time,
        )

    def drawn(self, name: str, draw: Callable[..., Any], n_scenes: int) -> Path:
        """Return the folder of drawn scenes; it is drawn unless it was before."""
        folder = self.cache / f"{name}-{n_scenes}-{self.seed}"
        if not folder.exists():
            self.before_work()
            draw(folder, n_scenes=n_scenes, seed=self.seed, n_jobs=self.n_jobs, progress=self.progress)
        return folder

    def encode(
        self, parts: Sequence[Corpus], vocabulary: Vocabulary, encoder: str, params: Mapping[str, Any]
    ) -> list[Rows]:
        """Encode parts of photos, or read what was encoded of the same photos before; the first part is learned from.

        Parameters
        ----------
        encoder : str
            As ``visterm fit --encoder`` takes it.
        params : mapping
            Its settings.
        """
        made = make_encoder(encoder, params, {"random_state": self.seed, "n_jobs": self.n_jobs})
        names = [[str(image) for image in part.images] for part in parts]
        key = key_of(version("visterm"), made.fingerprint, self.seed, names, [part.tags for part in parts])
        path = self.cache / f"features-{key}.npz"
        if path.is_file():
            with np.load(path, allow_pickle=False) as stored:
                return [Rows(_unpacked(stored, f"X{i}"), _unpacked(stored, f"Y{i}")) for i in range(len(parts))]
        self.before_work()
        made.fit(parts[0].images, skip_unreadable=True, progress=self.progress)
        rows = [_encoded(made, part, vocabulary, self.progress) for part in parts]
        self.cache.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}")
        packed: dict[str, Any] = {}
        for i, part in enumerate(rows):
            packed |= _packed(part.X, f"X{i}") | _packed(part.Y, f"Y{i}")
        np.savez(temporary, **packed)
        temporary.replace(path)
        return rows


def _encoded(encoder: AnyEncoder, corpus: Corpus, vocabulary: Vocabulary, progress: Progress) -> Rows:
    """Return features and tags of the images of a corpus that can be read."""
    X, kept, _ = encoder.encode(corpus.images, progress=progress)
    return Rows(X, vocabulary.encode([corpus.tags[i] for i in kept], [corpus.negatives[i] for i in kept]))


def check_encoded(rows: Sequence[Rows], parts: Sequence[Corpus], features: str, images: str, of: str = "") -> None:
    """Refuse an encoder that left images out: figures would not be comparable.

    Parameters
    ----------
    features : str
        The encoder's name, for the message.
    images : str
        What the images are called there.
    of : str
        Where they are from, with a space before it.
    """
    for part, encoded in zip(parts, rows, strict=True):
        if encoded.X.shape[0] != len(part):
            raise DataError(
                f"{features} has rows for {encoded.X.shape[0]:,} of {len(part):,} {images}{of}. Choose an encoder that "
                f"encodes all of them, and {images} that can be read."
            )


def known_folders(data: Sequence[Path], kinds: Sequence[str]) -> list[tuple[str, Path]]:
    """Return the folders with data of these kinds, and their kinds: those given, or those one level below.

    Raises
    ------
    DataError
        If one that is given holds none.
    """
    found = []
    for folder in data:
        if not folder.is_dir():
            raise DataError(f"There is no folder {folder}. Pass a folder of data (--data), or none for drawn data.")
        below = sorted(path for path in folder.iterdir() if path.is_dir()) if kind_of(folder) is None else []
        here = [(kind, path) for path in [folder, *below] if (kind := kind_of(path)) is not None and kind in kinds]
        if not here:
            raise DataError(
                f"{folder} holds no data that this comparison can run on ({', '.join(kinds)}): expected images/ with "
                "labels.tsv, delicious-train.arff, or labels.tsv with the columns row and labels, there or one level "
                "below."
            )
        found.extend(here)
    return found


def corel_folder(data: Sequence[Path]) -> Path | None:
    """Return the folder of Corel5k; None where there are no folders.

    Raises
    ------
    UserError
        If there are several.
    DataError
        If a folder holds no Corel5k.
    """
    folders = [folder for _, folder in known_folders(data, (COREL,))]
    if len(folders) > 1:
        raise UserError(f"--data has {len(folders)} folders of Corel5k ({', '.join(map(str, folders))}). Pass one.")
    return folders[0] if folders else None


def kind_of(folder: Path) -> str | None:
    """Return what a folder holds; None where it is nothing that is known."""
    table = folder / "labels.tsv"
    if table.is_file() and (folder / "images").is_dir():
        return COREL
    if (folder / "delicious-train.arff").is_file():
        return DELICIOUS
    if table.is_file():
        with open(table, encoding="utf-8") as lines:
            return NUSWIDE if lines.readline().split("\t")[0].strip() == "row" else None
    return None


def _packed(matrix: Any, name: str) -> dict[str, Any]:
    """Return the arrays of a matrix, dense or sparse, by name."""
    if not sp.issparse(matrix):
        return {name: matrix}
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
    return {f"{name}_{part}": np.asarray(value) for part, value in parts.items()}


def _unpacked(stored: Any, name: str) -> Any:
    """Return the matrix of which `_packed` made arrays."""
    if name in stored:
        return stored[name]
    parts = tuple(stored[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
    return sp.csr_array(parts, shape=tuple(stored[f"{name}_shape"]))
