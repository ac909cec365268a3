"""A report: the paper's table and ours first, then verdicts; other data and quick runs say what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from visterm_research.comparison.claims import Claim
from visterm_research.comparison.folder import begin_folder
from visterm_research.comparison.looks import LOG, Looks, shown_versions, versions_by_data
from visterm_research.comparison.report import CHECKS, finished_elsewhere, read_checks, report_of, titled
from visterm_research.comparison.verdicts import NO, UNSURE, YES

MACHINE = {"processor": "one", "threads": 2, "python": "3.11", "numpy": "2.4", "visterm": "0.1"}


def claim(first: str, second: str, verdict: str, paper: tuple[str, str], **fields: Any) -> dict[str, Any]:
    about = {"of": "p@1", "where": "Table 2", "problem": "photos", "here": ("5 %", "6 %"), "p_value": 0.001, **fields}
    return Claim(first, second, paper=paper, verdict=verdict, **about).as_dict()


CLAIMS = [
    claim("A", "B", NO, ("4 %", "2 %")),
    claim("A", "C", YES, ("4 %", "3 %"), here=("5 %", "1 %")),
    claim("A", "B", UNSURE, ("", ""), where="section 3", p_value=0.4),
]


def results(**changes: Any) -> dict[str, Any]:
    return {
        "title": "One comparison",
        "paper": "A paper",
        "judged": ".",
        "seed": 3,
        "command": "visterm reproduce one",
        "data": {},
        "machine": MACHINE,
        "hours_of_fits": 0.5,
        "tested": {"photos": {"A": {}, "B": {}}, "scenes": {}},
        "claims": CLAIMS,
        "preface": ["Measured so."],
        "parts": ["## On photos", "Photos.", "## On scenes", "Scenes.", "## Settings", "Chosen."],
        "unfinished": [],
        "quick": False,
        "left_out": [],
        **changes,
    }


def test_a_report_begins_with_the_papers_table_and_ours_beside_it() -> None:
    report = report_of(results(), {"photos": 2})
    headings = [line[3:] for line in report.splitlines() if line.startswith("## ")]
    assert headings == [
        "The paper's table and ours",
        "Does the paper's order hold here?",
        "How it was measured",
        "On photos",
        "Settings",
        "Machine",
    ]
    lines = report.splitlines()
    first = lines.index("| by | method | paper | photos |")
    assert lines[first + 2 : first + 5] == [
        "| p@1 | A | 4 % | 5 % |",
        "| p@1 | C | 3 % | 1 % |",
        "| p@1 | B | 2 % | 6 % |",
    ]
    assert "Of 3 comparisons, 1 holds, 1 does not, and 1 is too close to call." in report
    assert "at least 2 versions" in report


def test_reports_of_one_comparison_have_the_names_of_their_data() -> None:
    other = [{**one, "problem": name} for one in CLAIMS for name in ("sea", "sky", "sun")]
    assert titled(results()) == "One comparison on photos"
    assert titled(results(claims=other)) == "One comparison on sea, sky and sun"
    assert titled(results(claims=[])) == "One comparison"


def test_checks_after_the_run_follow_the_verdicts(tmp_path: Path) -> None:
    assert read_checks(tmp_path) == []
    (tmp_path / CHECKS).write_text(json.dumps(["With 200 epochs all orders are the same."]))
    report = report_of(results(), {}, checks=read_checks(tmp_path))
    assert "## Checked later\n\nWith 200 epochs all orders are the same.\n" in report
    assert report.index("## Does the paper's order") < report.index("## Checked later") < report.index("## Machine")


def test_a_quick_run_says_on_what_and_has_no_figures_of_the_paper() -> None:
    table = {"caption": "T", "header": ["method", "data", "p@1", "paper"], "rows": [["A", "photos", "5 %", "4 %"]]}
    table["rows"] += [["A", "ImageNet (paper)", "4 %", "4 %"]]
    report = report_of(results(quick=True, data={"corel5k": {}}, parts=["## On photos", table]), {})
    assert "**A quick run on corel5k and tiny drawn data: " in report
    assert "| A | photos | 5 % |" in report
    assert "4 %" not in report
    assert "paper)" not in report
    assert "No order of the paper was tested." in report_of(results(quick=True, claims=[]), {})


def test_a_quick_run_keeps_features_and_labels_that_are_called_after_the_paper() -> None:
    header = ["block (in the paper's pictures)", "paper visterms", "p@1 (paper)", "Small, paper (s)"]
    table = {"caption": "T", "header": header, "rows": [["32 px", "5 %", "4 %", "9"], ["toe", "paper", "", ""]]}
    table["rows"] += [["not run", "–", "4 %", "9"]]
    report = report_of(results(quick=True, parts=["## On photos", table]), {})
    assert "| block (in the paper's pictures) | paper visterms |\n| --- | ---: |\n| 32 px | 5 % |\n\n" in report


def test_a_quick_run_leaves_out_sentences_on_what_the_paper_has() -> None:
    texts = [
        "The paper's, on Web-data, by WSABIE, dolphin: delfini, orca.",
        "The worst size has 99% of the best; in the paper 92%: it calls WSABIE relatively insensitive.",
        "On 30 pictures (the paper trains on 4,000), of 32 px. The published figures are for other features.",
        "![Figure 3: the paper's lines show near-parity with P = 5.](figures/3.png)",
        "![Figure 2. The paper: after 36.5 hours.](figures/2.png)\n\n*Figure 2. The paper: after 36 hours.*",
    ]
    report = report_of(results(quick=True, parts=["## On photos", *texts, "The last text."]), {})
    before = "The worst size has 99% of the best.\n\nOn 30 pictures, of 32 px.\n\n![Figure 3.](figures/3.png)\n\n"
    assert f"{before}![Figure 2.](figures/2.png)\n\n*Figure 2.*\n\nThe last text." in report
    assert "dolphin" not in report


def test_what_another_report_of_the_paper_has_is_named_and_not_missing() -> None:
    here = results(unfinished=["A on scenes", "C on photos"])
    there = results(tested={"scenes": {"A": {}}})
    elsewhere = finished_elsewhere("here", {"here": here, "there": there})
    assert elsewhere == {"A on scenes": "there"}
    report = report_of(here, {}, elsewhere)
    assert "* C on photos" in report
    assert "A on scenes" not in report
    assert "[another report](../there/report.md)" in report
    assert "Not finished" not in report_of(results(unfinished=["A on scenes"]), {}, elsewhere)


def test_looks_are_logged_and_counted_by_versions_of_the_search(tmp_path: Path) -> None:
    begin_folder(tmp_path, "A paper")
    looks = Looks(tmp_path)
    assert looks.versions() == {}
    (tmp_path / LOG).write_text(json.dumps({"date": "2026-11-21", "rows": "photos", "commit": "abc"}) + "\n")
    for method in ("A", "B", "A"):
        looks.add("photos", method)
    looks.add("scenes", "A")
    assert looks.versions() == {"photos": 3, "scenes": 1}
    assert looks.commit() == "abc"
    begin_folder(tmp_path, "A paper")  # the log is part of a report
    assert "at least these versions: 3 on photos, 1 on scenes." in shown_versions(looks.versions())


def test_looks_of_one_data_set_are_added_over_reports_and_once_in_a_report() -> None:
    logs = [{"corel5k-visterms": 2, "corel5k-chain": 3, "scenes": 1}, {"corel5k with onnx": 2, "corel5k": 1}]
    assert versions_by_data(logs) == {"corel5k": 5, "scenes": 1}


@pytest.mark.parametrize(
    ("versions", "text"), [({}, "at least 1 version."), ({"a": 3, "b": 3}, "at least 3 versions.")]
)
def test_reports_say_how_often_test_rows_were_used(versions: dict[str, int], text: str) -> None:
    assert text in shown_versions(versions)
