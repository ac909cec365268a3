"""What people look for in a project: the files parse, their versions agree, and what they name is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from visterm.core.tables import ENCODERS, MODELS

ROOT = Path(__file__).resolve().parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RESEARCH = tomllib.loads((ROOT / "research" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_one_version_stands_everywhere():
    assert CITATION["version"] == RESEARCH["version"] == PROJECT["version"]
    assert [each for each in RESEARCH["dependencies"] if each.startswith("visterm")] == [
        f"visterm[plot]=={PROJECT['version']}"
    ]


def test_no_test_of_visterm_needs_visterm_research():
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    needing = re.compile(r"^\s*(from|import) visterm_research\b", re.MULTILINE)
    assert [path.name for path in files if needing.search(path.read_text(encoding="utf-8"))] == []


def test_the_citation_has_the_papers_of_the_models_and_encoders_and_names_these():
    assert CITATION["license"] == PROJECT["license"]
    assert CITATION["abstract"] == PROJECT["description"]
    entries = [*MODELS, *ENCODERS]
    for paper in CITATION["references"]:
        first = paper["authors"][0]["family-names"]
        found = {entry.name for entry in entries if re.match(rf"{first}\b", entry.paper)}
        assert found
        assert found == set(re.findall(r"\w+", paper["notes"])) & {entry.name for entry in entries}, first
    assert len(CITATION["references"]) == 5


def test_project_addresses_are_not_made_up():
    """Until there is a public address there is none; then `Source` is the one that the workflow compares."""
    assert "urls" not in PROJECT or "Source" in PROJECT["urls"]
    assert PROJECT.get("urls") == RESEARCH.get("urls")
    assert ("repository-code" in CITATION) == ("urls" in PROJECT)


@pytest.mark.parametrize("path", sorted(GITHUB.rglob("*.yml")), ids=lambda path: path.name)
def test_a_file_of_github_parses(path):
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


@pytest.mark.parametrize("path", sorted((GITHUB / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda path: path.name)
def test_an_issue_form_has_a_name_and_labelled_fields_with_ids_of_their_own(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_is_there_with_few_rights_and_pinned_actions(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {}
    steps = [(job, step) for job in workflow["jobs"].values() for step in job["steps"]]
    used = [step["uses"] for _, step in steps if "uses" in step]
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)] == []
    commands = "\n".join(step["run"] for _, step in steps if "run" in step)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make ([a-z-]+)", commands, flags=re.MULTILINE)
    assert [target for target in targets if f"\n{target}:" not in makefile] == []
    files = re.findall(r"(?:\.ci|docs)/[\w./]+", commands)
    assert [name for name in files if not (ROOT / name).exists()] == []
    assert targets or files


def test_every_python_that_visterm_is_for_is_tested_and_has_its_wheel_tried():
    versions = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each]
    jobs = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"] for path in WORKFLOWS}
    assert jobs["test"]["test"]["strategy"]["matrix"]["python"] == versions
    setup = next(step for step in jobs["wheels"]["try"]["steps"] if "setup-python" in step.get("uses", ""))
    assert setup["with"]["python-version"].split() == versions


def test_only_the_job_that_publishes_a_tag_may_speak_for_the_project():
    jobs = yaml.safe_load((GITHUB / "workflows" / "wheels.yml").read_text(encoding="utf-8"))["jobs"]
    assert [name for name, job in jobs.items() if "id-token" in job["permissions"]] == ["publish"]
    assert jobs["publish"]["if"] == "github.ref_type == 'tag'"
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}


def test_the_suite_ends_with_the_command_that_brings_the_programs_that_skipped_tests_need(request):
    end = request.config.pluginmanager.get_plugin(str(ROOT / "conftest.py")).pytest_unconfigure
    lines = []

    def end_with(*reasons):
        reports = [SimpleNamespace(longrepr=("tests/test_wordnet.py", 1, f"Skipped: {reason}")) for reason in reasons]
        terminal = SimpleNamespace(stats={"skipped": reports} if reports else {}, write_line=lines.append)
        end(SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin={"terminalreporter": terminal}.get)))

    end_with()
    end_with("there is no GPU", "wants the extra ray")
    assert lines == []
    end_with("wants Debian's chromium", "there is no GPU", "neither rawpy nor exiftool is installed", "No Chromium")
    assert lines == [
        "3 tests were skipped because these are missing: chromium, exiftool. To install them on Debian, run as root: "
        ".ci/debian"
    ]
    assert "\n.ci/debian\nmake test\n" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("program", ["chromium", "exiftool", "exiv2", "ffmpeg", "wordnet"])
def test_that_command_brings_each_of_them(program, request):
    programs = request.config.pluginmanager.get_plugin(str(ROOT / "conftest.py")).PROGRAMS
    assert program in [each.lower() for each in programs]
    script = (ROOT / ".ci" / "debian").read_text(encoding="utf-8")
    assert re.search(rf"\|\| wanted\+=\((libimage-)?{program}", script)
