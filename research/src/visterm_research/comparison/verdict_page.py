"""Every comparison on one page: the score of each report, why orders do not hold, and what changed with the search."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from visterm.core.errors import DataError
from visterm.core.writing import write_whole
from visterm_research.comparison.cite_page import CITE, cite_page
from visterm_research.comparison.document import Document
from visterm_research.comparison.figures import figure_class, save
from visterm_research.comparison.looks import Looks, versions_by_data
from visterm_research.comparison.report import (
    ABSENT,
    REPORT,
    RESULTS,
    WORDS,
    counts_of,
    finished_elsewhere,
    listed,
    read_results,
    titled,
    written_reports,
)
from visterm_research.comparison.verdicts import NO, UNSURE, YES, corrected

PAGE, BEFORE, REASONS, SCORES = "index.md", "before.json", "reasons.json", "figures/scores.png"

UNKNOWN = "We don't know."
CHANCE = "After the correction it is too close to call; we looked for no other cause."

CAUSES = {
    "data": "the data are not the paper's",
    "features": "the features are not the paper's",
    "settings": "which settings were searched, and how they were chosen",
    "method": "the method itself",
    "dominant": "one method is very strong here",
    "chance": "too close to call after the correction",
    "unknown": "unknown",
}
"""Groups of reasons, as the page calls them."""

PUBLIC = ("corel5k", "delicious", "nuswide")
"""Data that are not drawn, and so have only these test rows."""

COLOURS = {YES: "#0072B2", NO: "#D55E00", UNSURE: "#bbbbbb"}

_COUNTED = re.compile(r"\b(after|after the) [\d.e+]+ (s|epochs)\b")
"""Seconds and epochs of one run, in the words of an order: another run has others."""


@dataclass(frozen=True)
class Reason:
    """Why orders do not hold. ``*`` stands for any text.

    Attributes
    ----------
    reason : str
    report : str
        The folder's name.
    cause : str
        One of `CAUSES`.
    turned : bool
        It explains why the verdict turned from one version of the search to another, whatever it is now.
    problem, where, first, second, of : str
        As in the report's ``results.json``.
    """

    reason: str
    report: str
    cause: str = "unknown"
    turned: bool = False
    problem: str = "*"
    where: str = "*"
    first: str = "*"
    second: str = "*"
    of: str = "*"

    def explains(self, report: str, claim: Mapping[str, Any]) -> bool:
        """Return whether it is about an order."""
        values = {**claim, "report": report}
        return all(
            re.fullmatch(re.escape(getattr(self, field.name)).replace(r"\*", ".*"), values[field.name])
            for field in fields(self)
            if field.name not in ("reason", "cause", "turned")
        )


@dataclass(frozen=True)
class Report:
    """What the page takes of a report.

    Attributes
    ----------
    name : str
        Its folder's.
    title, paper : str
    claims : list of dict
        As in ``results.json``.
    versions : dict of str to int
        Versions of the search that used the same test rows, at least, by problem.
    unfinished : int
        Parts that there was no time for, and that no other report of the paper has.
    """

    name: str
    title: str
    paper: str
    claims: list[dict[str, Any]]
    versions: Mapping[str, int] = field(default_factory=dict)
    unfinished: int = 0


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
    reports = read_results(folder)
    if not reports:
        raise DataError(f"{folder} holds no reports. Pass the folder of the folders that hold {RESULTS}.")
    for name, results in reports.items():
        if results["quick"]:
            path = folder / name / RESULTS
            raise DataError(f"{path} is of a quick run, which says nothing about methods. Remove it, or run it whole.")
    return [
        Report(
            name,
            titled(results),
            results["paper"],
            results["claims"],
            Looks(folder / name).versions(),
            sum(part not in finished_elsewhere(name, reports) for part in results["unfinished"]),
        )
        for name, results in reports.items()
    ]


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
        If a reason is of no order that does not hold, or turned: it is out of date.
    """
    for one in reasons:
        if one.cause not in CAUSES or not any(
            one.explains(report.name, claim) and (one.turned or claim["verdict"] == NO)
            for report in reports
            for claim in report.claims
        ):
            raise DataError(f"{REASONS} has a reason for an order that holds or is gone: {one}. Remove or correct it.")
    document = Document("Every comparison")
    document.text(
        "An *order* is a statement in a paper's tables or text that one method beats another. It *holds* or *does not "
        "hold* here if the difference is significant: by a 95 % bootstrap interval over test examples, by Wilcoxon's "
        "signed-rank test (PAMIR), or, for single measurements, if it is more than 10 % (time, bytes) or 1 % (training "
        "curves). Otherwise it is *too close*. *Corrected* is the verdict after Holm's correction for the number of "
        "tests in a report: at most one report in twenty then has a wrong verdict by chance. Holm's method doesn't "
        "require independent tests, which these are not; Benjamini and Hochberg's would allow one wrong verdict in "
        "twenty. Single measurements have no p-value and keep their verdict. Intervals cover the choice of test "
        "examples, not the search for settings or the seed ([how much that changes](#how-much-the-search-changes))."
    )
    _scores(document, reports)
    _searches(document, reports, before)
    _causes(document, reports, reasons)
    document.text(
        f"`python -m visterm_research.comparison.verdict_page` writes this page from each report's `{RESULTS}` and "
        f"from `{REASONS}`. *Before* is at commit {commit}, with an earlier version of the search; new orders have "
        f"{ABSENT} there."
    )
    for report in reports:
        _report(document, report, before.get(report.name, {}), reasons)
    return document.render()


def _scores(document: Document, reports: Sequence[Report]) -> None:
    """Write how many orders of each report hold, before and after the correction."""
    document.section("The score of each paper")
    counts = [
        (counts_of([claim["verdict"] for claim in report.claims]), counts_of(corrected(report.claims)))
        for report in reports
    ]
    rows = [
        [
            f"[{report.title}](#{report.name})",
            str(len(report.claims)),
            *(f"{n} ({strict})" for n, strict in zip(*both, strict=True)),
            str(max(report.versions.values(), default=1)),
        ]
        for report, both in zip(reports, counts, strict=True)
    ]
    sums = [[sum(map(int, column)) for column in zip(*one, strict=True)] for one in zip(*counts, strict=True)]
    together = [f"{n} ({strict})" for n, strict in zip(*sums, strict=True)]
    rows.append(["together", str(sum(len(report.claims) for report in reports)), *together, ""])
    document.table(
        "Orders by report, in brackets as corrected. Test rows are used once for each version of the search; the logs "
        "have at least these versions",
        ["report", "orders", *WORDS.values(), "versions"],
        rows,
    )
    by_data = versions_by_data([report.versions for report in reports])
    if shown := [f"{n} times ({data})" for data, n in by_data.items() if data in PUBLIC]:
        document.text(f"Over all reports, the test rows of a data set were used at least {listed(shown)}.")
    document.picture(SCORES, "Orders that hold, don't, and are too close to call: plain above, corrected below.")


def _searches(document: Document, reports: Sequence[Report], before: Mapping[str, Mapping[str, str]]) -> None:
    """Write how many verdicts differ between two versions of the search: those before, and those now."""
    rows = []
    for report in reports:
        earlier = before.get(report.name, {})
        pairs = [
            (earlier[order_of(claim)], claim["verdict"], strict)
            for claim, strict in zip(report.claims, corrected(report.claims), strict=True)
            if order_of(claim) in earlier
        ]
        same = sum(then == now for then, now, _ in pairs)
        reversed_now = [strict for then, now, strict in pairs if {then, now} == {YES, NO}]
        decided = sum(strict != UNSURE for strict in reversed_now)
        rows.append([len(pairs), same, len(pairs) - same - len(reversed_now), len(reversed_now), decided])
    if not any(row[0] for row in rows):
        return
    sums = [sum(column) for column in zip(*rows, strict=True)]
    document.section(
        "How much the search changes",
        f"Two versions of the search, which differ in what was searched and how long, judged the same {sums[0]} orders "
        f"by the same test rows. {sums[1]} verdicts are the same, and {sums[3]} are reversed: a verdict is less "
        "certain than its interval says.",
    )
    names = [*(report.name for report in reports), "together"]
    header = ["report", "judged twice", "same", "to or from too close", "reversed", "reversed, also as corrected"]
    shown = [[name, *map(str, row)] for name, row in zip(names, [*rows, sums], strict=True)]
    document.table("Verdicts of the earlier and of this version of the search", header, shown)


def _causes(document: Document, reports: Sequence[Report], reasons: Sequence[Reason]) -> None:
    """Write how many orders do not hold for which cause, and those whose cause is unknown."""
    counts: dict[str, Counter[str]] = {}
    unknown: dict[str, list[Mapping[str, Any]]] = {}
    for report in reports:
        for claim, strict in zip(report.claims, corrected(report.claims), strict=True):
            if claim["verdict"] == NO:
                cause = _cause(report.name, claim, strict, reasons)[0]
                counts.setdefault(cause, Counter())[report.name] += 1
                if cause == "unknown":
                    unknown.setdefault(report.name, []).append(claim)
    if not counts:
        return
    document.section(
        "Why orders do not hold",
        "The section of each report, below, has the reason for each order, and says where it explains only a part.",
    )
    names = [report.name for report in reports]
    rows = [
        [text, *(str(counts[cause][name]) for name in names), str(counts[cause].total())]
        for cause, text in CAUSES.items()
        if cause in counts
    ]
    document.table("Orders that do not hold, by cause", ["cause", *names, "together"], rows)
    if unknown:
        document.text("The cause of these is unknown:")
        document.items([f"{name}: {_sentence(claims)}." for name, claims in unknown.items()])


def _cause(report: str, claim: Mapping[str, Any], strict: str, reasons: Sequence[Reason]) -> tuple[str, str]:
    """Return the cause of an order that does not hold, and the reason in words."""
    known = [one for one in reasons if not one.turned and one.explains(report, claim)]
    if known:
        return known[0].cause, " ".join(one.reason for one in known)
    return ("chance", CHANCE) if strict == UNSURE else ("unknown", UNKNOWN)


def _report(document: Document, report: Report, before: Mapping[str, str], reasons: Sequence[Reason]) -> None:
    whole = f" {report.unfinished} parts were not run." if report.unfinished else ""
    document.section(report.name, f"{report.paper}. [The report]({report.name}/{REPORT}).{whole}")
    counts: dict[str, Counter[str]] = {}
    for claim in report.claims:
        counts.setdefault(claim["where"], Counter())[claim["verdict"]] += 1
    rows = [[where, *(str(count[verdict]) for verdict in WORDS)] for where, count in counts.items()]
    document.table(f"{report.name}, by table", ["where in the paper", *WORDS.values()], rows)
    after = corrected(report.claims)
    rows = [
        [
            claim["problem"],
            claim["where"],
            f"{claim['first']} {claim['relation']} {claim['second']}",
            claim["of"],
            " / ".join(claim["paper"]) if any(claim["paper"]) else ABSENT,
            " / ".join(claim["here"]),
            WORDS[before[order_of(claim)]] if order_of(claim) in before else ABSENT,
            WORDS[claim["verdict"]],
            WORDS[strict],
        ]
        for claim, strict in zip(report.claims, after, strict=True)
    ]
    header = ["on", "where in the paper", "order", "by", "paper", "here", "before", "now", "corrected"]
    document.table(f"{report.name}, all orders", header, rows)
    gone = len(before.keys() - verdicts_of(report.claims).keys())
    if gone:
        document.text(f"{gone} earlier orders are no longer judged.")
    failed: dict[str, list[Mapping[str, Any]]] = {}
    turned: dict[str, list[Mapping[str, Any]]] = {}
    for claim, strict in zip(report.claims, after, strict=True):
        if claim["verdict"] == NO:
            failed.setdefault(_cause(report.name, claim, strict, reasons)[1], []).append(claim)
        for one in reasons:
            if one.turned and one.explains(report.name, claim):
                turned.setdefault(one.reason, []).append(claim)
    for heading, groups in (("These do not hold:", failed), ("These changed with the search:", turned)):
        if groups:
            document.text(heading)
            document.items([f"**{_sentence(claims)}.** {reason}" for reason, claims in groups.items()])


def _sentence(claims: Sequence[Mapping[str, Any]]) -> str:
    """Name orders: those of one table together, and each once with all its measures."""
    tables: dict[str, dict[str, list[str]]] = {}
    for claim in claims:
        orders = tables.setdefault(f"{claim['problem']}, {claim['where']}", {})
        orders.setdefault(f"{claim['first']} {claim['relation']} {claim['second']}", []).append(claim["of"])
    return "; ".join(
        f"{table}: {'; '.join(f'{order} by {listed(measures)}' for order, measures in orders.items())}"
        for table, orders in tables.items()
    )


def draw_scores(path: Path, reports: Sequence[Report]) -> None:
    """Draw a row for each report: orders that hold, don't, and are too close, plain and corrected."""
    figure = figure_class()(figsize=(10, 0.7 * len(reports) + 1.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for row, report in enumerate(reversed(reports)):
        plain = [claim["verdict"] for claim in report.claims]
        for height, verdicts in ((0.19, plain), (-0.19, corrected(report.claims))):
            start = 0.0
            for verdict, n in zip(WORDS, map(int, counts_of(verdicts)), strict=True):
                share = n / len(verdicts)
                axes.barh(row + height, share, left=start, height=0.34, color=COLOURS[verdict])
                axes.text(start + share / 2, row + height, str(n) if n else "", ha="center", va="center", fontsize=8)
                start += share
    axes.set_yticks(range(len(reports)), [report.name for report in reversed(reports)])
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    handles = [axes.barh(0, 0, color=colour) for colour in COLOURS.values()]
    figure.legend(handles, list(WORDS.values()), loc="outside upper right", ncols=3, frameon=False)
    save(figure, path)


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
    """Write the page and the reports, check them, or write down what was before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the reports' folders")
    parser.add_argument("--check", action="store_true", help=f"end with 1 if {PAGE} or a report is not up to date")
    parser.add_argument("--before", metavar="COMMIT", help=f"write {BEFORE} from the reports of this commit")
    options = parser.parse_args()
    try:
        if options.before:
            write_before(options.folder, options.before)
        page, text = options.folder / PAGE, written_page(options.folder)
    except DataError as error:
        parser.exit(1, f"{error}\n")
    cite = options.folder / CITE, cite_page(options.folder, read_results(options.folder))
    texts = dict([(page, text), cite, *written_reports(options.folder).items()])
    if options.check:
        fresh = all(path.is_file() and path.read_text(encoding="utf-8") == text for path, text in texts.items())
        print(f"{page} is {'up to date' if fresh else 'out of date: run this without --check'}.")
        return 0 if fresh else 1
    for path, text in texts.items():
        write_whole(path, text.encode("utf-8"))
    draw_scores(options.folder / SCORES, read_reports(options.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
