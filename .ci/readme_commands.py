"""Run every `sh` and `python` block of some Markdown files, in order, and stop at the first that fails."""

import os
import subprocess
import sys
import time
from pathlib import Path


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


def main() -> None:
    environment = dict(os.environ)
    found = [(page, *block) for page in sys.argv[1:] for block in blocks(Path(page).read_text(encoding="utf-8"))]
    for page, language, code in found:
        print(f"\n=== {language}\n{code}\n===", flush=True)
        began = time.monotonic()
        program = ["bash", "-euo", "pipefail", "-c"] if language == "sh" else [".venv/bin/python", "-c"]
        result = subprocess.run([*program, code], check=False, env=environment)
        print(f"=== exit code {result.returncode} after {time.monotonic() - began:.0f} s", flush=True)
        if result.returncode != 0:
            sys.exit(f"A command of {page} failed.")
        if language == "sh" and ".venv/bin/activate" in code:  # as in the reader's shell, from then on
            environment["PATH"] = f"{Path('.venv/bin').resolve()}{os.pathsep}{os.environ['PATH']}"


main()
