"""Which data a comparison runs on: what the folders given hold, and drawn sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from visterm.core.errors import DataError
from visterm.core.progress import SILENT, Progress
from visterm_research.comparison.image_problems import (
    corel_problem,
    delicious_problem,
    dictionary_problem,
    scene_problem,
)
from visterm_research.comparison.number_problems import delicious_tag_problem, nuswide_problem, zipf_problem
from visterm_research.comparison.problem import Problem

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
    encoder : str
        For photos, as ``visterm fit --encoder`` takes it.
    wordnet : Path, optional
        WordNet's database files, by which the siblings of real tags are found.
    seed : int
    n_jobs : int or None
    quick : bool
        Drawn sets of a few hundred images.
    progress : Progress
    """

    cache: Path
    encoder: str = "visterms"
    wordnet: Path | None = None
    seed: int = 0
    n_jobs: int | None = None
    quick: bool = False
    progress: Progress = SILENT


def image_problems(source: Source, data: Sequence[Path]) -> Iterator[Problem]:
    """Make the problems with features: those of the folders (or drawn scenes), then a large drawn dictionary.

    Raises
    ------
    DataError
        If a folder holds no data that are known.
    """
    makers: dict[str, Callable[[Path], Problem]] = {
        COREL: lambda folder: corel_problem(
            folder,
            source.cache,
            encoder=source.encoder,
            seed=source.seed,
            n_jobs=source.n_jobs,
            wordnet=source.wordnet,
            progress=source.progress,
        ),
        DELICIOUS: lambda folder: delicious_problem(folder, seed=source.seed),
    }
    found = _known(data, makers)
    yield from (makers[kind](folder) for kind, folder in found)
    if not found:
        yield scene_problem(
            source.cache,
            QUICK_SCENES if source.quick else SCENES,
            encoder=source.encoder,
            seed=source.seed,
            n_jobs=source.n_jobs,
            progress=source.progress,
        )
    if source.quick:
        yield dictionary_problem(600, 120, n_features=200, seed=source.seed)
    else:
        yield dictionary_problem(20_000, 5000, n_features=5000, seed=source.seed)


SCENES, QUICK_SCENES, QUICK_PHOTOS = 3000, 240, 160
"""Drawn scenes; in quick runs, and in those that encode them several times."""

PhotoMaker: TypeAlias = "Callable[[str, Mapping[str, Any]], Problem]"
"""Makes a problem of photos from an encoder's name and settings."""


def photo_makers(source: Source, data: Sequence[Path], before_work: Callable[[], None]) -> dict[str, PhotoMaker]:
    """Return what makes problems of the same photos with any features: Corel5k where a folder has it, and drawn scenes.

    Parameters
    ----------
    before_work : callable
        Called before anything is drawn or encoded that was not before; what it raises ends the work.

    Returns
    -------
    dict of str to callable
        By the name of the photos.

    Raises
    ------
    DataError
        If a folder holds no Corel5k.
    """

    def corel(folder: Path) -> PhotoMaker:
        return lambda encoder, params: corel_problem(
            folder,
            source.cache,
            encoder=encoder,
            params=params,
            seed=source.seed,
            n_jobs=source.n_jobs,
            wordnet=None,
            before_work=before_work,
            progress=source.progress,
        )

    def scenes(encoder: str, params: Mapping[str, Any]) -> Problem:
        return scene_problem(
            source.cache,
            QUICK_PHOTOS if source.quick else SCENES,
            encoder=encoder,
            params=params,
            seed=source.seed,
            n_jobs=source.n_jobs,
            before_work=before_work,
            progress=source.progress,
        )

    return {kind: corel(folder) for kind, folder in _known(data, (COREL,))} | {"scenes": scenes}


def number_problems(source: Source, data: Sequence[Path]) -> Iterator[Problem]:
    """Make the problems of images known only by number: those of the folders, then pairs drawn by Zipf's law.

    Raises
    ------
    DataError
        If a folder holds no data that are known.
    """
    makers: dict[str, Callable[[Path], Problem]] = {
        NUSWIDE: lambda folder: nuswide_problem(folder, seed=source.seed),
        DELICIOUS: lambda folder: delicious_tag_problem(folder, seed=source.seed),
    }
    yield from (makers[kind](folder) for kind, folder in _known(data, makers))
    if source.quick:
        yield zipf_problem(600, 120, seed=source.seed)
    else:
        yield zipf_problem(30_000, 5000, seed=source.seed)


def check_folders(data: Sequence[Path], kinds: Sequence[str]) -> None:
    """Refuse, before any long work, folders that hold nothing of these kinds."""
    folders_of(data, kinds)


def folders_of(data: Sequence[Path], kinds: Sequence[str]) -> list[Path]:
    """Return the folders with data of these kinds: those given, or those one level below.

    Raises
    ------
    DataError
        If one that is given holds none.
    """
    return [folder for _, folder in _known(data, kinds)]


def kind_of(folder: Path) -> str | None:
    """Say what a folder holds; None where it is nothing that is known."""
    table = folder / "labels.tsv"
    if table.is_file() and (folder / "images").is_dir():
        return COREL
    if (folder / "delicious-train.arff").is_file():
        return DELICIOUS
    if table.is_file():
        with open(table, encoding="utf-8") as lines:
            return NUSWIDE if lines.readline().split("\t")[0].strip() == "row" else None
    return None


def _known(data: Sequence[Path], kinds: Sequence[str] | dict[str, Callable[[Path], Problem]]) -> list[tuple[str, Path]]:
    """Find the data of these kinds in folders, or one level below them."""
    found = []
    for folder in data:
        if not folder.is_dir():
            raise DataError(f"There is no folder {folder}. Give a folder of data (--data), or none for drawn data.")
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
