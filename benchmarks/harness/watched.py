"""A child process whose anonymous memory is watched while it works: file maps and caches do not count."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SAMPLED_EVERY = 0.02


def watched(file: str, arguments: list[str]) -> dict[str, Any]:
    """Run a benchmark's file as a child, and give the JSON of its last line with the peak of its anonymous memory."""
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, file, "--child", *arguments], stdout=subprocess.PIPE, text=True)
    peak = 0
    while child.poll() is None:
        peak = max(peak, anonymous_bytes(child.pid))
        time.sleep(SAMPLED_EVERY)
    told = child.communicate()[0]
    if child.returncode:
        raise SystemExit(f"The child {arguments} ended with {child.returncode}.")
    return {"peak_anonymous": peak, "seconds": time.perf_counter() - start, **json.loads(told.splitlines()[-1])}


def anonymous_bytes(pid: int | str) -> int:
    """Return the anonymous memory of a process, 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in status.splitlines() if line[:8] == "RssAnon:")
