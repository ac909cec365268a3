import pytest

from visterm.core.errors import StorageError
from visterm.demo.drawn import draw_library
from visterm_research.data.drawn_library import read_drawn_library


def test_a_drawn_library_is_read_back_equal(tmp_path):
    library = draw_library(tmp_path / "library", n_scenes=20, seed=1, n_jobs=1)
    assert read_drawn_library(library.folder) == library


def test_reading_something_else_says_so(tmp_path):
    with pytest.raises(StorageError, match="no drawn library"):
        read_drawn_library(tmp_path)
