"""What `deploy/` names is there: commands and options, extras, files and secrets; and systemd takes the unit."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from visterm.cli.command_line import COMMANDS, PACKAGE_COMMANDS, app
from visterm.connectors.contract import KINDS

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
UNIT = DEPLOY / "visterm@.service"
COMPOSE = {name: DEPLOY / "compose" / f"{name}.yml" for name in KINDS}


def _try_image():
    spec = importlib.util.spec_from_file_location("try_image", DEPLOY / "try_image.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["try_image"] = module
    spec.loader.exec_module(module)
    return module


try_image = _try_image()


@pytest.fixture(scope="module")
def image():
    """The last stage of the Dockerfile, as `deploy/try_image.py` reads it, without doing anything."""
    read = list(try_image.instructions(try_image.DOCKERFILE.read_text(encoding="utf-8")))
    last = max(number for number, step in enumerate(read) if step.word == "FROM")
    return read[last:], read


def parsed(words):
    """Parse a command of visterm as it stands in a file; a wrong option or command raises."""
    name, command, rest = get_command(app).resolve_command(None, list(words))
    return name, command.make_context(name, rest).params


def services(file):
    return yaml.safe_load(file.read_text(encoding="utf-8"))["services"]


def test_the_command_of_the_image_is_one_of_visterm_and_serves_the_catalogue_in_data(image):
    steps = {step.word: step.rest for step in image[0]}
    assert yaml.safe_load(steps["ENTRYPOINT"]) == [*PROJECT["scripts"]]
    name, params = parsed(yaml.safe_load(steps["CMD"]))
    assert (name, params["folder"], params["port"]) == ("serve", Path("/data/catalogue"), 8080)
    assert steps["EXPOSE"] == str(params["port"])
    assert f":{params['port']}/api/v1/health" in steps["HEALTHCHECK"]


def test_the_environment_that_is_built_is_run_by_the_same_python(image):
    assert len({step.rest.removesuffix(" AS build") for step in image[1] if step.word == "FROM"}) == 1


def test_the_image_runs_as_a_user_without_rights_who_owns_nothing_but_data(image):
    steps = [step for step in image[0] if step.word in ("USER", "RUN", "COPY")]
    uid = steps[-1].rest.split(":")[0]
    assert steps[-1].word == "USER"
    assert int(uid) > 0
    assert [step.rest for step in steps if f"--owner={uid}" in step.rest] == [
        f"install --directory --owner={uid} --group={uid} /data"
    ]
    assert not any({"chown", "chmod"} & step.flags.keys() for step in steps)


def test_all_that_the_image_writes_goes_to_data(image):
    env = dict(pair.split("=", 1) for step in image[0] if step.word == "ENV" for pair in step.rest.split())
    assert [env[name].split("/")[1] for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")] == ["data"] * 3
    assert [step.rest for step in image[0] if step.word == "VOLUME"] == ["/data"]


def test_the_build_installs_extras_that_there_are_from_files_that_it_is_sent(image):
    installed = next(step.rest for step in image[1] if "/source[" in step.rest)
    extras = re.search(r"/source\[([\w,]+)\]", installed)[1].split(",")
    assert set(extras) <= PROJECT["optional-dependencies"].keys()
    sent = [name for step in image[1] if step.word == "COPY" and not step.flags for name in step.rest.split()[:-1]]
    assert [name for name in sent if try_image.ignored(name) or not (ROOT / name).exists()] == []
    assert try_image.ignored(".git")
    assert try_image.ignored("tests")


@pytest.mark.parametrize("name", COMPOSE)
def test_the_services_beside_another_program_run_commands_that_there_are(name):
    for service in services(COMPOSE[name]).values():
        command, params = parsed(service["command"])
        assert (params.get("folder") or params["catalogue"]) == Path("/data/catalogue")
        named = {str(value) for value in params.values() if str(value).startswith("/run/secrets/")}
        assert named <= {f"/run/secrets/{secret}" for secret in service["secrets"]}
        assert command == "serve" or service["healthcheck"] == {"disable": True}


@pytest.mark.parametrize("name", COMPOSE)
def test_the_services_are_read_only_without_rights_and_their_secrets_are_files(name):
    read = yaml.safe_load(COMPOSE[name].read_text(encoding="utf-8"))
    for service in read["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["user"].startswith("${VISTERM_USER:?")
        assert [volume["target"] for volume in service["volumes"]] == ["/data"]
        # Compose refuses other kinds of secrets in a service with a read-only root.
        assert {frozenset(read["secrets"][secret]) for secret in service["secrets"]} == {frozenset({"file"})}
        assert not any("token" in word and "/" not in word for word in service["command"] if not word.startswith("-"))
    assert read["services"]["visterm"]["ports"] == ["127.0.0.1:8080:8080"]


def test_the_commands_that_the_page_of_installing_shows_are_there():
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```text\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith(("alias", "OPTIONS"))]
    shown = []
    for line in lines:
        words = shlex.split(line, comments=True)
        starts = [i for i, word in enumerate(words) if re.fullmatch(r"(\S*bin/)?visterm(-sync)?", word)]
        shown += [words[i + 1 :] for i in starts if words[i + 1 : i + 2] and words[i + 1].isalpha()]
    shown += [[name, *words.split()] for name, words in re.findall(r"(\w+)\.conf << 'END'\nOPTIONS=(.+)", text)]
    commands = [parsed(words) for words in shown if words[0] not in PACKAGE_COMMANDS]
    assert {name for name, _ in commands} == {"connect", "fit", "index", "serve", "sync"}
    assert {params["program"] for name, params in commands if name == "connect"} == set(KINDS)


def test_the_page_of_installing_names_each_extra_in_its_table():
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    rows = [row.split("|")[1] for row in re.findall(r"^\| `.*", text, flags=re.MULTILINE)]
    assert set(re.findall(r"`(\w+)`", "".join(rows))) == PROJECT["optional-dependencies"].keys() - {
        "dev",
        "docs",
    }  # of those who change visterm


def test_the_gate_tries_each_python_that_the_project_says_it_is_for():
    said = [found[1] for line in PROJECT["classifiers"] if (found := re.search(r":: (3\.\d+)$", line))]
    assert f"for version in {' '.join(said)}; do" in (ROOT / ".ci" / "wheels").read_text(encoding="utf-8")
    assert PROJECT["requires-python"] == f">={said[0]}"


def test_the_distribution_of_the_comparisons_asks_for_this_version():
    research = tomllib.loads((ROOT / "research" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert research["version"] == PROJECT["version"]
    assert [need for need in research["dependencies"] if need.startswith("visterm")] == [
        f"visterm[plot]=={PROJECT['version']}"
    ]


def test_the_unit_names_a_command_of_visterm():
    start = re.search(r"^ExecStart=(.*)", UNIT.read_text(encoding="utf-8"), flags=re.MULTILINE)[1]
    assert start == "/opt/visterm/bin/visterm %i $OPTIONS"
    text = UNIT.read_text(encoding="utf-8")
    assert set(re.findall(r"visterm@(\w+)", text)) <= set(COMMANDS)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="wants systemd-analyze, of the package systemd")
def test_systemd_takes_the_unit(tmp_path):
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/visterm/bin/visterm", sys.executable), "utf-8")
    assert _found_by_systemd(here) == (0, [])
    here.write_text(here.read_text("utf-8").replace("ProtectSystem=strict", "ProtectSystem=yess"), "utf-8")
    assert [line for line in _found_by_systemd(here)[1] if "yess" in line]


def _found_by_systemd(unit):
    """Return the exit code, and what it says about this unit: it looks at others, too."""
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    return done.returncode, [line for line in done.stderr.splitlines() if unit.name in line or "visterm@" in line]
