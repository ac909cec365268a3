"""Write the tiny run, features folder and catalogue beside this file, and the answers of the commands, with this code.

    python tests/data/tiny/write.py

It runs with the code of 0.1.0 only: these folders stay as they are, so that later code is known to open them.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from visterm import Catalogue
from visterm.store.database import FORMAT

TINY = Path(__file__).parent
WORK = Path("/tmp/visterm_tiny")  # Always the same, as paths are stored
WRITTEN = ("features", "run", "catalogue")
PASSING = ("writer.lock", "*.times.json")  # Who wrote last, and how long it took
COMMANDS = (
    "encode images -o features --encoder visterms --encoder-set codebook=20 --encoder-set colours=6 --encoder-set "
    "'scales=[1.0]' --encoder-set max_side=32 --encoder-set sample_blocks=800",
    "fit features --tags tags.csv --model wsabie --set dim=8 --set epochs=30 --tag-rules tags.toml -o run",
    "index run images --tags tags.csv -o catalogue",
)


def visterm(command: str) -> str:
    """Run a command in the working folder and return what it prints."""
    words = [sys.executable, "-m", "visterm", *shlex.split(command)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, cwd=WORK, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Write all of it."""
    if FORMAT > 1:
        sys.exit("These folders are of 0.1.0. Write those of a later release into a folder beside this one.")
    shutil.rmtree(WORK, ignore_errors=True)
    shutil.copytree(TINY, WORK, ignore=shutil.ignore_patterns(*WRITTEN))
    for command in COMMANDS:
        visterm(command)
    catalogue = Catalogue.load(WORK / "catalogue")
    catalogue.judge(43, "sky", 1)
    catalogue.judge(44, "sky", -1)
    catalogue.give(45, ["from my own hand"])
    catalogue.stored.close()
    for folder in WRITTEN:
        shutil.rmtree(TINY / folder)
        shutil.copytree(WORK / folder, TINY / folder, ignore=shutil.ignore_patterns(*PASSING))
    answers = json.loads((TINY / "expected.json").read_text(encoding="utf-8"))
    answers = {command: [json.loads(line) for line in visterm(command).splitlines()] for command in answers}
    parts = (
        f"{json.dumps(command)}: [\n " + ",\n ".join(json.dumps(line, ensure_ascii=False) for line in lines) + "]"
        for command, lines in answers.items()
    )
    (TINY / "expected.json").write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    os.umask(0o022)
    main()
