"""Quick comparisons smaller still: these tests ask whether every part runs and goes on, never how good a method is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partialmethod
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from visterm.core.errors import DataError
from visterm_research.data.wordnet import find_wordnet, read_database
from visterm_research.scenes import DrawnLibrary, draw_library

SIZES = {
    "comparison.problem": {"COST_IMAGES": 4, "COST_ROUNDS": 1},
    "features.study": {"QUICK_PHOTOS": 40},
    "pamir.study": {"QUICK_DRAWN": 48, "QUICK_SUBSETS": 2**6},
    "parts.pictures": {"SHOWN_IMAGES": 2},
    "parts.problem": {"SHOWN_IMAGES": 2},
    "ugc.problems": {"QUICK_SCENES": 70, "QUICK_DICTIONARY": (120, 30, 40), "SHOWN_IMAGES": 2},
    "wsabie.figures": {"TAGS_SHOWN": 3, "IMAGES_SHOWN": 2},
    "wsabie.study": {"QUICK_SCENES": 60, "QUICK_DICTIONARY": (200, 50, 60)},
}
"""Of drawn data, of what is timed, and of what is shown: most of a report's time goes into its pictures."""

SETTINGS = {
    "comparison.feature_sets": [
        ("SMALL_VISTERMS", {"colours": 8, "codebook": 40, "sample_blocks": 800}),
        ("SMALL_HISTOGRAMS", {"colours": 6, "textons": 4, "levels": 1, "sample_pixels": 600}),
        ("SMALL_KERNEL_PCA", {"dim": 12, "landmarks": 30}),
    ],
    "comparison.methods": [("QUICK", {"epochs": 3, "patience": 2})],
    "pamir.methods": [("QUICK", {"epochs": 3, "aspects": 8, "rank": 8})],
    "parts.methods": [("QUICK", {"epochs": 4})],
    "ugc.methods": [("QUICK_NETWORK", {"epochs": 2, "hidden": [12]})],
}
"""Of encoders and models."""


@pytest.fixture(scope="session")
def wordnet_folder() -> Path:
    """The folder of WordNet 3.0's files, as Debian's wordnet-base brings them; figures in tests are of that version."""
    try:
        folder = find_wordnet()
        licence = read_database(folder, "data.noun")[:2000]
    except DataError as error:
        pytest.skip(str(error))
    if b"WordNet 3.0 " not in licence:
        pytest.skip(f"wants WordNet 3.0; another version is in {folder}")
    return folder


@pytest.fixture(scope="module", autouse=True)
def small_runs() -> Iterator[None]:
    """Draw few images, fit few epochs, time a few images once, and draw figures with few dots.

    By module, so that tests of visterm in the same process do not run with it.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module, sizes in SIZES.items():
            for name, size in sizes.items():
                patch.setattr(f"visterm_research.{module}.{name}", size)
        for module, tables in SETTINGS.items():
            for table, settings in tables:
                for name, value in settings.items():
                    patch.setitem(getattr(import_module(f"visterm_research.{module}"), table), name, value)
        if find_spec("matplotlib") is not None:
            figure = import_module("matplotlib.figure").Figure
            patch.setattr(figure, "savefig", partialmethod(figure.savefig, dpi=40))
        yield


@pytest.fixture(scope="session")
def small_library(tmp_path_factory: pytest.TempPathFactory) -> DrawnLibrary:
    """A drawn library of 200 scenes, shared by the tests that only read it."""
    return draw_library(tmp_path_factory.mktemp("drawn") / "library", n_scenes=200, seed=5, n_jobs=1)
