"""The papers' comparisons run again, on tiny drawn data."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import run_command
from planted import plant_corpus
from studies import run_study
from visterm.core.errors import CorruptFileError, DataError, MissingExtraError, StorageError, UserError
from visterm.core.packing import key_of
from visterm.core.registry import Registry, TableEntry
from visterm.core.tables import MODELS
from visterm.metrics import average_precisions
from visterm.models.neighbours.knn import Knn
from visterm.models.ranking.wsabie import Wsabie
from visterm_research.comparison.document import Document
from visterm_research.comparison.folder import begin_folder
from visterm_research.comparison.methods import EXACT_KNN, PRIOR, WSABIE, Method, chosen_methods
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.comparison.records import Records
from visterm_research.comparison.search import unordered
from visterm_research.comparison.sources import kind_of
from visterm_research.comparison.trials import OutOfTimeError, Trials
from visterm_research.pamir.methods import MORE_METHODS
from visterm_research.papers import read_paper
from visterm_research.vse_ens.study import OPT_AUC, VSE_WARP, converged, held_tag_problem, nuswide_problem, zipf_problem
from visterm_research.vse_ens.study import STUDY as VSE_ENS_STUDY
from visterm_research.wsabie.figures import best_until
from visterm_research.wsabie.neighbours import any_lost, first_lost, neighbour_hits
from visterm_research.wsabie.study import STUDY as WSABIE_STUDY

PAPER_TRAINING = {"step": "sgd", "schedule": "constant", "bias": 0.0, "average": 20, "standardize": False}

paper_vse_ens, paper_wsabie = read_paper("vse_ens"), read_paper("wsabie")

SMALL = Method(
    "WSABIE", "wsabie", {"dim": 8, "epochs": 6, "patience": 2}, {"learning_rate": unordered(0.005, 0.02)}, trials=2
)


def planted_problem() -> Problem:
    planted = plant_corpus(n_train=200, n_test=60, random_state=0)
    valid = Rows(planted.X_train[150:], planted.Y_train[150:])
    train = Rows(planted.X_train[:150], planted.Y_train[:150])
    test = Rows(planted.X_test, planted.Y_test)
    return Problem("planted", "a planted corpus", [f"t{i}" for i in range(12)], train, valid, test)


def test_every_registered_method_of_the_table_takes_its_settings() -> None:
    for method in (*WSABIE_STUDY.methods, *VSE_ENS_STUDY.methods):
        for setting in (*method.settings(), *method.quick().settings()):
            assert MODELS.create(method.model, **setting).get_params().items() >= setting.items()


WSABIES = [method for method in (WSABIE, VSE_WARP, *MORE_METHODS) if method.model == WSABIE.model]


@pytest.mark.parametrize("method", WSABIES, ids=lambda method: method.label)
def test_wsabie_learns_as_in_its_paper_whatever_its_defaults_are(method: Method) -> None:
    chosen = method.settings()[0]
    assert chosen | PAPER_TRAINING == chosen
    assert {"learning_rate", "max_norm", "row_length", "patience"} <= set(chosen)


def test_methods_with_settings_try_equally_many() -> None:
    for study, tries in ((WSABIE_STUDY, (10, 16)), (VSE_ENS_STUDY, (15, 24))):
        assert {(len(method.settings()), method.trials) for method in study.methods if method.box} == {tries}


def test_a_model_that_is_not_registered_is_an_error_and_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Registry("model", [TableEntry("wsabie", "visterm.models.ranking.wsabie:Wsabie", "")], group="visterm.none")
    monkeypatch.setattr("visterm_research.comparison.methods.MODELS", table)
    with pytest.raises(UserError, match=r"not registered: knn, prior.*among wsabie"):
        chosen_methods([WSABIE, EXACT_KNN, PRIOR], [])
    assert chosen_methods([WSABIE, EXACT_KNN], ["wsabie"]) == [WSABIE]
    with pytest.raises(UserError, match="no model 'opt_auc'; expected some of: knn, wsabie"):
        chosen_methods([WSABIE, EXACT_KNN], [OPT_AUC.model])


def test_settings_are_chosen_on_validation_rows_and_the_test_rows_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, judged = planted_problem(), []
    monkeypatch.setattr("visterm_research.comparison.problem.judge_rows", _counting(judged))
    tested = Trials(tmp_path, n_jobs=1).test(problem, SMALL)
    maps = [record["map"] for _, record in tested.choice.tried]
    assert len(maps) == 2
    assert tested.choice.record["map"] == max(maps)
    assert tested.choice.settings == SMALL.settings()[int(np.argmax(maps))]
    assert [rows is problem.test for rows in judged] == [True]


def test_a_second_run_fits_nothing_and_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = planted_problem()
    first = Trials(tmp_path, n_jobs=1).test(problem, SMALL)
    monkeypatch.setattr(Wsabie, "fit", lambda *_, **__: pytest.fail("fitted again"))
    again = Trials(tmp_path, n_jobs=1).test(problem, SMALL)
    assert again.metrics == first.metrics
    np.testing.assert_array_equal(again.values["p@1"], first.values["p@1"])


def test_a_chosen_model_fitted_again_gives_the_same_scores(tmp_path: Path) -> None:
    problem, trials = planted_problem(), Trials(tmp_path, n_jobs=1)
    (chosen,) = trials.choose(problem, SMALL)
    kept = trials.model(problem, chosen).decision_function(problem.test.X)
    trials.forget(problem.name)
    fitted = trials.model(problem, chosen).decision_function(problem.test.X)
    np.testing.assert_array_equal(kept, fitted)


def test_other_rows_are_other_results(tmp_path: Path) -> None:
    problem = planted_problem()
    fewer = Rows(problem.train.X[:100], problem.train.Y[:100])
    other = Problem("planted", "", problem.tags, fewer, problem.valid, problem.test)
    trials = Trials(tmp_path, n_jobs=1)
    trials.choose(problem, SMALL)
    trials.choose(other, SMALL)
    assert len(list((tmp_path / "planted" / "valid").glob("*.json"))) == 4


def test_no_fit_is_begun_when_the_time_is_over_but_finished_ones_count(tmp_path: Path) -> None:
    problem = planted_problem()
    with pytest.raises(OutOfTimeError):
        Trials(tmp_path, n_jobs=1, until=0.0).test(problem, SMALL)
    first = Trials(tmp_path, n_jobs=1).test(problem, SMALL)
    assert Trials(tmp_path, n_jobs=1, until=0.0).test(problem, SMALL).metrics == first.metrics


def test_images_by_number_are_stopped_by_rankings_without_their_known_tags(tmp_path: Path) -> None:
    problem = zipf_problem(300, 40, seed=0)
    trials = Trials(tmp_path, n_jobs=1)
    (chosen,) = trials.choose(problem, SMALL)
    model = trials.model(problem, chosen)
    rows = problem.valid
    found = np.nanmean(average_precisions(model.decision_function(rows.X), rows.Y, exclude=rows.known))
    assert chosen.record["map"] == pytest.approx(found)
    assert chosen.record["map"] == max(point["map"] for point in chosen.record["curve"])
    assert len(chosen.record["curve"]) <= chosen.record["epoch"] + 2


def test_no_tag_by_number_is_in_two_parts_and_none_is_lost() -> None:
    Y = sp.csr_array(np.random.default_rng(0).random((80, 12)) < 0.3, dtype=np.float32)
    problem = held_tag_problem("x", "drawn", Y, [f"t{i}" for i in range(12)], seed=1)
    train, valid, test = (part.toarray() for part in (problem.train.Y, problem.valid.Y, problem.test.Y))
    together = train.copy()
    for rows, held in ((problem.valid, valid), (problem.test, test)):
        images = rows.X.indices
        together[images] += held
        assert not (held * rows.known.toarray()).any()
    np.testing.assert_array_equal(together, Y.toarray())
    np.testing.assert_array_equal(test.sum(axis=1), 1)
    assert np.flatnonzero(np.diff(Y.indptr) >= 2).tolist() == problem.test.X.indices.tolist()


def test_losing_neighbours_costs_what_probability_says() -> None:
    hits = np.array([0.8, 0.4, 0.2])
    assert first_lost(hits, 0.5) == pytest.approx(0.6)
    assert any_lost(hits, 1.0) == pytest.approx(0.8)
    assert any_lost(hits, 0.5) == pytest.approx(0.5 * 0.8 + 0.25 * 0.4 + 0.125 * 0.2)


@pytest.mark.parametrize("kind", [np.array, sp.csr_array])
def test_the_precision_of_each_neighbour_is_counted_by_hand(kind: Any) -> None:
    X = kind(np.array([[1, 0], [1, 1], [0, 1]], np.float32))
    Y = sp.csr_array(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]], np.float32))
    sought = kind(np.array([[3, 1]], np.float32))
    wanted = sp.csr_array(np.array([[0, 1, 0]], np.float32))
    problem = Problem("x", "", ["a", "b", "c"], Rows(X, Y), Rows(X, Y), Rows(sought, wanted))
    np.testing.assert_allclose(neighbour_hits(problem), [0.5, 1.0, 0.0])


def test_curves_are_read_at_a_time_and_at_convergence() -> None:
    line = [1.0, 2.0, 3.0], [0.1, 0.4, 0.3]
    assert [best_until(line, seconds) for seconds in (0.5, 1.5, 3.0)] == [0.0, 0.1, 0.4]
    curve = [{"map": value, "epoch": epoch} for epoch, value in enumerate([0.1, 0.995, 1.0], start=1)]
    assert converged(curve) == {"map": 0.995, "epoch": 2}
    assert converged([{"map": None, "epoch": 1}]) is None


def test_the_papers_orders_that_are_claimed_are_the_papers() -> None:
    for other in ("PAMIR-IA", "One-vs-Rest", "Approx. k-NN"):
        for data in paper_wsabie.DATA:
            assert paper_wsabie.TABLE_2["WSABIE"][data]["p@1"] > paper_wsabie.TABLE_2[other][data]["p@1"]
    for data in paper_vse_ens.DATA:
        maps = [paper_vse_ens.TABLE_2[label][data]["map"] for label in ("VSE-ens", "WARP", "Opt-AUC")]
        assert maps == sorted(maps, reverse=True)


def test_records_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.put("a", "k", {"map": np.float32(0.5), "nan": float("nan")})
    assert records.get("a", "k") == {"map": 0.5, "nan": None}
    assert records.get("a", "other") is None
    (tmp_path / "a" / "k.json").write_text("[1]")
    with pytest.raises(CorruptFileError, match="Remove it"):
        records.get("a", "k")
    assert key_of({"b": 1, "a": (2,)}) == key_of({"a": [2], "b": 1})


def test_tables_of_a_document_escape_bars_and_set_figures_to_the_right() -> None:
    document = Document("Title")
    document.table("Caption", ["a|b", "n"], [["x|y", "1.50 %"], ["", "–"]])
    assert (
        document.render() == "# Title\n\n**Caption**\n\n| a\\|b | n |\n| --- | ---: |\n| x\\|y | 1.50 % |\n|   | – |\n"
    )


def test_a_section_that_nothing_follows_is_left_out() -> None:
    document = Document("Title")
    with document.section_if_filled("Empty", "What would be here."):
        document.table("No rows", ("a", "b"), [])
    with document.section_if_filled("Full", "What is here."):
        document.text("Something.")
    assert document.parts == ["## Full", "What is here.", "Something."]


def test_folders_that_hold_nothing_known_are_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataError, match="holds no data that this comparison can run on"):
        run_study("wsabie", tmp_path / "out", data=[tmp_path], models=["wsabie"])
    with pytest.raises(DataError, match="There is no folder"):
        run_study("vse_ens", tmp_path / "out", data=[tmp_path / "none"], models=["wsabie"])
    assert not (tmp_path / "out").exists()


def test_folders_are_known_by_what_they_hold(tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("row\tlabels\n0\tsea\n")
    assert kind_of(tmp_path) == "nuswide"
    (tmp_path / "images").mkdir()
    assert kind_of(tmp_path) == "corel5k"
    assert kind_of(tmp_path / "images") is None


def test_nus_wides_name_says_how_many_concepts_the_rows_have(tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("row\tlabels\n0\tsea,sky,sun\n1\tsea,sky,sun\n")
    problem = nuswide_problem(tmp_path, seed=0)
    assert problem.name == "nuswide-3-concepts"
    assert "3 concepts" in problem.what


def test_without_matplotlib_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'visterm\[plot\]'"):
        run_study("vse_ens", tmp_path / "out", models=["wsabie"], quick=True)


def test_the_quick_vse_ens_comparison_writes_a_report(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    outcome = run_study("vse_ens", tmp_path, models=["wsabie", "prior"], quick=True, n_jobs=1)
    results = json.loads((tmp_path / "results.json").read_text())
    report = outcome.report.read_text()
    assert set(results["tested"]["zipf"]) == {"WARP", PRIOR.label}
    assert results["left_out"] == ["VSE-ens", "Opt-AUC"]
    assert [f"Table {i} on zipf" in report for i in (1, 2, 3, 4)] == [True] * 4
    assert (tmp_path / "figures" / "draws-zipf.png").stat().st_size > 1000


def test_the_quick_wsabie_comparison_says_which_orders_hold(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    models = ["wsabie", "knn", "ridge", "prior"]
    outcome = run_study("wsabie", tmp_path, models=models, quick=True, n_jobs=1)
    report = outcome.report.read_text()
    assert {claim.first for claim in outcome.claims} >= {"k-NN", "WSABIE"}
    assert all(claim.order in report for claim in outcome.claims)
    for problem in ("scenes", "dictionary"):
        for table in (1, 2, 3, 4, 5, 6, 8):
            assert f"Table {table} on {problem}" in report
        assert (tmp_path / "figures" / f"precision-{problem}.png").stat().st_size > 1000
    again = run_study("wsabie", tmp_path, models=models, quick=True, n_jobs=1, minutes=0)
    assert [claim.verdict for claim in again.claims] == [claim.verdict for claim in outcome.claims]
    assert again.unfinished == []
    assert again.report.read_text() == report


class Steps(Wsabie):
    """Stands in for methods with passive-aggressive steps."""

    def __init__(
        self, *, aggressiveness: float = 1.0, epochs: int = 8, patience: int = 3, random_state: int = 0
    ) -> None:
        super().__init__(dim=8, epochs=epochs, patience=patience, learning_rate=0.02, random_state=random_state)
        self.aggressiveness = aggressiveness


class Tree(Knn):
    """Stands in for approximate neighbours."""

    def __init__(self, *, levels: int = 2, n_neighbors: int = 20, power: float = 1.0, random_state: int = 0) -> None:
        super().__init__(n_neighbors=n_neighbors, power=power, random_state=random_state)
        self.levels = levels


class Sum(Wsabie):
    """Stands in for ensembles."""

    def __init__(self, *, members: tuple[Any, ...] = (), random_state: int = 0) -> None:
        super().__init__(**members[0][1], random_state=random_state)
        self.members = members


def test_all_methods_together_make_every_table_figure_and_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    wsabie, steps = "visterm.models.ranking.wsabie:Wsabie", f"{__name__}:Steps"
    stand_ins = {
        **dict.fromkeys(("wsabie", "auc_embedding", "owpc_sgd", "warp_linear"), wsabie),
        **dict.fromkeys(("pamir_ia", "one_vs_rest"), steps),
        "rp_knn": f"{__name__}:Tree",
        "ensemble": f"{__name__}:Sum",
        "knn": "visterm.models.neighbours.knn:Knn",
        "ridge": "visterm.models.linear.ridge:Ridge",
        "prior": "visterm.models.baselines:Prior",
    }
    table = Registry(
        "model", [TableEntry(name, target, "") for name, target in stand_ins.items()], group="visterm.none"
    )
    monkeypatch.setattr("visterm_research.comparison.methods.MODELS", table)
    monkeypatch.setattr("visterm_research.comparison.trials.MODELS", table)
    monkeypatch.setattr("visterm_research.wsabie.study.image_problems", lambda *_: [planted_problem()])
    outcome = run_study("wsabie", tmp_path, quick=True, n_jobs=1)
    report = outcome.report.read_text()
    assert outcome.unfinished == []
    assert "Left out" not in report
    for part in ("Table 7", "Section 6.4 on planted: the size of leaves", "WSABIE-10 + WSABIE-20", "than OWPC-SGD"):
        assert part in report
    for figure in ("precision", "training", "leaves", "lost"):
        assert (tmp_path / "figures" / f"{figure}-planted.png").stat().st_size > 1000
    wheres = " ".join(claim.where for claim in outcome.claims)
    assert all(part in wheres for part in ("Table 2", "Table 5", "Table 6", "Table 7", "Figure 2", "section 6.4"))


def test_the_command_prints_what_holds_and_where_the_report_is(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    command = ["reproduce", "vse-ens", "--quick", "--model", "wsabie", "--jobs", "1", "-o", str(tmp_path / "out")]
    done = run_command(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "holds here" in done.stdout
    assert str(tmp_path / "out" / "report.md") in done.stderr
    assert "A quick run shows that everything runs, and says nothing about the methods." in done.stderr
    wrong = run_command(["reproduce", "vse-ens", "--model", "wsabi"], tmp_path)
    assert wrong.returncode == 2
    assert "no model 'wsabi'" in wrong.stderr


def _counting(judged: list[Rows]) -> Any:
    from visterm_research.comparison.problem import judge_rows

    def count(model: Any, rows: Rows, siblings: Any) -> Any:
        judged.append(rows)
        return judge_rows(model, rows, siblings)

    return count


PAPER = "one paper"


def test_a_folder_of_other_things_is_refused_before_anything_is_fitted(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(b"a photo")
    (tmp_path / "data").mkdir()
    with pytest.raises(StorageError, match=r"not a reproduction of visterm \(it holds 1.jpg\).*Choose another name"):
        run_study("wsabie", tmp_path, models=["wsabie"], quick=True)
    with pytest.raises(StorageError, match=r"1\.jpg cannot be read as a folder"):
        begin_folder(tmp_path / "1.jpg", PAPER)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.jpg", "data"]


def test_a_reproduction_goes_on_in_its_own_folder_whatever_was_put_beside_it(tmp_path: Path) -> None:
    begin_folder(tmp_path / "new", PAPER)
    (tmp_path / "new" / "notes.txt").write_text("mine")
    begin_folder(tmp_path / "new", PAPER)
    with pytest.raises(StorageError, match=r"the comparison of another paper \(one paper\)"):
        begin_folder(tmp_path / "new", "another paper")


def test_a_reproduction_from_before_there_was_a_description_goes_on(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / ".12-report.md").touch()
    begin_folder(tmp_path, PAPER)
    (tmp_path / "reproduction.json").unlink()
    (tmp_path / "results.json").write_text(json.dumps({"paper": "another paper"}))
    with pytest.raises(StorageError, match="another paper"):
        begin_folder(tmp_path, PAPER)
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(StorageError, match=r"results.json was not written by this command"):
        begin_folder(tmp_path, PAPER)
