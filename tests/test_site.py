"""The pages of the site that are made from the code have all of it, and commands on the pages exist."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.main import get_command

import visterm
from command_line import run_command
from visterm.cli import command_line
from visterm.core.tables import ENCODERS, MODELS
from visterm.evaluation.evaluate_run import EvaluateRequest
from visterm.learning.fit_request import FitRequest
from visterm.models.base import Annotator

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))]
PAGES += sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "methods").glob("*.md"))


@pytest.fixture(scope="module", autouse=True)
def extensions():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs" / "extensions")
        yield
        for name in ("command_pages", "http_page", "python_page", "site_pages"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def commands():
    return import_module("command_pages").command_pages()


def test_a_command_s_page_has_each_option_of_its_help(commands):
    missing = []
    for name in command_line.COMMANDS:
        shown = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", run_command([name, "--help"]).stdout, flags=re.MULTILINE))
        missing += [(name, option) for option in shown if f"`{option}" not in commands[f"commands/{name}"]]
        assert f"[`visterm {name}`](commands/{name}.md)" in commands["commands"]
    assert missing == []


def test_the_list_of_commands_leads_to_the_commands_of_visterm_research(commands):
    assert "`visterm demo`: Draw a small photo library, and try everything on it.\n" in commands["commands"]
    assert "`visterm reproduce`" in commands["commands"]
    assert "(/research/README.md)" in commands["commands"]
    assert (ROOT / "research" / "README.md").is_file()


def test_the_page_of_http_has_each_request_and_each_of_its_links_leads_to_an_object():
    module = import_module("http_page")
    page, paths = module.http_page(), module.description()["paths"]
    assert [path for path, methods in paths.items() for m in methods if f"### `{m.upper()} {path}`" not in page] == []
    headings = {line.removeprefix("### ").lower() for line in page.splitlines() if line.startswith("### ")}
    links = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert len(links) > 10
    assert links - headings == set()


def test_tables_break_lines_between_figures_alone():
    unbroken = import_module("site_pages").unbroken
    assert unbroken("27.30 % / 26.10 %").split(" ") == ["27.30\xa0%\xa0/", "26.10\xa0%"]
    assert unbroken("p < 0.01 in 12 ms, 3 months").split(" ") == ["p", "<\xa00.01", "in", "12\xa0ms,", "3", "months"]
    assert unbroken("5.8e-09") == "5.8e-\u206009"


def test_the_page_of_python_lists_each_public_name():
    page = import_module("python_page").python_page()
    names = [f"visterm.{name}" for name in visterm.__all__ if name not in ("models", "encoders")]
    for table in (MODELS, ENCODERS):
        for entry in table:
            package = entry.package.replace("-", "_")
            names.append(f"{package}.{table.kind}s.{entry.target.partition(':')[2]}")
    assert [name for name in names if f"   {name}\n" not in page] == []


@pytest.mark.parametrize(
    ("function", "request_class", "made"),
    [(visterm.fit, FitRequest, {"encoder_params", "model_params"}), (visterm.evaluate, EvaluateRequest, {"runs"})],
    ids=["fit", "evaluate"],
)
def test_each_field_of_a_request_is_a_described_parameter(function, request_class, made):
    """`made` are fields whose defaults the function makes."""
    parameters = inspect.signature(function).parameters
    defaults = {field.name: field.default for field in dataclasses.fields(request_class)}
    assert parameters.keys() - defaults.keys() == {"say", "progress"}
    assert defaults.keys() - parameters.keys() == set()
    lines = re.findall(r"^    (\w[\w, ]*) :", function.__doc__, re.MULTILINE)
    assert [name for line in lines for name in line.split(", ")] == list(parameters)
    assert {name: parameters[name].default for name in defaults.keys() - made} == {
        name: default for name, default in defaults.items() if name not in made
    }


def test_each_class_that_a_model_s_page_refers_to_for_its_settings_has_a_page():
    page = import_module("python_page")
    links, text = page.linked_names(), page.python_page()
    models = [getattr(visterm.models, name.rpartition(".")[2]) for name in page.classes("visterm.models", MODELS)]
    referred = {
        name
        for cls in [*models, *page.shared_bases()]
        for name in re.findall(r"(?:As in|those of|described in) `([A-Z]\w+)`", cls.__doc__)
    }
    assert {"EmbeddingRanker", "VotingAnnotator", "DeepTagger", "LinearAnnotator"} <= referred
    assert [name for name in sorted(referred) if name not in links or f"   {links[name]}\n" not in text] == []


def test_a_model_s_page_lists_the_methods_that_it_has_beside_those_of_every_model():
    further = import_module("python_page").further_methods()
    assert {"partial_fit", "add_tags", "fit_stream", "explain", "fit_queries"} <= set(further)
    assert [name for name in further if hasattr(Annotator, name)] == []


def commands_in(text):
    """Yield each command of visterm in the blocks of a page, without comments and what it is piped into."""
    for block in re.findall(r"^```(?:sh|text)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            for command in re.split(r"&&|;|\|", line.partition(" #")[0]):
                if command.strip().startswith("visterm "):
                    yield command.strip()


def test_each_command_of_a_page_exists_with_its_options():
    group = get_command(command_line.app)
    unknown = []
    for line in [line for page in PAGES for line in commands_in((ROOT / page).read_text(encoding="utf-8"))]:
        _, name, *words = shlex.split(line)
        if name not in command_line.COMMANDS:
            known = {"--help", *command_line.PACKAGE_COMMANDS}
            unknown += [line] if name not in known else []
            continue
        known = {option for param in group.resolve_command(None, [name])[1].params for option in param.opts}
        options = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"}
        unknown += [f"{option} in: {line}" for option in options - known - {"--help"}]
    assert unknown == []
