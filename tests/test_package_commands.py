"""Commands of other packages: listed without importing them, run like visterm's own, and named where missing."""

from __future__ import annotations

import sys

import pytest

from command_line import visterm

PROGRAM = '''
import typer

app = typer.Typer(rich_markup_mode=None)

@app.command("greet")
def greet(name: str) -> None:
    """Greet somebody."""
    print(f"Hello {name}")
'''


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package `greeting` with the command `greet`, as pip would leave it."""
    (tmp_path / "greeting.py").write_text(PROGRAM)
    facts = tmp_path / "greeting-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[visterm.commands]\ngreet = greeting:app\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("greeting", None)


@pytest.mark.usefixtures("installed")
def test_the_help_lists_a_command_of_another_package_without_importing_it(tmp_path):
    code, said, _ = visterm("--help", tmp_path)
    assert code == 0
    assert "greet  " in said
    assert "From greeting." in said
    assert "greeting" not in sys.modules


@pytest.mark.usefixtures("installed")
def test_a_command_of_another_package_runs_and_fails_as_our_own_do(tmp_path):
    assert visterm("greet Ada", tmp_path) == (0, "Hello Ada\n", "")
    assert visterm("greet -h", tmp_path)[0] == 0
    code, _, said = visterm("greet", tmp_path)
    assert code == 2
    assert said.startswith("visterm: Missing argument")
    assert said.endswith("visterm greet --help")
    assert "Did you mean 'greet'?" in visterm("gret Ada", tmp_path)[2]


@pytest.mark.parametrize("line", ["reproduce wsabie", "demo -o demo"])
def test_a_command_whose_package_is_missing_says_what_to_install(line, tmp_path, monkeypatch):
    monkeypatch.setattr("visterm.cli.command_line._installed", dict)
    name = line.split()[0]
    message = f"visterm: 'visterm {name}' needs the package 'visterm-research'. "
    assert visterm(line, tmp_path) == (2, "", f"{message}Install it with: pip install visterm-research")
    assert f"  {name} " not in visterm("--help", tmp_path)[1]
