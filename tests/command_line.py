"""The command line, run in the tests' own process: quick, as nothing is imported anew."""

from __future__ import annotations

import contextlib
import io
import shlex
import subprocess
import sys

import pytest

from visterm.cli import main


def visterm(line, cwd):
    """Run a line of the command line in a folder: exit code, standard output, and standard error on one line."""
    done = run_command(shlex.split(line), cwd)
    return done.returncode, done.stdout, " ".join(done.stderr.split())


def run_command(arguments, cwd=None):
    """Run a command in a folder, or in this one, and give what `subprocess.run` would."""
    out, err = io.StringIO(), io.StringIO()
    command = ["visterm", *map(str, arguments)]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if cwd is not None:
            patch.chdir(cwd)
        patch.setattr(sys, "argv", command)
        try:
            main()
        except SystemExit as end:  # kept no longer than here: its traceback holds the command's open catalogue
            code = end.code
        else:
            pytest.fail(f"{command} did not end by an exit")
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())
