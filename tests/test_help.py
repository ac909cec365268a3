"""Help texts: each fits on a screen, with examples that say what they do."""

from __future__ import annotations

import re

import pytest
from typer import BadParameter
from typer.main import get_command

from command_line import visterm
from visterm.cli.command_line import COMMANDS, PANELS_OF_COMMANDS, app

WITHOUT_EXAMPLES = {"models", "encoders", "metrics"}


@pytest.fixture(scope="module")
def helps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The help text of each command, on a screen of 100 columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        folder = tmp_path_factory.mktemp("helps")
        return {command: visterm(f"{command} --help", folder)[1] for command in COMMANDS}


def test_the_list_of_commands_says_of_each_what_its_own_help_says() -> None:
    group = get_command(app)
    summaries = {name: group.resolve_command(None, [name])[1].help.partition("\n\n")[0] for name in COMMANDS}
    assert {name: " ".join(text.split()) for name, text in summaries.items()} == {
        name: summary for name, (_, summary) in COMMANDS.items()
    }


def test_the_help_of_a_command_fits_on_a_screen_of_100_by_50(helps: dict[str, str]) -> None:
    assert [name for name, text in helps.items() if len(text.splitlines()) > 50] == []
    assert [line for text in helps.values() for line in text.splitlines() if len(line) > 100] == []


def test_the_list_of_commands_says_what_each_is_for_in_one_line_by_purpose(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    listed = visterm("--help", tmp_path)[1]
    assert [summary for _, summary in COMMANDS.values() if len(summary) > 60] == []
    assert all(f"{name:10}  {summary}\n" in listed for name, (_, summary) in COMMANDS.items())
    assert [f"\n{panel}:\n" in listed for panel in PANELS_OF_COMMANDS] == [True] * len(PANELS_OF_COMMANDS)


def test_values_are_named_in_words_and_not_by_types_of_a_programming_language(helps: dict[str, str]) -> None:
    types = {name: re.findall(r"<\w+|\bint\b|\blist\[|x>=|\[required", text) for name, text in helps.items()}
    assert {name: shown for name, shown in types.items() if shown} == {}


def test_examples_stand_one_per_line_and_say_what_they_do(helps: dict[str, str]) -> None:
    examples = {name: text.partition("\nExamples:\n")[2].splitlines() for name, text in helps.items()}
    assert {name for name, lines in examples.items() if not lines} <= WITHOUT_EXAMPLES
    for line in [line for lines in examples.values() for line in lines]:
        typed, _, what = line.partition("  # ")
        assert typed.startswith("  visterm "), line
        assert what, line


def test_examples_pass_only_options_of_their_command(helps: dict[str, str]) -> None:
    group = get_command(app)
    for text in helps.values():
        for line in text.partition("\nExamples:\n")[2].splitlines():
            _, name, *words = line.partition("  # ")[0].split()
            options = {word.partition("=")[0] for word in words if re.fullmatch(r"-k|-o|--[a-z].*", word)}
            known = {option for parameter in group.resolve_command(None, [name])[1].params for option in parameter.opts}
            assert options <= known, line


def test_values_are_converted_as_typer_converts_them(tmp_path) -> None:
    group = get_command(app)
    closed = tmp_path / "closed"
    closed.touch(mode=0)
    texts = ["3", "a b", "-", str(tmp_path), str(closed), "s3://bucket/folder"]
    for name in COMMANDS:
        command = group.resolve_command(None, [name])[1]
        context = command.make_context(name, [], resilient_parsing=True)
        for param in command.get_params(context):
            given = [texts] if param.multiple or param.nargs == -1 else texts
            for value in (None, param.get_default(context), *given):
                results = []
                for converter in (plain := param.get_runtime_param(), plain.typers_own()):
                    try:
                        results.append(converter.coerce(value, param=param, ctx=context))
                    except BadParameter as error:
                        results.append(error.format_message())
                assert results[0] == results[1], (name, param.name, value)
