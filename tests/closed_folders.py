"""Folders and files that this user may not open, whoever runs the tests: the system's answers, as Python gives them."""

from __future__ import annotations

import builtins
import errno
import io
import os

import pytest


def close(monkeypatch: pytest.MonkeyPatch, *paths: os.PathLike[str]) -> None:
    """Deny some folders, with all that is in them, and some files: until `monkeypatch` takes it back."""
    denied = [os.fspath(path) for path in paths]

    def guard(module, name, *, inside_only=False):
        real = getattr(module, name)

        def guarded(path=".", *args, **options):
            full = os.path.abspath(path) if isinstance(path, str | os.PathLike) else ""
            if any(full.startswith(f"{one}{os.sep}") or (full == one and not inside_only) for one in denied):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
            return real(path, *args, **options)

        monkeypatch.setattr(module, name, guarded)

    for module, name in ((os, "scandir"), (os, "listdir"), (os, "open"), (io, "open"), (builtins, "open")):
        guard(module, name)
    for name in ("stat", "lstat"):
        guard(os, name, inside_only=True)
