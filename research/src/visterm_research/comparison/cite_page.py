"""How to cite the numbers of the reports: commands, seeds, versions, and hashes of data and results."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

from visterm_research.comparison.document import Document
from visterm_research.comparison.looks import Looks
from visterm_research.comparison.report import ABSENT, RESULTS, titled

CITE = "cite.md"
WIDTH = 80  # Of a line of a command, so that it fits its column on the site


def data_hashes(path: Path) -> dict[str, str]:
    """Return the SHA-256 of a file, or of each file and each folder in a folder of data."""
    if path.is_file():
        return {path.name: _file_hash(path)}
    return {
        f"{one.name}/" if one.is_dir() else one.name: _folder_hash(one) if one.is_dir() else _file_hash(one)
        for one in sorted(path.iterdir())
    }


def _folder_hash(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = (f"{path.relative_to(folder).as_posix()} {_file_hash(path)}\n" for path in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def cite_page(folder: Path, reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page on the reports in the folders of a folder."""
    document = Document("Cite these numbers")
    document.text(
        "To cite a figure, give the report, its command, the seed, the commit and versions, and the hashes of the data "
        "and the results. Later commits changed encoders and models, so their figures differ. A file's hash is its "
        "SHA-256. A folder's hash is the SHA-256 of a list with one line per file, sorted by path: the path, a "
        f"space, and the file's SHA-256. All tables, verdicts and p-values of a report come from its `{RESULTS}`. "
        "Papers and authors: `CITATION.cff`."
    )
    data = {name: hashes for results in reports.values() for name, hashes in results["data"].items()}
    rows = [[name, file, f"`{sha256}`"] for name in sorted(data) for file, sha256 in data[name].items()]
    document.section("Data")
    document.table("Files that the commands read", ["data", "file or folder", "SHA-256"], rows)
    for name, results in reports.items():
        machine = results["machine"]
        document.section(titled(results), f"[The report]({name}/report.md) of: {results['paper']}.")
        lines = wrap(results["command"], WIDTH, break_long_words=False, break_on_hyphens=False)
        document.text("    " + " \\\n      ".join(lines))
        rows = [
            ["seed", str(results["seed"])],
            ["commit of the run", Looks(folder / name).commit() or ABSENT],
            ["versions", ", ".join(f"{part} {machine[part]}" for part in ("visterm", "python", "numpy"))],
            ["processor", f"{machine['processor']}, {machine['threads']} threads"],
            ["data", ", ".join([*results["data"], "drawn data"])],
            [RESULTS, f"`{_file_hash(folder / name / RESULTS)}`"],
        ]
        document.table(f"Run of {name}", ["", "value"], rows)
    return document.render()
