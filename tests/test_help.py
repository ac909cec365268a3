"""Help texts: each fits on a screen, with examples that say what they do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from command_line import visterm
from visterm.cli.command_line import COMMANDS, PANELS_OF_COMMANDS, app

WITHOUT_EXAMPLES = {"models", "encoders", "metrics"}


@pytest.fixture(autouse=True)
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_list_of_commands_says_of_each_what_its_own_help_says(command: str) -> None:
    summary = get_command(app).resolve_command(None, [command])[1].help.partition("\n\n")[0]
    assert " ".join(summary.split()) == COMMANDS[command][1]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_fits_on_a_screen_of_100_by_50(command: str, tmp_path: Path) -> None:
    lines = visterm(f"{command} --help", tmp_path)[1].splitlines()
    assert len(lines) <= 50
    assert [line for line in lines if len(line) > 100] == []


def test_the_list_of_commands_says_what_each_is_for_in_one_line_by_purpose(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    listed = visterm("--help", tmp_path)[1]
    assert [summary for _, summary in COMMANDS.values() if len(summary) > 60] == []
    assert all(f"{name:10}  {summary}\n" in listed for name, (_, summary) in COMMANDS.items())
    assert [f"\n{panel}:\n" in listed for panel in PANELS_OF_COMMANDS] == [True] * len(PANELS_OF_COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_values_are_named_in_words_and_not_by_types_of_a_programming_language(command, tmp_path):
    shown = visterm(f"{command} --help", tmp_path)[1]
    assert not re.search(r"<\w+|\bint\b|\blist\[|x>=|\[required", shown)


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - WITHOUT_EXAMPLES))
def test_examples_stand_one_per_line_and_say_what_they_do(command: str, tmp_path: Path) -> None:
    _, _, examples = visterm(f"{command} --help", tmp_path)[1].partition("\nExamples:\n")
    assert examples
    for line in examples.splitlines():
        typed, _, what = line.partition("  # ")
        assert typed.startswith("  visterm ")
        assert what
