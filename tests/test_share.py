"""The man page and completion files of the wheel: fresh, of every command, and used by the shells themselves."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from visterm.cli.command_line import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
SHARE = ROOT / "share"
MAKE_SHARE = runpy.run_path(str(ROOT / "docs" / "make_share.py"))

COMPLETE = {
    "bash": """
        source {share}/bash-completion/completions/visterm
        COMP_WORDS=(visterm se) COMP_CWORD=1
        _visterm_completion visterm
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """,
    "zsh": """
        _arguments() {{ print -rl -- "$@" }}  # what completes in a line being typed
        words=(visterm se) CURRENT=2
        source {share}/zsh/site-functions/_visterm
    """,
    "fish": "source {share}/fish/vendor_completions.d/visterm.fish; complete --do-complete 'visterm se'",
}


@pytest.fixture
def shell(tmp_path):
    """Run lines in a shell that finds a program `visterm`, which is this one."""
    program = tmp_path / "visterm"
    program.write_text(f"#!{sys.executable}\nfrom visterm.cli import main\nmain()\n", encoding="utf-8")
    program.chmod(0o755)
    paths = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    environment = {**os.environ, "PATH": paths, "HOME": str(tmp_path)}

    def run(name, lines):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not on this machine")
        return subprocess.run([name, "-c", lines], env=environment, capture_output=True, text=True, check=False)

    return run


def test_every_file_under_share_is_what_the_commands_make():
    made = MAKE_SHARE["files"]()
    lies = {str(path.relative_to(SHARE)): path for path in SHARE.rglob("*") if path.is_file()}
    assert set(lies) == set(made)
    assert [name for name, path in lies.items() if path.read_text(encoding="utf-8") != made[name]] == [], (
        "Run: make docs"
    )


def test_the_man_page_has_each_command_with_its_options():
    page = (SHARE / "man" / "man1" / "visterm.1").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f'.SS "visterm {name.replace("-", chr(92) + "-")} ' not in page] == []
    assert r"\fB\-\-tag\-rules FILE\fR" in page
    assert MAKE_SHARE["roff"](r".a-b\c") == r"\&.a\-b\ec"


def test_man_reads_the_page_without_a_warning():
    if shutil.which("man") is None or shutil.which("groff") is None:
        pytest.skip("man and groff are not on this machine")
    page = SHARE / "man" / "man1" / "visterm.1"
    read = subprocess.run(
        ["man", "--warnings", "-l", str(page)],
        env={**os.environ, "MANPAGER": "cat", "MANWIDTH": "100", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert read.stderr == ""
    assert "\n   visterm fit [OPTIONS] [IMAGES...]\n" in read.stdout


@pytest.mark.parametrize("name", COMPLETE)
def test_a_shell_completes_a_command_by_the_file(name, shell):
    done = shell(name, COMPLETE[name].format(share=SHARE))
    assert done.stderr == ""
    assert "search" in done.stdout
    assert "serve" in done.stdout
    assert "annotate" not in done.stdout
