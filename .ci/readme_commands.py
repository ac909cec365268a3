"""Run every `sh` and `python` block of some Markdown files, in order, and stop at the first that fails.

A block whose last command is `visterm serve` runs until its service knows tags, and is then ended by Ctrl-C.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

SERVE = "visterm serve "


def blocks(text: str) -> list[tuple[str, str]]:
    """Return (language, code) of each fenced block that is meant to be run."""
    found, language, lines = [], None, []
    for line in text.splitlines():
        if line.startswith("```"):
            if language is None:
                language, lines = line[3:].strip() or "text", []
            else:
                if language in ("sh", "python"):
                    found.append((language, "\n".join(lines)))
                language = None
        elif language is not None:
            lines.append(line)
    return found


def serve(code: str, environment: dict[str, str]) -> int:
    """Run a block that ends in a service; return its exit code after the service has learned tags."""
    commands, _, last = code.rpartition("\n")
    script = f"{commands}\nexec {last}"
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        address = None
        for line in process.stderr:
            print(line, end="", flush=True)
            if address := re.search(r"http://[0-9.]+:\d+", line):
                break
        while address and process.poll() is None:
            with urlopen(f"{address[0]}/api/v1/about", timeout=60) as answer:
                if json.load(answer)["tags"]:
                    process.send_signal(signal.SIGINT)
                    break
            time.sleep(1)
        print(process.stderr.read(), flush=True)
        return process.wait()


def main() -> None:
    environment = os.environ | {"XDG_DATA_HOME": str(Path("user_data").resolve())}
    found = [(page, *block) for page in sys.argv[1:] for block in blocks(Path(page).read_text(encoding="utf-8"))]
    for page, language, code in found:
        print(f"\n=== {language}\n{code}\n===", flush=True)
        began = time.monotonic()
        program = ["bash", "-euo", "pipefail", "-c"] if language == "sh" else [".venv/bin/python", "-c"]
        if language == "sh" and code.rpartition("\n")[2].startswith(SERVE):
            status = serve(code, environment)
        else:
            status = subprocess.run([*program, code], check=False, env=environment).returncode
        print(f"=== exit code {status} after {time.monotonic() - began:.0f} s", flush=True)
        if status != 0:
            sys.exit(f"A command of {page} failed.")
        if language == "sh" and ".venv/bin/activate" in code:  # as in the reader's shell, from then on
            environment["PATH"] = f"{Path('.venv/bin').resolve()}{os.pathsep}{os.environ['PATH']}"


main()
