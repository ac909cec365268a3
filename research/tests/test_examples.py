"""The gallery: each example has a title, draws its own data, stays short, runs, and ends with a picture."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.stem.removeprefix("plot_") for path in EXAMPLES.glob("plot_*.py"))
QUICK = ["recommending_by_numbers", "warp_against_auc", "zero_to_fifty_photos"]
"""Those without photos, which run in every suite; the others take longer."""

LONGEST = 80  # Lines of an example: what people read without scrolling far
READS = ("http://", "https://", "VISTERM_SHARED", "../", "load_dataset", "fetch_")
"""What an example that does not draw its data would have in it."""


def text_of(name):
    return (EXAMPLES / f"plot_{name}.py").read_text(encoding="utf-8")


def run(name, monkeypatch, tmp_path):
    """Run an example as a program; return the panels of its pictures that show something."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shown = []
    monkeypatch.setattr(pyplot, "show", lambda: shown.extend(pyplot.get_fignums()))
    try:
        runpy.run_path(str(EXAMPLES / f"plot_{name}.py"), run_name="__main__")
        figures = [pyplot.figure(number) for number in shown]
        for figure in figures:
            figure.canvas.draw()
        return [axes for figure in figures for axes in figure.axes if axes.has_data() or axes.texts]
    finally:
        pyplot.close("all")


def test_there_are_at_least_twelve_examples_and_the_quick_ones_are_among_them():
    assert len(NAMES) >= 12
    assert set(QUICK) <= set(NAMES)


def test_an_example_begins_with_a_title_and_says_what_it_is_about():
    for name in NAMES:
        title, line, empty, *story = ast.get_docstring(ast.parse(text_of(name))).splitlines()
        assert line == "=" * len(title), name
        assert not empty, name
        assert story, name


def test_an_example_is_short_has_cells_and_ends_with_what_one_learns():
    for name in NAMES:
        text = text_of(name)
        assert len(text.splitlines()) < LONGEST, name
        cells = text.split("\n# %%\n")[1:]
        assert len(cells) >= 3, name
        assert all(cell.startswith("# ") for cell in cells), name  # each is introduced by a sentence
        assert "\n# **What you learn.**" in f"\n{cells[-1]}", name
        assert ast.parse(cells[-1]).body == [], name  # nothing runs after the last words


def test_an_example_draws_its_own_data_and_ends_in_a_picture():
    for name in NAMES:
        text = text_of(name)
        assert "import draw_scene" in text or "draw_scene\n" in text or "np.random.default_rng(" in text, name
        assert [word for word in READS if word in text] == [], name
        assert "plt.show()" in text, name


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_example_runs_and_shows_a_picture(name, monkeypatch, tmp_path):
    assert run(name, monkeypatch, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in QUICK])
def test_an_example_runs_and_shows_a_picture(name, monkeypatch, tmp_path):
    assert run(name, monkeypatch, tmp_path)
