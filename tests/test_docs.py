"""The README's tables are those of the registry."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_tables_of_the_readme_are_fresh():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "make_tables.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_file_that_the_readme_links_to_is_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [part.split(")")[0] for part in text.split("](")[1:]]
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []


def test_the_tests_that_the_page_of_security_names_are_there():
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = set(re.findall(r"test_\w+\.py", text))
    assert named
    assert [name for name in sorted(named) if not (ROOT / "tests" / name).exists()] == []
