"""The command line, run in the tests' own process: quick, as nothing is imported anew."""

from __future__ import annotations

import contextlib
import io
import shlex
import sys

import pytest

from visterm.cli import main


def visterm(line, cwd):
    """Run a line of the command line in a folder: exit code, standard output, and standard error on one line."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["visterm", *shlex.split(line)])
        with pytest.raises(SystemExit) as ended:
            main()
    return ended.value.code, out.getvalue(), " ".join(err.getvalue().split())
