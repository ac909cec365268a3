"""Which functions a command passes: traced on the real thing, counting only the frames of visterm."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest import mock

UNNAMED = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>", "<module>")
"""Code inside a function: it makes a stack deeper, but is no function that a reader looks for."""

WRITTEN = Path(__file__).parents[2] / "tests" / "data" / "tiny"
COMMANDS = {
    "search": ["search", "catalogue", "sky tree", "-k", "100"],
    "annotate": ["annotate", "run", "images/46.jpg"],
    "fit": ["fit", "features", "--tags", "tags.csv", "--model", "wsabie", "--set", "epochs=2", "-o", "new"],
}
"""The walks: a query to its ranking, an image to its tags, a fit to its kernel; in a folder of tests/data."""


class Step(NamedTuple):
    """A function of visterm: the file inside the package, and its qualified name."""

    file: str
    function: str

    def __str__(self) -> str:
        return f"{self.file}: {self.function}"


class Walk(NamedTuple):
    """What a command passed."""

    functions: list[Step]  # In the order in which they were first called
    deepest: list[Step]  # The deepest stack, from the command down; a compiled kernel that Python calls is a frame

    @property
    def files(self) -> set[str]:
        """The files passed."""
        return {step.file for step in self.functions}

    @property
    def returns(self) -> int:
        """How often a reader who looks the functions up in this order comes back to a file left before."""
        files = [step.file for step in self.functions]
        turned = [file for file, before in zip(files, ["", *files], strict=False) if file != before]
        return len(turned) - len(set(files))


class _Tracer:
    """Collects the functions of a package that are called, on every thread that starts meanwhile."""

    def __init__(self, root: Path) -> None:
        self._root = str(root) + os.sep
        self._steps: dict[CodeType, Step | None] = {}
        self._stacks = threading.local()
        self.walk: dict[Step, None] = {}
        self.deepest: list[Step] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if code not in self._steps:
            self._steps[code] = self._step(code)
        step = self._steps[code]
        if step is None:
            return
        stack: list[Step] = self._stacks.__dict__.setdefault("stack", [])
        if event == "return":
            if stack:
                stack.pop()
            return
        stack.append(step)
        if code.co_name not in UNNAMED:
            self.walk.setdefault(step)
        if len(stack) > len(self.deepest):
            self.deepest = list(stack)

    def _step(self, code: CodeType) -> Step | None:
        if not code.co_filename.startswith(self._root):
            return None
        return Step(code.co_filename.removeprefix(self._root).replace(os.sep, "/"), code.co_qualname)


def trace(root: Path, command: Sequence[str]) -> Walk:
    """Run a command of visterm in this folder and return what it passed in the package at `root`."""
    tracer = _Tracer(root)
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        run(command)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return Walk(list(tracer.walk), tracer.deepest)


def small_library(folder: Path) -> Path:
    """Copy the tiny run, catalogue and features into a folder."""
    return Path(shutil.copytree(WRITTEN, folder / "written"))


def walks(root: Path, folder: Path) -> Iterator[tuple[str, Walk]]:
    """Trace each walk in a small library; a first, untraced one loads everything."""
    work = small_library(folder)
    with contextlib.chdir(work), mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):
        for name, command in COMMANDS.items():
            run(command)
            shutil.rmtree("new", ignore_errors=True)
            yield name, trace(root, command)


def run(command: Sequence[str]) -> str:
    """Run a command as ``python -m visterm`` does, in this process, and return what it printed."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["visterm", *command]
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            runpy.run_module("visterm", run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = before
    if code:
        raise RuntimeError(f"visterm {' '.join(command)} ended with exit code {code}: {err.getvalue()}")
    return out.getvalue()
