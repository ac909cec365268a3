"""The page of all verdicts: every order of every table of all reports, before and now, and why some do not hold.

python -m visterm_research.comparison.verdict_page docs/reproductions                    # writes index.md there
python -m visterm_research.comparison.verdict_page docs/reproductions --check            # is it up to date?
python -m visterm_research.comparison.verdict_page docs/reproductions --before COMMIT    # what "before" is, from git

Beside the reports lie ``before.json``, the verdicts of an earlier commit, and ``reasons.json``, written by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from visterm.core.errors import DataError
from visterm.core.writing import write_whole
from visterm_research.comparison.document import Document
from visterm_research.comparison.verdicts import NO, UNSURE, YES

PAGE, BEFORE, REASONS, RESULTS = "index.md", "before.json", "reasons.json", "results.json"

WORDS = {YES: "holds", NO: "does not hold", UNSURE: "too close"}
ABSENT = "–"
UNKNOWN = "We don't know."

_COUNTED = re.compile(r"\b(after|after the) [\d.e+]+ (s|epochs)\b")
"""Seconds and epochs of one run, in the words of an order: another run has others."""


@dataclass(frozen=True)
class Reason:
    """Why orders do not hold: a tested reason. ``*`` stands for any text.

    Attributes
    ----------
    reason : str
    report : str
        The folder's name.
    problem, where, first, second, of : str
        As in the report's ``results.json``.
    """

    reason: str
    report: str
    problem: str = "*"
    where: str = "*"
    first: str = "*"
    second: str = "*"
    of: str = "*"

    def explains(self, report: str, claim: Mapping[str, Any]) -> bool:
        """Return whether it is about an order."""
        found = {**claim, "report": report}
        return all(
            re.fullmatch(re.escape(getattr(self, field.name)).replace(r"\*", ".*"), found[field.name])
            for field in fields(self)
            if field.name != "reason"
        )


@dataclass(frozen=True)
class Report:
    """What the page takes of a report.

    Attributes
    ----------
    name : str
        Its folder's.
    paper : str
    claims : list of dict
        As in ``results.json``.
    unfinished : int
        Parts that there was no time for, and that no other report of the paper has.
    """

    name: str
    paper: str
    claims: list[dict[str, Any]]
    unfinished: int


def order_of(claim: Mapping[str, Any]) -> str:
    """Name an order, in the same words for every run."""
    order = f"{claim['first']} {claim['relation']} {claim['second']} by {claim['of']}"
    return " | ".join((claim["problem"], claim["where"], _COUNTED.sub(r"\1 … \2", order)))


def verdicts_of(claims: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the verdict of each order.

    Raises
    ------
    DataError
        If an order is judged twice.
    """
    twice = [order for order, count in Counter(map(order_of, claims)).items() if count > 1]
    if twice:
        raise DataError(f"{len(twice)} orders are judged twice, the first is {twice[0]!r}; expected each once.")
    return {order_of(claim): claim["verdict"] for claim in claims}


def read_reports(folder: Path) -> list[Report]:
    """Read the reports in the folders of a folder, by name.

    Raises
    ------
    DataError
        If there is none, or one is a quick run.
    """
    found = {}
    for path in sorted(folder.glob(f"*/{RESULTS}")):
        found[path.parent.name] = results = json.loads(path.read_text(encoding="utf-8"))
        if results["quick"]:
            raise DataError(f"{path} is of a quick run, which says nothing of methods. Remove it, or run it whole.")
    if not found:
        raise DataError(f"{folder} holds no reports. Pass the folder of the folders that hold {RESULTS}.")
    return [Report(name, one["paper"], one["claims"], _unfinished(name, found)) for name, one in found.items()]


def _unfinished(name: str, results: Mapping[str, Mapping[str, Any]]) -> int:
    """Count the parts that were run neither here nor in another report of the paper."""
    had = {
        f"{method} on {problem}"
        for one in results.values()
        if one["paper"] == results[name]["paper"]
        for problem, methods in one["tested"].items()
        for method in methods
        if f"{method} on {problem}" not in one["unfinished"]
    }
    return sum(part not in had for part in results[name]["unfinished"])


def page_of(
    reports: Sequence[Report], commit: str, before: Mapping[str, Mapping[str, str]], reasons: Sequence[Reason]
) -> str:
    """Write the page.

    Parameters
    ----------
    reports : sequence of Report
    commit : str
        Of "before".
    before : mapping of str to mapping of str to str
        Verdicts of that commit by report and order.
    reasons : sequence of Reason

    Raises
    ------
    DataError
        If a reason is of no order that does not hold: it is out of date.
    """
    failed = [(report.name, claim) for report in reports for claim in report.claims if claim["verdict"] == NO]
    for one in reasons:
        if not any(one.explains(*of) for of in failed):
            raise DataError(f"{REASONS} explains what holds or is not there: {one}. Remove it, or mend its fields.")
    document = Document("Every order of every table")
    document.text(
        "What the papers put above what, in their tables and texts, and whether it is so here. An order *holds* or "
        "*does not hold* where the difference is sure: by the 95 % interval of resampled examples, by Wilcoxon's "
        "signed ranks (PAMIR), or, for single measurements, by more than a tenth (time, bytes) or a hundredth "
        f"(curves of training). Otherwise it is *too close*. Before: at commit {commit}. An order that is new, or that "
        f"was not run, has {ABSENT}."
    )
    document.text(
        f"Written by `python -m visterm_research.comparison.verdict_page` from each report's `{RESULTS}`; reasons are "
        f"from `{REASONS}`."
    )
    document.section("In all")
    rows = [_line(report, before.get(report.name, {})) for report in reports]
    sums = [sum(int(row[column]) for row in rows) for column in range(1, 7)]
    rows.append(["together", *map(str, sums), str(sum(report.unfinished for report in reports))])
    header = [*(f"{word}, {when}" for when in ("before", "now") for word in WORDS.values())]
    document.table("Orders by report", ["report", *header, "parts not run"], rows)
    for report in reports:
        _report(document, report, before.get(report.name, {}), reasons)
    return document.render()


def _line(report: Report, before: Mapping[str, str]) -> list[str]:
    counts = [Counter(verdicts.values()) for verdicts in (before, verdicts_of(report.claims))]
    cells = [str(count[verdict]) for count in counts for verdict in WORDS]
    return [f"[{report.name}](#{report.name})", *cells, str(report.unfinished)]


def _report(document: Document, report: Report, before: Mapping[str, str], reasons: Sequence[Reason]) -> None:
    whole = f" {report.unfinished} parts were not run." if report.unfinished else ""
    document.section(report.name, f"{report.paper}. [The report]({report.name}/report.md).{whole}")
    counts: dict[str, Counter[str]] = {}
    for claim in report.claims:
        counts.setdefault(claim["where"], Counter())[claim["verdict"]] += 1
    rows = [[where, *(str(count[verdict]) for verdict in WORDS)] for where, count in counts.items()]
    document.table(f"{report.name}, by table", ["where in the paper", *WORDS.values()], rows)
    rows = [
        [
            claim["problem"],
            claim["where"],
            f"{claim['first']} {claim['relation']} {claim['second']}",
            claim["of"],
            " / ".join(claim["paper"]) if any(claim["paper"]) else ABSENT,
            " / ".join(claim["here"]),
            claim["detail"] or ABSENT,
            WORDS[before[order_of(claim)]] if order_of(claim) in before else ABSENT,
            WORDS[claim["verdict"]],
        ]
        for claim in report.claims
    ]
    header = ["on", "where in the paper", "order", "by", "paper", "here", "how sure", "before", "now"]
    document.table(f"{report.name}, all orders", header, rows)
    gone = len(before.keys() - verdicts_of(report.claims).keys())
    if gone:
        document.text(f"{gone} orders that were judged before are not judged now.")
    document.items([_explained(report.name, claim, reasons) for claim in report.claims if claim["verdict"] == NO])


def _explained(report: str, claim: Mapping[str, Any], reasons: Sequence[Reason]) -> str:
    why = " ".join(one.reason for one in reasons if one.explains(report, claim)) or UNKNOWN
    order = f"{claim['first']} {claim['relation']} {claim['second']} by {claim['of']}"
    return f"**{claim['problem']}, {claim['where']}: {order}** does not hold. {why}"


def written_page(folder: Path) -> str:
    """Return the page of a folder of reports as it should be."""
    known = json.loads((folder / BEFORE).read_text(encoding="utf-8"))
    reasons = [Reason(**one) for one in json.loads((folder / REASONS).read_text(encoding="utf-8"))]
    return page_of(read_reports(folder), known["commit"], known["reports"], reasons)


def write_before(folder: Path, commit: str) -> None:
    """Write down the verdicts that the reports had at a commit of git."""
    reports = {}
    for path in sorted(folder.glob(f"*/{RESULTS}")):
        place = f"{commit}:./{path.parent.name}/{RESULTS}"
        shown = subprocess.run(["git", "show", place], cwd=folder, capture_output=True, check=False)
        if shown.returncode == 0:
            reports[path.parent.name] = verdicts_of(json.loads(shown.stdout)["claims"])
    if not reports:
        raise DataError(f"Commit {commit} has none of the reports of {folder}. Pass one that has some.")
    text = json.dumps({"commit": commit, "reports": reports}, indent=1, ensure_ascii=False)
    write_whole(folder / BEFORE, f"{text}\n".encode())


def main() -> int:
    """Write the page, check it, or write down what was before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the reports' folders")
    parser.add_argument("--check", action="store_true", help=f"end with 1 if {PAGE} is not up to date")
    parser.add_argument("--before", metavar="COMMIT", help=f"write {BEFORE} from the reports of this commit")
    options = parser.parse_args()
    try:
        if options.before:
            write_before(options.folder, options.before)
        page, text = options.folder / PAGE, written_page(options.folder)
    except DataError as error:
        parser.exit(1, f"{error}\n")
    if options.check:
        fresh = page.is_file() and page.read_text(encoding="utf-8") == text
        print(f"{page} is {'up to date' if fresh else 'out of date: run this without --check'}.")
        return 0 if fresh else 1
    write_whole(page, text.encode("utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
