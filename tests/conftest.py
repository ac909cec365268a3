"""Fixtures that many tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of data and networks beside the repository; tests that want it are marked `shared`."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"wants the data beside the project, and there is no {folder}")
    return folder
