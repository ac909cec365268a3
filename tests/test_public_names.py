"""The names for people at a Python prompt: listed for tab, imported at first use, corrected where misspelt."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import visterm
import visterm.encoders
import visterm.models
from visterm.core.tables import ENCODERS, MODELS

pytestmark = pytest.mark.usefixtures("plugin")

ROOT = Path(__file__).parents[1]
HEAVY = {"numba", "scipy", "sklearn", "torch"}
ROOMS = [(visterm.models, MODELS), (visterm.encoders, ENCODERS)]


@pytest.mark.parametrize(
    "line", ["import visterm", "import visterm.models, visterm.encoders", "from visterm import models"]
)
def test_an_import_loads_nothing_heavy(line):
    code = f"{line}\nimport sys\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert HEAVY.isdisjoint(loaded)


@pytest.mark.parametrize(("room", "table"), ROOMS, ids=["models", "encoders"])
def test_each_part_of_the_table_is_there_by_the_name_of_its_class(room, table):
    ours = [entry for entry in table if entry.target.startswith("visterm.")]
    assert len(dir(room)) == len(ours)
    for entry in ours:
        name = entry.target.rpartition(":")[2]
        assert name in dir(room)
        if not entry.extra or find_spec(entry.extra):
            assert getattr(room, name) is entry.load()


def test_the_names_of_everyday_work_are_there():
    assert {"Tagger", "Catalogue", "fit", "models", "encoders"} <= set(dir(visterm))
    for name in dir(visterm):
        assert getattr(visterm, name) is not None
    assert visterm.models.Wsabie().get_params()["dim"] > 0
    assert visterm.encoders.Visterms().fingerprint


@pytest.mark.parametrize(
    ("module", "wrong", "right"),
    [(visterm, "Taggr", "Tagger"), (visterm.models, "Wsabi", "Wsabie"), (visterm.encoders, "Visterm", "Visterms")],
    ids=["visterm", "models", "encoders"],
)
def test_a_misspelt_name_is_an_attribute_error_that_names_the_nearest(module, wrong, right):
    with pytest.raises(AttributeError, match=rf"no attribute '{wrong}'\. Did you mean '{right}'\?"):
        getattr(module, wrong)


def test_an_import_of_a_misspelt_name_is_an_import_error():
    with pytest.raises(ImportError, match="Wsabi"):
        exec("from visterm.models import Wsabi")


def test_fit_returns_the_tagger_that_a_fit_in_two_steps_makes(tmp_path):
    rng = np.random.default_rng(0)
    photos = list(rng.integers(0, 256, (12, 24, 24, 3), np.uint8))
    tags = [["dark" if i % 2 else "bright", "photo"] for i in range(12)]
    settings = {"encoder": "mean_colour", "model": "ridge", "n_jobs": 1}
    tagger = visterm.fit(photos, tags, **settings, min_count=2, calibrate=False)
    other = visterm.Tagger(**settings, min_count=2).fit(photos, tags, calibrate=False)
    assert isinstance(tagger, visterm.Tagger)
    assert tagger.vocabulary.tags == other.vocabulary.tags == ["bright", "dark", "photo"]
    assert tagger.fingerprint == other.fingerprint


def test_a_misspelt_setting_of_fit_names_the_nearest():
    with pytest.raises(visterm.VistermError, match=r"Unknown setting of visterm\.fit 'modle'\. Did you mean 'model'\?"):
        visterm.fit([], modle="ridge")


OTHERS_ROOMS = {"visterm.tagging.recommender", "visterm.evaluation.pairs"}
"""Modules whose signatures still have Any."""
NO_SETTING = {"known"}
"""Methods for subclasses, which return a value of any type."""


def public_functions():
    """Yield the public functions, and the methods of public classes, each once."""
    names = [getattr(visterm, name) for name in visterm.__all__]
    names += [
        entry.load() for _, table in ROOMS for entry in table if not entry.extra and entry.target[:8] == "visterm."
    ]
    functions = {part for part in names if inspect.isfunction(part)}
    for cls in filter(inspect.isclass, names):
        for name, _ in inspect.getmembers(cls):
            member = inspect.getattr_static(cls, name)
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if inspect.isfunction(function) and (name[0] != "_" or name == "__init__") and name not in NO_SETTING:
                functions.add(function)
    return [
        part for part in functions if part.__module__.startswith("visterm.") and part.__module__ not in OTHERS_ROOMS
    ]


def test_public_signatures_are_typed_without_any_and_show_no_memory_addresses():
    functions = public_functions()
    assert len(functions) > 150
    for function in functions:
        for name, annotation in function.__annotations__.items():
            assert not re.search(r"\bAny\b", str(annotation)), f"{function.__module__}.{function.__qualname__}: {name}"
        parameters = inspect.signature(function).parameters.values()
        assert [p.name for p in parameters if p.kind is p.VAR_KEYWORD] in ([], ["params"]), function
        assert " at 0x" not in str(inspect.signature(function)), function


@pytest.mark.parametrize("function", [visterm.fit, visterm.evaluate])
def test_help_fits_two_screens_and_lists_each_parameter(function):
    text = pydoc.plain(pydoc.render_doc(function))
    assert len(text.splitlines()) <= 120
    assert "**" not in text.splitlines()[2]


def test_examples_use_public_names_and_what_has_a_page(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "extensions")
    page = import_module("python_page").python_page()
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")]
    texts += re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(encoding="utf-8"), re.DOTALL)
    imported = [
        f"{node.module}.{alias.name}"
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "visterm"
        for alias in node.names
    ]
    assert len(imported) > 10
    assert [name for name in imported if f"   {name}\n" not in page] == []
    used = {name for text in texts for name in re.findall(r"\bvisterm\.([a-zA-Z]\w*)", text)}
    rooms = {name.split(".")[1] for name in imported}
    assert used - {*visterm.__all__, *rooms, "metrics"} == set()


def test_there_are_twelve_names_and_tab_lists_them():
    assert len(visterm.__all__) == 12
    assert dir(visterm) == sorted(visterm.__all__)
