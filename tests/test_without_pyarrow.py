"""The main job needs no pyarrow: from photos to tags, searches, figures and a table, as after `pip install visterm`."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TINY = Path(__file__).parent / "data" / "tiny"
COMMANDS = """\
encode images -o features --encoder visterms --encoder-set codebook=20 --encoder-set colours=6 --encoder-set max_side=32
fit features --tags tags.csv --model ridge -o run
annotate run features -k 2 --json
evaluate run features --tags tags.csv --json
index run images --tags tags.csv -o catalogue
search catalogue sky -k 3 --json
info catalogue --check
export catalogue --to csv -o written.csv
"""
PROGRAM = """
import json, shlex, sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, NotInstalled())
from typer.testing import CliRunner
from visterm.cli.command_line import app
outputs = {}
for line in sys.stdin:
    done = CliRunner().invoke(app, shlex.split(line))
    if done.exit_code:
        sys.exit(f"{line}{done.stderr}{done.exception!r}")
    outputs[line.split()[0]] = done.stdout.splitlines()
print(json.dumps(outputs))
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What the commands printed, by their names; "folder" is where they ran."""
    folder = tmp_path_factory.mktemp("work")
    shutil.copytree(TINY / "images", folder / "images")
    shutil.copy(TINY / "tags.csv", folder)
    program = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(program, input=COMMANDS, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) | {"folder": folder}


def test_photos_are_tagged_searched_and_measured(outputs):
    tagged = [json.loads(line) for line in outputs["annotate"]]
    assert len(tagged) == 48
    assert all(len(photo["tags"]) == 2 for photo in tagged)
    assert len(outputs["search"]) == 3
    assert json.loads(outputs["evaluate"][0])["auc"] > 0.5
    assert "no damage" in outputs["info"][-1]


def test_the_table_that_is_written_has_the_tags_of_photos(outputs):
    with (outputs["folder"] / "written.csv").open(newline="", encoding="utf-8") as file:
        assert len({row["file_name"] for row in csv.DictReader(file)}) > 1
