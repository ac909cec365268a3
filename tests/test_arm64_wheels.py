"""The program that looks for wheels for arm64 tells a missing wheel from an index that does not answer."""

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / ".ci" / "arm64.py"
ALONE = {"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="wants the repository")


@pytest.mark.slow
def test_a_missing_wheel_is_an_error_and_an_index_that_does_not_answer_is_none(tmp_path):
    project = tomllib.loads((PROGRAM.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["dependencies"][0].split("==")
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(tmp_path / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    only_one = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    for settings, code, text in (
        (only_one, 1, "Python 3.11: a wheel is missing: ERROR: "),
        ({"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}, 0, "skipped: the package index does not answer"),
    ):
        environment = {**os.environ, **ALONE, **settings}
        done = subprocess.run([sys.executable, PROGRAM], env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, text in done.stdout) == (code, True), done.stdout + done.stderr
