"""Python as on Windows, as far as Linux can play it: put this folder on PYTHONPATH, and children have it, too.

What visterm's modules import as `os`, `signal`, `socket`, `mmap` and `time` lacks the names that are not on Windows
(those that typeshed has on other systems only), and modules such as `fcntl` and `resource` are not there for them.
Python's own modules and other packages keep what they need. For all of them a folder can't be opened or replaced, a
file or a folder can't be renamed, replaced or removed while this process has the file, or one in the folder, open or
mapped, and a mapped file can't be shortened.

Not played: what other processes have open, files that compiled libraries rename or remove, names without capitals,
``\\`` between folders, line ends, and a temporary file that can't be opened a second time. `sys.platform` stays that of
Linux: visterm asks what the system can do.
"""

import builtins
import os
import re
import shutil
import sys
import tempfile
import types

GONE_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}

GONE = {
    "os": r"CLD_.+|EFD_.+|EX_.+|F_.+|GRND_.+|MFD_.+|POSIX_.+|PRIO_.+|P_(ALL|PGID|PID|PIDFD)|RTLD_.+|RWF_.+|SCHED_.+|"
    r"SEEK_(DATA|HOLE)|SPLICE_.+|ST_.+|XATTR_.+|W(CONTINUED|COREDUMP|EXITED|EXITSTATUS|IF.+|NOHANG|NOWAIT|STOP.+|TERMSIG|"
    r"UNTRACED)|O_(ACCMODE|ASYNC|CLOEXEC|DIRECT|DIRECTORY|DSYNC|FSYNC|LARGEFILE|NDELAY|NOATIME|NOCTTY|NOFOLLOW|NONBLOCK|"
    r"PATH|RSYNC|SYNC|TMPFILE)|[gs]et_blocking|[gs]ete?[gu]id|[gs]etgroups|[gs]etpgid|[gs]etpgrp|[gs]etpriority|"
    r"[gs]etre[su]?[gu]id|[gs]etsid|[gs]etxattr|chown|chroot|confstr.*|copy_file_range|ctermid|environb|eventfd.*|fchdir|"
    r"fchmod|fchown|fdatasync|fork|forkpty|fpathconf|fstatvfs|fwalk|getenvb|getgrouplist|getloadavg|getrandom|initgroups|"
    r"killpg|lchmod|lchown|listxattr|lockf|login_tty|major|makedev|memfd_create|minor|mkfifo|mknod|nice|openpty|"
    r"pathconf.*|pidfd_open|pipe2|posix_.+|preadv?|pwritev?|readv|register_at_fork|removexattr|sched_.+|sendfile|setns|"
    r"spawn[lv]pe?|splice|statvfs|sync|sysconf.*|tcgetpgrp|tcsetpgrp|ttyname|uname|unshare|wait|wait[34]|waitid.*|writev",
    "signal": r"ITIMER_.+|ItimerError|SIG(?!ABRT$|FPE$|ILL$|INT$|SEGV$|TERM$|_DFL$|_IGN$)[A-Z]\w*|SIG_(UN)?BLOCK|"
    r"SIG_SETMASK|Sigmasks|alarm|getitimer|pause|pidfd_.+|pthread_.+|setitimer|siginterrupt|sigpending|sigtimedwait|sigwait.*|"
    r"struct_siginfo",
    "socket": r"AF_(?!INET6?$|UNSPEC$|BLUETOOTH$)\w+|CMSG_.+|SCM_.+|SOCK_(CLOEXEC|NONBLOCK)|"
    r"SO_(REUSEPORT|PEERCRED|MARK)|MSG_(CMSG_CLOEXEC|CONFIRM|DONTWAIT|EOR|FASTOPEN|MORE|NOSIGNAL)|TCP_(CORK|INFO|QUICKACK|USER_TIMEOUT)|"
    r"recv_fds|send_fds|sethostname",
    "mmap": r"MADV_.+|MAP_.+|PROT_.+",
    "time": r"CLOCK_.+|clock_.+|pthread_.+|tzset",
}  # fmt: skip


class AsOnWindows(types.ModuleType):
    """A module of Python without the names that it doesn't have on Windows."""

    def __init__(self, real, gone):
        super().__init__(real.__name__)
        self._real, self._gone = real, re.compile(gone)

    def __getattr__(self, name):
        if self._gone.fullmatch(name):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}' on Windows")
        return getattr(self._real, name)


def kill(process, signal):
    """Refuse to ask by signal 0 whether a process runs: on Windows that ends it."""
    raise AssertionError(f"os.kill({process}, {signal}) would end the process on Windows")


def importing(name, globals=None, locals=None, fromlist=(), level=0):  # as Python calls it
    """Import a module, for visterm as it is on Windows."""
    module = real_import(name, globals, locals, fromlist, level)
    if level or not re.match(r"visterm\b", str((globals or {}).get("__package__") or "")):
        return module
    if name.partition(".")[0] in GONE_MODULES:
        raise ModuleNotFoundError(f"No module named '{name}' on Windows", name=name)
    return views.get(module.__name__, module)


def in_use(path, *, mapped_only=False):
    """Return whether this process has a file, or one in a folder, open or mapped."""
    folder, name = os.path.split(os.path.abspath(path))
    path = os.path.join(os.path.realpath(folder), name)  # a link is removed, not what it leads to
    with real_open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        used = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if line.count(" ") and "/" in line}
    for number in () if mapped_only else os.listdir("/proc/self/fd"):
        try:
            used.add(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # that of the list itself
    return any((name == path or name.startswith(f"{path}/")) and os.path.isfile(name) for name in used)


def refuses(name, *, mapped_only=False):
    """Let a function of `os` refuse paths that are in use."""
    real = getattr(os, name)

    def checked(path, *others, **settings):
        for each in (path, *(other for other in others if isinstance(other, str | os.PathLike))):
            if isinstance(each, str | os.PathLike) and in_use(each, mapped_only=mapped_only):
                raise PermissionError(
                    13, "The process cannot access the file because it is being used", os.fspath(each)
                )
        if name in ("rename", "replace") and os.path.isdir(others[0]):
            raise PermissionError(13, "Access is denied", os.fspath(others[0]))
        return real(path, *others, **settings)

    setattr(os, name, checked)


def open_no_folder(path, flags, mode=0o777, *, dir_fd=None):
    """Open a file, and no folder."""
    if not isinstance(path, int) and os.path.isdir(path):
        raise PermissionError(13, "Permission denied", os.fspath(path))
    return real_os_open(path, flags, mode, dir_fd=dir_fd)


if os.path.isdir("/proc/self/fd"):
    import asyncio  # noqa: F401  # Python's own modules see all of Linux
    import multiprocessing.connection  # noqa: F401
    import subprocess  # noqa: F401

    real_import, real_open, real_os_open = builtins.__import__, open, os.open
    views = {name: AsOnWindows(real_import(name), gone) for name, gone in GONE.items()}
    views["os"].kill = kill
    os.open = open_no_folder
    for name in ("remove", "rename", "replace", "unlink"):
        refuses(name)
    refuses("truncate", mapped_only=True)
    shutil._use_fd_functions = False  # rmtree goes by path, as on Windows
    tempfile.TemporaryFile = tempfile.NamedTemporaryFile  # as in Python's own module on Windows
    builtins.__import__ = importing
    sys.modules["windows_like"] = sys.modules[__name__]
