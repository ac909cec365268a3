"""The page of all verdicts: counts before and now, and a reason, or none, for each order that does not hold."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from visterm.core.errors import DataError
from visterm_research.comparison.cite_page import CITE, cite_page
from visterm_research.comparison.claims import Claim
from visterm_research.comparison.looks import Looks
from visterm_research.comparison.report import RESULTS, read_results, written_reports
from visterm_research.comparison.verdict_page import (
    CHANCE,
    PAGE,
    Reason,
    Report,
    order_of,
    page_of,
    read_reports,
    verdicts_of,
    write_before,
    written_page,
)
from visterm_research.comparison.verdicts import NO, UNSURE, YES

REPORTS = Path(__file__).resolve().parents[1] / "docs" / "reproductions"


def claim(first: str, second: str, verdict: str, *, of: str = "p@1", where: str = "Table 2") -> dict[str, Any]:
    paper, here = ("4.00 %", "2.00 %"), ("5.00 %", "6.00 %")
    p_value = 0.2 if verdict == UNSURE else 0.001
    made = Claim(first, second, of, where, "photos", paper, here, verdict, "95 % interval", p_value=p_value)
    return made.as_dict()


CLAIMS = [claim("A", "B", NO), claim("A", "C", YES), claim("B", "C", UNSURE), claim("C", "D [2]", NO, where="Table 3")]


def test_the_page_counts_and_shows_what_was_before_and_what_is_now() -> None:
    before = {order_of(CLAIMS[0]): YES, order_of(CLAIMS[2]): UNSURE, "photos | Table 9 | gone": YES}
    versions = {"photos": 1, "corel5k-visterms": 2}
    page = page_of([Report("one", "One paper again", "A paper", CLAIMS, versions, 3)], "abc", {"one": before}, [])
    assert "| [One paper again](#one) | 4 | 1 (1) | 2 (2) | 1 (1) | 2 |" in page
    assert "| together | 4 | 1 (1) | 2 (2) | 1 (1) |   |" in page
    assert "Over all reports, the test rows of a data set were used at least 2 times (corel5k)." in page
    assert "| unknown | 2 | 2 |" in page
    assert "| Table 2 | 1 | 1 | 1 |" in page
    assert "| Table 3 | 0 | 1 | 0 |" in page
    assert (
        "| photos | Table 2 | A better than B | p@1 | 4.00 % / 2.00 % | 5.00 % / 6.00 % | holds | does not hold | "
        "does not hold |"
    ) in page
    assert "| – | holds | holds |" in page
    assert "| too close | too close | too close |" in page
    assert "1 earlier orders are no longer judged." in page
    assert "| one | 2 | 1 | 0 | 1 | 1 |" in page, "of two that were judged twice, one is reversed"
    assert "A paper. [The report](one/report.md). 3 parts were not run." in page


def test_an_order_that_does_not_hold_has_its_reason_or_none_is_known() -> None:
    reasons = [
        Reason("It was not tuned.", "o*", "settings", second="D [2]"),
        Reason("Nor was D.", "one", first="C", where="*3"),
    ]
    page = page_of([Report("one", "", "", CLAIMS)], "abc", {}, reasons)
    assert "* **photos, Table 3: C better than D [2] by p@1.** It was not tuned. Nor was D." in page
    assert "* **photos, Table 2: A better than B by p@1.** We don't know." in page
    assert "* one: photos, Table 2: A better than B by p@1." in page, "the list of unknown causes"
    assert "| which settings were searched, and how they were chosen | 1 | 1 |" in page


def test_orders_with_the_same_reason_share_a_line() -> None:
    page = page_of([Report("one", "", "", CLAIMS)], "abc", {}, [Reason("It was not tuned.", "one", "settings")])
    both = "photos, Table 2: A better than B by p@1; photos, Table 3: C better than D [2] by p@1"
    assert f"* **{both}.** It was not tuned." in page
    assert "unknown" not in page


def test_measures_of_one_order_and_orders_of_one_table_are_named_together() -> None:
    claims = [{**claim("A", second, NO), "of": of} for second in "BC" for of in ("p@1", "p@5", "MAP")]
    page = page_of([Report("one", "", "", claims)], "abc", {}, [Reason("It was not tuned.", "one", "settings")])
    orders = "A better than B by p@1, p@5 and MAP; A better than C by p@1, p@5 and MAP"
    assert f"* **photos, Table 2: {orders}.** It was not tuned." in page


def test_an_order_that_turned_with_the_search_says_why_whatever_it_is_now() -> None:
    turned = Reason("More settings were tried.", "one", turned=True, first="A", second="C")
    page = page_of([Report("one", "", "", CLAIMS)], "abc", {}, [turned])
    assert "These changed with the search:\n\n* **photos, Table 2: A better than C by p@1.** More settings" in page


def test_what_the_correction_leaves_open_needs_no_other_cause() -> None:
    claims = [{**claim("A", str(n), NO), "p_value": 0.03} for n in range(2)]
    page = page_of([Report("one", "", "", claims)], "abc", {}, [])
    assert f"* **photos, Table 2: A better than 0 by p@1; A better than 1 by p@1.** {CHANCE}" in page
    assert "| too close to call after the correction | 2 | 2 |" in page


@pytest.mark.parametrize(
    "reason",
    [
        Reason("x", "one", "weather"),
        Reason("x", "two"),
        Reason("x", "one", first="B"),
        Reason("x", "one", second="D 2"),
        Reason("x", "one", of="MAP"),
    ],
)
def test_a_reason_for_what_holds_or_is_not_there_is_refused(reason: Reason) -> None:
    with pytest.raises(DataError, match="has a reason for an order that holds or is gone"):
        page_of([Report("one", "", "", CLAIMS)], "abc", {}, [reason])


def test_an_order_has_the_same_name_in_every_run() -> None:
    names = {
        order_of(claim("WSABIE", "AUC", YES, of=f"validation MAP after the {taken} s that WSABIE takes to its best"))
        for taken in ("1.5", "23", "1.2e+03")
    }
    names |= {order_of(claim(f"WARP's draws after {n} epochs", "after the first one", YES)) for n in (3, 25)}
    assert len(names) == 2
    assert order_of(claim("A", "B", YES)) == order_of(claim("A", "B", NO))
    assert len({order_of(one) for one in CLAIMS}) == 4


def test_an_order_that_is_judged_twice_is_refused() -> None:
    with pytest.raises(DataError, match="1 orders are judged twice"):
        verdicts_of([*CLAIMS, claim("A", "B", YES)])


def write_report(
    folder: Path,
    claims: list[dict[str, Any]],
    *,
    quick: bool = False,
    unfinished: tuple[str, ...] = (),
    paper: str = "A paper",
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tested = {one["problem"]: {"A": {}, "B": {}} for one in claims}
    content = {"title": "Again", "paper": paper, "claims": claims, "quick": quick, "unfinished": unfinished}
    content["tested"] = tested
    (folder / "results.json").write_text(json.dumps(content))


def test_quick_runs_and_folders_without_reports_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no reports"):
        read_reports(tmp_path)
    write_report(tmp_path / "one", CLAIMS, quick=True)
    with pytest.raises(DataError, match="is of a quick run"):
        read_reports(tmp_path)


def test_parts_that_another_report_of_the_paper_has_are_not_counted_as_not_run(tmp_path: Path) -> None:
    scenes = [{**claim("A", "B", YES), "problem": "scenes"}]
    write_report(tmp_path / "one", CLAIMS, unfinished=("A on scenes", "B on scenes", "C on scenes", "A on photos"))
    write_report(tmp_path / "two", scenes, unfinished=("B on scenes",))
    write_report(tmp_path / "three", CLAIMS, unfinished=("A on scenes",), paper="Another paper")
    assert {report.name: report.unfinished for report in read_reports(tmp_path)} == {"one": 3, "two": 1, "three": 1}


def test_what_was_before_is_read_from_git(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        names = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    write_report(tmp_path / "one", CLAIMS)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD").strip()
    write_report(tmp_path / "one", [claim("A", "B", YES)])
    write_report(tmp_path / "two", CLAIMS)
    write_before(tmp_path, commit)
    known = json.loads((tmp_path / "before.json").read_text())
    assert known == {"commit": commit, "reports": {"one": verdicts_of(CLAIMS)}}
    with pytest.raises(DataError, match="has none of the reports"):
        write_before(tmp_path, "0000000")


def test_our_page_is_what_our_reports_say() -> None:
    page = (REPORTS / PAGE).read_text(encoding="utf-8")
    assert page == written_page(REPORTS), "run: python -m visterm_research.comparison.verdict_page docs/reproductions"
    for report in read_reports(REPORTS):
        reasons = [line for line in page.splitlines() if line.startswith("* **")]
        for one in report.claims:
            order = f"{one['first']} {one['relation']} {one['second']} by "
            parts = (f"{one['problem']}, {one['where']}: ", order, one["of"])
            assert one["verdict"] != NO or any(all(part in line for part in parts) for line in reasons), parts


def test_our_reports_are_what_their_results_say() -> None:
    for path, text in written_reports(REPORTS).items():
        assert path.read_text(encoding="utf-8") == text, f"write {PAGE} anew: it writes {path}, too"


def test_our_page_to_cite_names_the_hash_and_the_commit_of_each_report() -> None:
    page, reports = (REPORTS / CITE).read_text(encoding="utf-8"), read_results(REPORTS)
    assert page == cite_page(REPORTS, reports), f"write {PAGE} anew: it writes {CITE}, too"
    for name in reports:
        assert hashlib.sha256((REPORTS / name / RESULTS).read_bytes()).hexdigest() in page
        assert f"| commit of the run | {Looks(REPORTS / name).commit()} |" in page


def test_every_report_of_ours_has_a_log_of_its_looks() -> None:
    assert all(max(report.versions.values()) >= 2 for report in read_reports(REPORTS))
