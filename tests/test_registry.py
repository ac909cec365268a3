"""Names are found, suggested, listed; nothing heavy is loaded before it is asked for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from refusals import refused
from visterm.core.errors import MissingExtraError, UnknownNameError, UserError
from visterm.core.registry import PACKAGE, Registry, TableEntry
from visterm.core.tables import ENCODERS, MODELS
from visterm.models.baselines import Prior


def test_a_misspelt_model_is_suggested():
    with refused("model", value="wsabi", error=UnknownNameError) as info:
        MODELS.load("wsabi")
    assert info.value.advice == "Did you mean 'wsabie'?"


def test_a_name_like_no_other_lists_all():
    with pytest.raises(UnknownNameError, match=r"Known: .*wsabie.*prior"):
        MODELS.entry("xyzzy")


def test_a_misspelt_parameter_is_suggested():
    with refused("model.dmi", value=10, error=UnknownNameError) as info:
        MODELS.create("wsabie", dmi=10)
    assert info.value.advice == "Did you mean 'dim'?"


WRITTEN = Path(__file__).parent / "data" / "tiny"


@pytest.mark.parametrize(("table", "name", "param"), [(MODELS, "auto", "explainable"), (ENCODERS, "visterms", "root")])
def test_text_where_true_or_false_is_meant_is_refused_and_not_taken_as_true(table, name, param):
    with refused(f"{table.kind}.{param}", value="no"):
        table.create(name, **{param: "no"})


def test_a_missing_package_names_the_extra():
    table = Registry(
        "model", [TableEntry("deep", "no_such_package.module:Deep", "", extra="torch")], group="visterm.none"
    )
    with pytest.raises(MissingExtraError, match=r"pip install 'visterm\[torch\]'"):
        table.load("deep")


def test_an_unregistered_class_cannot_be_saved_by_name():
    with pytest.raises(UserError, match=r"entry-point group 'visterm\.models'"):
        MODELS.saved_name(object())


@pytest.mark.parametrize(
    ("registry", "name"),
    [(table, entry.name) for table in (MODELS, ENCODERS) for entry in table if entry.package == PACKAGE],
)
def test_every_entry_loads_and_knows_its_own_name(registry, name):
    try:
        loaded = registry.load(name)
    except MissingExtraError as error:
        pytest.skip(str(error))
    assert registry.name_of(object.__new__(loaded)) == name


def test_light_commands_load_nothing_heavy():
    # In one process, as starting one takes longer than the command; the first that loads too much is named.
    code = (
        "import sys\nfrom visterm.cli.command_line import app\n"
        "for command in ('--help', 'models', 'encoders', 'metrics', '--version'):\n"
        "    try: app([command])\n    except SystemExit as ended: assert not ended.code, (command, ended.code)\n"
        "    heavy = {'numba', 'sklearn', 'torch', 'onnxruntime', 'scipy'} & set(sys.modules)\n"
        "    if heavy: sys.exit(f'{command} loaded {heavy}')\n"
        "print('all of them')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all of them\n")


@pytest.mark.parametrize("command", [["search", "catalogue", "sky tree"], ["annotate", "run", "images/46.jpg"]])
def test_a_search_and_an_annotation_load_no_library_that_they_do_not_need(command, tmp_path):
    folder = shutil.copytree(WRITTEN, tmp_path / "written")
    code = (
        "import sys\nfrom visterm.cli.command_line import app\n"
        f"try: app({command!r})\nexcept SystemExit as ended: assert not ended.code, ended.code\n"
        "heavy = {'sklearn', 'pandas', 'pyarrow', 'torch', 'scipy.optimize', 'scipy.stats', 'pydantic',\n"
        "         'numba.cpython.listobj', 'PIL.PdfImagePlugin'} & set(sys.modules)\n"  # of Numba's compiler; no photo
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    for _ in range(2):  # the first may be the one that compiles the kernels
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_estimator_shows_the_settings_that_differ_from_the_defaults():
    assert repr(MODELS.create("wsabie", dim=5, step="sgd")) == "Wsabie(dim=5, step='sgd')"


def test_importing_visterm_loads_nothing_heavy():
    code = "import sys, visterm; sys.exit(bool({'numba', 'sklearn', 'numpy', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_parts_of_other_packages_are_found_and_take_no_name_of_ours(monkeypatch):
    offered = (EntryPoint("mine", "theirs:Mine", ""), EntryPoint("prior", "theirs:Prior", ""))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: offered)
    assert MODELS.entry("mine").target == "theirs:Mine"
    assert MODELS.names().count("prior") == 1
    assert MODELS.names()[-1] == "mine"
    assert MODELS.load("prior") is Prior


def test_our_own_parts_are_found_without_reading_all_that_is_installed(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", None)
    assert MODELS.name_of(MODELS.create("prior")) == "prior"
