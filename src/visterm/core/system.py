"""Functions that differ between operating systems: limits of a process, whether a process runs, memory size."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

_limits: Any = None
with suppress(ImportError):  # Windows has no such limits
    import resource

    _limits = resource

_SYNCHRONIZE, _STILL_WAITING, _ACCESS_DENIED = 0x100000, 0x102, 5  # Constants of the Windows API

DEFAULT_MEMORY_BYTES = 2**32  # Used if the size of the memory is unknown


def limit_of(name: str) -> int | None:
    """Return a limit of this process by its name, such as ``RLIMIT_NOFILE``; None if it is unlimited."""
    if _limits is None:
        return None
    limit: int = _limits.getrlimit(getattr(_limits, name))[0]
    return None if limit == _limits.RLIM_INFINITY else limit


def limit_this_process(**limits_by_name: int) -> None:
    """Lower limits of this process permanently, such as ``RLIMIT_AS``; does nothing on Windows."""
    for name, limit in limits_by_name.items() if _limits is not None else ():
        kind = getattr(_limits, name)
        _, hard_limit = _limits.getrlimit(kind)
        new_limit = limit if hard_limit == _limits.RLIM_INFINITY else min(limit, hard_limit)
        _limits.setrlimit(kind, (new_limit, new_limit))


def user_file(name: str, variable: str) -> Path:
    """Return the path of a file of user settings: from an environment variable, or else in visterm's folder."""
    if path := os.environ.get(variable):
        return Path(path).expanduser()
    from typer import get_app_dir

    return Path(get_app_dir("visterm")) / name


def cache_file(name: str) -> Path:
    """Return the path of a file that can be made again, in visterm's folder of ``XDG_CACHE_HOME`` or ``~/.cache``."""
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(folder) / "visterm" / name


def is_alive(pid: int) -> bool:
    """Return whether a process on this machine is running; True if unknown."""
    if not hasattr(signal, "SIGKILL"):  # Windows, where `os.kill` ends a process whatever the signal is
        return _is_alive_on_windows(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def memory_bytes() -> int:
    """Return the size of this machine's memory in bytes."""
    if hasattr(os, "sysconf"):
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    windows = getattr(ctypes, "windll", None)
    if windows is None:
        return DEFAULT_MEMORY_BYTES
    status = (ctypes.c_uint64 * 8)()  # MEMORYSTATUSEX: [0] is its length and the load, [1] the size of the memory
    ctypes.cast(status, ctypes.POINTER(ctypes.c_uint32))[0] = ctypes.sizeof(status)
    windows.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return int(status[1]) or DEFAULT_MEMORY_BYTES


def _is_alive_on_windows(pid: int) -> bool:
    windows = getattr(ctypes, "WinDLL", None)
    if windows is None:
        return True
    kernel = windows("kernel32", use_last_error=True)
    process = kernel.OpenProcess(_SYNCHRONIZE, False, pid)
    if not process:
        return bool(ctypes.get_last_error() == _ACCESS_DENIED)  # type: ignore[attr-defined,unused-ignore]
    try:
        return bool(kernel.WaitForSingleObject(process, 0) == _STILL_WAITING)
    finally:
        kernel.CloseHandle(process)
