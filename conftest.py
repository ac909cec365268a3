"""Fixtures that tests of visterm and of research share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from visterm.core.errors import DataError
from visterm.data.wordnet_files import find_wordnet, read_database
from visterm.demo.drawn import DrawnLibrary, draw_library


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of data and networks beside the repository; tests that want it are marked `shared`."""
    beside = Path(__file__).resolve().parents[1] / "shared"
    folder = Path(os.environ.get("VISTERM_SHARED", beside))
    if not folder.is_dir():
        pytest.skip(f"wants the data beside the project, and there is no {folder}")
    return folder


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


@pytest.fixture(scope="session")
def small_library(tmp_path_factory: pytest.TempPathFactory) -> DrawnLibrary:
    """A drawn library of 200 scenes, shared by the tests that only read it."""
    return draw_library(tmp_path_factory.mktemp("drawn") / "library", n_scenes=200, seed=5, n_jobs=1)
