"""The report of a comparison from its results.json: the paper's table and ours, verdicts, details, the machine."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from visterm_research.comparison.document import Block, Document
from visterm_research.comparison.looks import Looks, shown_versions
from visterm_research.comparison.searches import read_searches, searches_part
from visterm_research.comparison.verdicts import NO, UNSURE, YES, corrected

RESULTS, REPORT, CHECKS = "results.json", "report.md", "checks.json"

WORDS = {YES: "holds", NO: "does not hold", UNSURE: "too close"}
ABSENT = "–"
MAX_NAMES = 3  # Of data in a title
DIFFERENCE = "95 % interval of the difference"

_OF_PAPER = re.compile(
    r"(?:(?:^| )(?:The paper|The published|In the WSABIE paper)|; in the paper)\b(?:[^.]|\.(?=\d))*\."
    r"| \(the paper [^)]*\)|: the paper\b[^.]*(?=\.)"
)
"""A sentence on what the paper has, the end of one, or a remark in brackets or after a colon."""

_PAPER_COLUMN = re.compile(r"paper|.*(\(paper\)|, paper\b).*")

Results = Mapping[str, Any]


def report_of(
    results: Results,
    versions: Mapping[str, int],
    elsewhere: Mapping[str, str] | None = None,
    searches: Mapping[str, Any] | None = None,
    checks: Sequence[str] = (),
) -> str:
    """Return the text of a report.

    Parameters
    ----------
    results : mapping
        What results.json holds.
    versions : mapping of str to int
        By problem, how many versions of the search used its test rows (`Looks.versions`).
    elsewhere : mapping of str to str, optional
        For unfinished parts that another report of the paper has: its folder.
    searches : mapping, optional
        What searches.json beside the report holds (`read_searches`).
    checks : sequence of str
        What checks.json beside the report holds: what was checked after the run, a paragraph each.
    """
    document = Document(titled(results))
    document.text(
        f"Paper: {results['paper']}. Data, features and machines differ from the paper's: compare orders, not figures."
    )
    if results["quick"]:
        folders = [name for name, files in results["data"].items() if name not in files]
        data = listed([*folders, "tiny drawn data"])
        document.text(f"**A quick run on {data}: it shows that everything runs, and says nothing about the methods.**")
    if results["left_out"]:
        document.text(f"Left out on request: {', '.join(results['left_out'])}.")
    document.text(f"{_score(results)} {shown_versions(versions)}")
    if not results["quick"]:
        _first_table(document, results["claims"])
    _verdicts(document, results)
    if searches is not None:
        searches_part(document, searches, results["claims"])
    if checks:
        document.section("Checked later", *checks)
    if results["preface"]:
        document.section("How it was measured")
        document.parts += results["preface"]
    parts = _tested_parts(results)
    document.parts += _without_paper(parts) if results["quick"] else parts
    _unfinished(document, results["unfinished"], elsewhere or {})
    document.section("Machine", _machine(results))
    return document.render()


def titled(results: Results) -> str:
    """Return the title with the data that orders were judged on."""
    data = list(dict.fromkeys(claim["problem"] for claim in results["claims"]))
    shown = data if len(data) <= MAX_NAMES else [*data[: MAX_NAMES - 1], "others"]
    return f"{results['title']} on {listed(shown)}" if data else str(results["title"])


def counts_of(verdicts: Sequence[str]) -> list[str]:
    """Return how many orders hold, don't, and are too close to call."""
    counts = Counter(verdicts)
    return [str(counts[verdict]) for verdict in WORDS]


def shown_p(claim: Results) -> str:
    """Write the p-value of an order; single measurements have none."""
    p_value = claim["p_value"]
    return ABSENT if p_value is None else "< 0.0001" if p_value < 1e-4 else f"{p_value:.2g}"


def listed(names: Sequence[str]) -> str:
    """Join names by commas, the last by "and"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _score(results: Results) -> str:
    claims = results["claims"]
    if not claims:
        return "No order of the paper was tested."
    plain = _counted([claim["verdict"] for claim in claims])
    return (
        f"Of {len(claims)} comparisons, {plain}{results['judged']} After Holm's correction for their number, "
        f"{_counted(corrected(claims))}."
    )


def _counted(verdicts: Sequence[str]) -> str:
    holds, fails, close = counts_of(verdicts)
    return (
        f"{holds} hold{'s' * (holds == '1')}, {fails} do{'es' * (fails == '1')} not, and "
        f"{close} {'is' if close == '1' else 'are'} too close to call"
    )


def _first_table(document: Document, claims: Sequence[Results]) -> None:
    """Write the table of the paper that most orders are from: its figures, and ours beside them."""
    known = [claim for claim in claims if all(claim["paper"])]
    if not known:
        return
    where = Counter(claim["where"] for claim in known).most_common(1)[0][0]
    problems = list(dict.fromkeys(claim["problem"] for claim in known if claim["where"] == where))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for claim in known:
        if claim["where"] == where:
            for i, method in enumerate((claim["first"], claim["second"])):
                row = cells.setdefault((claim["of"], method), {"paper": claim["paper"][i]})
                row[claim["problem"]] = claim["here"][i]
    measures = list(dict.fromkeys(of for of, _ in cells))
    ordered = sorted(cells.items(), key=lambda cell: (measures.index(cell[0][0]), -_number(cell[1]["paper"])))
    rows = [[of, method, *(row.get(name, ABSENT) for name in ("paper", *problems))] for (of, method), row in ordered]
    document.section("The paper's table and ours")
    document.table(
        f"{where[0].upper()}{where[1:]}: the methods in the paper's order", ["by", "method", "paper", *problems], rows
    )


def _number(cell: str) -> float:
    try:
        return float(cell.removesuffix("%").replace(",", ""))
    except ValueError:
        return 0.0


def _verdicts(document: Document, results: Results) -> None:
    """Write a table of orders for each table of the paper."""
    claims = results["claims"]
    if not claims:
        return
    strict = corrected(claims)
    header = ["on", "order", "by", "paper", "here", f"{DIFFERENCE}, or test", "p", "verdict", "corrected"]
    kept = [i for i, name in enumerate(header) if name != "paper" or not results["quick"]]
    tables: dict[str, list[list[str]]] = {}
    for claim, after in zip(claims, strict, strict=True):
        row = [
            claim["problem"],
            f"{claim['first']} {claim['relation']} {claim['second']}",
            claim["of"],
            " / ".join(claim["paper"]) if any(claim["paper"]) else ABSENT,
            " / ".join(claim["here"]),
            claim["detail"].removeprefix(f"{DIFFERENCE} ") or ABSENT,
            shown_p(claim),
            WORDS[claim["verdict"]],
            WORDS[after],
        ]
        tables.setdefault(claim["where"], []).append([row[i] for i in kept])
    document.section(
        "Does the paper's order hold here?",
        "P-values of intervals assume a normal distribution. The last column is the verdict after Holm's correction "
        "for all tests of this report; orders without a p-value are single measurements.",
    )
    for where, rows in tables.items():
        document.table(f"Orders of {where}", [header[i] for i in kept], rows)


def _tested_parts(results: Results) -> list[Block]:
    """Return the parts, without the sections on problems that no method was tested on."""
    empty = {f"## On {problem}" for problem, tested in results["tested"].items() if not tested}
    kept: list[Block] = []
    skipped = False
    for block in results["parts"]:
        if isinstance(block, str) and block.startswith("## "):
            skipped = block in empty
        if not skipped:
            kept.append(block)
    return kept


def _without_paper(parts: Sequence[Block]) -> list[Block]:
    """Return the parts without the paper's figures, which are of other settings than those of a quick run."""
    kept: list[Block] = []
    for block in parts:
        if isinstance(block, str):
            block = _OF_PAPER.sub(lambda found: "." if found[0].startswith(";") else "", block)
            if not block:
                continue
        else:
            columns = [i for i, name in enumerate(block["header"]) if not _PAPER_COLUMN.fullmatch(name)]
            rows = [row for row in block["rows"] if not any(_of_paper(cell) for cell in row[:3])]
            rows = [[row[i] for i in columns] for row in rows]
            rows = [row for row in rows if len(row) == 1 or set(row[1:]) != {ABSENT}]  # such as those not run
            if not rows or not columns:
                continue
            block = {**block, "header": [block["header"][i] for i in columns], "rows": rows}
        kept.append(block)
    return kept


def _of_paper(cell: str) -> bool:
    return "(paper)" in cell or cell in ("paper", "as published")


def _unfinished(document: Document, unfinished: Sequence[str], elsewhere: Mapping[str, str]) -> None:
    missing = [part for part in unfinished if part not in elsewhere]
    if missing:
        document.section(
            "Not finished", "There was no time for these; the same command with the same folder continues with them."
        )
        document.items(missing)
    for folder in dict.fromkeys(elsewhere[part] for part in unfinished if part in elsewhere):
        document.text(f"The other data of this comparison are in [another report](../{folder}/{REPORT}).")


def _machine(results: Results) -> str:
    """Return sentences on what machine it ran, with which versions and seed, and how long settings were searched."""
    machine = results["machine"]
    return (
        f"Run with the seed {results['seed']} by visterm {machine['visterm']} on a machine of {machine['threads']} "
        f"threads ({machine['processor']}, Python {machine['python']}, NumPy {machine['numpy']}). The search for "
        f"settings took {results['hours_of_fits']:.2f} hours."
    )


def read_results(folder: Path) -> dict[str, Results]:
    """Return the results of the reports in the folders of a folder, by name."""
    paths = sorted(folder.glob(f"*/{RESULTS}"))
    return {path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def read_checks(folder: Path) -> list[str]:
    """Return the paragraphs of `CHECKS` in the folder of a report; none without this file."""
    path = folder / CHECKS
    return [str(text) for text in json.loads(path.read_text(encoding="utf-8"))] if path.is_file() else []


def finished_elsewhere(name: str, reports: Mapping[str, Results]) -> dict[str, str]:
    """Return the report of the same paper that has each part that one report did not finish."""
    parts = reports[name]["unfinished"]
    return {
        part: other
        for other, results in reports.items()
        if other != name and results["paper"] == reports[name]["paper"]
        for problem, methods in results["tested"].items()
        for part in (f"{method} on {problem}" for method in methods)
        if part in parts and part not in results["unfinished"]
    }


def written_reports(folder: Path) -> dict[Path, str]:
    """Return each report in the folders of a folder as its results.json makes it."""
    reports = read_results(folder)
    return {
        folder / name / REPORT: report_of(
            results,
            Looks(folder / name).versions(),
            finished_elsewhere(name, reports),
            read_searches(folder / name),
            read_checks(folder / name),
        )
        for name, results in reports.items()
    }
