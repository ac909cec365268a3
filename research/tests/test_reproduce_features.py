"""The objects-and-parts paper's comparison of features, on tiny drawn data."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import run_command
from planted import plant_corpus
from studies import run_study, tables_of
from tiny_scenes import scene
from visterm.core.errors import DataError, UserError
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.encoders.blocks import BlockCutter, pixel_codes
from visterm.encoders.named import make_encoder
from visterm.encoders.visterms import Visterms
from visterm_research.comparison.feature_sets import (
    CHAIN,
    ENSEMBLE,
    FEATURE_SETS,
    OUR_VISTERMS,
    PAPER_PARAMS,
    PAPER_VISTERMS,
    FeatureSet,
    with_extra,
)
from visterm_research.comparison.methods import EXACT_KNN, WSABIE
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.comparison.run import Comparison, Outcome
from visterm_research.comparison.sources import Source
from visterm_research.comparison.trials import Trials
from visterm_research.features.photo_run import PhotoRun
from visterm_research.features.study import EVERYWHERE, STUDY
from visterm_research.features.tables import differences_part, feature_claims
from visterm_research.papers import read_paper

paper = read_paper("objects_and_parts")

NEIGHBOURS = EXACT_KNN.with_fixed(EXACT_KNN.label, n_neighbors=10, power=1.0)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    pytest.importorskip("matplotlib")
    return run_study("features", tmp_path_factory.mktemp("features"), quick=True, n_jobs=1)


def planted(*, shuffled: bool) -> Problem:
    """A planted corpus with its features, or with those of other images."""
    corpus = plant_corpus(n_train=200, n_test=80, random_state=0)
    X = corpus.X_train[np.random.default_rng(0).permutation(200)] if shuffled else corpus.X_train
    train, valid = Rows(X[:150], corpus.Y_train[:150]), Rows(X[150:], corpus.Y_train[150:])
    return Problem("any", "planted", [f"t{i}" for i in range(12)], train, valid, Rows(corpus.X_test, corpus.Y_test))


def photo_run(folder: Path) -> PhotoRun:
    return PhotoRun("photos", Comparison(folder, Trials(folder / "results", n_jobs=1)), shrink=50)


def test_the_papers_figures_are_in_the_orders_that_are_claimed(quick: Outcome) -> None:
    for claim in quick.claims:
        if any(claim.paper):
            above, below = (float(figure.removesuffix(" %")) for figure in claim.paper)
            assert above > below, claim.order
        else:
            assert claim.where == paper.WHATEVER_THE_METHOD


def test_every_kind_of_features_is_an_encoder_that_takes_its_settings() -> None:
    for features in FEATURE_SETS:
        for one in (features, features.quick()):
            made = make_encoder(one.encoder, one.params, {"random_state": 0, "n_jobs": 1})
            assert made.get_params()["random_state"] == 0


def test_a_report_names_the_file_of_an_encoder_but_not_its_folder() -> None:
    assert FeatureSet("net", "net", "onnx:/home/me/nets/net.onnx").settings == "onnx:net.onnx"
    assert FeatureSet("net", "net", "kernel_pca:histograms", {"dim": 3}).settings == "kernel_pca:histograms (dim=3)"


def test_visterms_as_in_the_paper_are_what_its_sections_say() -> None:
    said = {
        "colour_space": "rgb", "colours": 50, "overlap": 0.5, "texture_weight": 1.0, "root": False,
        "shared_words": True, "neighbours": 1, "root_terms": False, "levels": 1,
    }  # fmt: skip
    assert said == PAPER_PARAMS
    assert PAPER_VISTERMS.params == {**said, "codebook": 10_000, "block": 64 / 384, "scales": (0.5, 1.0, 2.0)}
    assert set(PAPER_PARAMS) <= set(inspect.signature(Visterms).parameters)
    assert PAPER_VISTERMS.quick().params.items() >= {**said, "colours": 16}.items()


def test_a_row_of_the_papers_visterms_is_tf_times_idf_of_nearest_words_over_blocks_of_all_sizes() -> None:
    scenes = [scene(("stripes", "dots")[i % 2], i) for i in range(12)]
    encoder = Visterms(**{**PAPER_VISTERMS.params, "codebook": 25, "colours": 6}).fit(scenes)
    words = encoder.codebook_.astype(np.float64)
    assert len(words) == 25

    def counts(pixels: Any) -> Any:
        """Count the nearest words of all blocks, one block after another."""
        found = np.zeros(25)
        codes = pixel_codes(pixels, encoder._table())
        for side in (1 / 12, 1 / 6, 1 / 3):
            for block in BlockCutter((side,), 6, False, 1.0).points(codes, 0):
                found[np.argmin(np.square(words - block).sum(axis=1))] += 1
        return found

    terms = np.array([counts(pixels) for pixels in scenes])
    share = (terms > 0).mean(axis=0)
    expected = terms * np.where(share > 0, -np.log(np.maximum(share, 1 / 12)), 0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.transform(scenes).toarray(), expected, atol=1e-5)


def test_every_method_takes_its_settings_and_tries_equally_many() -> None:
    for method in STUDY.methods:
        assert (len(method.settings()), method.trials) == (10, 16)
        for setting in (*method.settings(), *method.quick().settings()):
            MODELS.create(method.model, **setting)


def test_features_are_kept_by_what_the_encoder_inside_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = [np.random.default_rng(i).integers(0, 256, (40, 60, 3)).astype(np.uint8) for i in range(6)]
    corpus = Corpus.of(photos, [f"{i}.png" for i in range(6)], [["a"], ["b"]] * 3)
    parts = [corpus.subset([i, i + 1]) for i in (0, 2, 4)]
    made: list[str] = []

    def encode(colours: int, n_jobs: int) -> None:
        inside = ("histograms", {"colours": colours, "textons": 0, "levels": 1})
        params = {"encoder": inside, "dim": 2, "landmarks": 2}
        vocabulary = Vocabulary.from_lists(corpus.tags)
        source = Source(tmp_path, n_jobs=n_jobs, before_work=lambda: made.append(""))
        source.encode(parts, vocabulary, "kernel_pca", params)

    for colours, n_jobs, expected in ((4, 1, 1), (4, 2, 1), (5, 1, 2)):
        encode(colours, n_jobs)
        assert len(made) == expected


@pytest.mark.parametrize(("good", "verdict"), [(ENSEMBLE, "yes"), (PAPER_VISTERMS, "no")])
def test_features_that_say_more_are_found_to_be_better(tmp_path: Path, good: Any, verdict: str) -> None:
    run = photo_run(tmp_path)
    for features in (PAPER_VISTERMS, ENSEMBLE):
        run.encode(features, partial(planted, shuffled=features is not good))
    run.test([NEIGHBOURS], run.sets)
    feature_claims(run)
    assert [(claim.of, claim.verdict) for claim in run.comparison.claims] == [("p@1", verdict), ("MAP", verdict)]
    counts = "for 1 of 1 methods, below for 0" if verdict == "yes" else "for 0 of 1 methods, below for 1"
    assert differences_part(run) == [
        f"On photos, by MAP: ensemble+KPCA above paper visterms {counts}, too close to call for 0."
    ]


def test_a_large_embedding_has_the_settings_that_were_chosen_at_100(tmp_path: Path) -> None:
    run = photo_run(tmp_path)
    run.encode(PAPER_VISTERMS, lambda: planted(shuffled=False))
    run.encode(ENSEMBLE, lambda: planted(shuffled=False))
    run.test([WSABIE.quick()], run.sets)
    for features, size in ((PAPER_VISTERMS, 10), (ENSEMBLE, 20)):
        found = run.found(features)
        assert list(found) == ["WSABIE", f"WSABIE [d={size}]"]
        large = run.tested("WSABIE", features)
        assert large is not None
        assert large.choice.settings == {**found["WSABIE"].choice.settings, "dim": size}


def test_features_of_other_test_photos_are_refused(tmp_path: Path) -> None:
    run = photo_run(tmp_path)
    whole = planted(shuffled=False)
    run.encode(PAPER_VISTERMS, lambda: whole)
    fewer = replace(whole, test=Rows(whole.test.X[:70], whole.test.Y[:70]))
    with pytest.raises(DataError, match=r"ensemble\+KPCA .* has rows for 70 test photos of photos, and .* for 80"):
        run.encode(ENSEMBLE, lambda: fewer)


def test_one_more_encoder_is_one_more_kind_of_features() -> None:
    assert with_extra(None) == list(FEATURE_SETS)
    *before, last = with_extra("onnx:net.onnx")
    assert before == list(FEATURE_SETS)
    assert (last.label, last.encoder) == ("onnx (not in the paper)", "onnx:net.onnx")


def test_the_quick_comparison_has_every_table_beside_the_papers_rows(quick: Outcome) -> None:
    report, folder, tables = quick.report.read_text(), quick.report.parent, tables_of(quick)
    rows = tables["Table 1 on scenes: the test images"]
    theirs = [row for row in rows if row[2] == "ImageNet (paper)"]
    assert sorted((row[0], row[1]) for row in theirs) == sorted(paper.TABLE_1)
    assert ["k-NN", "ensemble+KPCA", "ImageNet (paper)", "7.73 %", "–", "–"] in theirs
    for method in EVERYWHERE:
        shown = [row[1] for row in rows if row[2] == "scenes" and row[0].partition(" [")[0] == method.label]
        assert set(shown) == {features.label for features in FEATURE_SETS}
    losses = tables["Table 2 on scenes: losses, on paper visterms"]
    assert losses[1] == ["embedding [d=100]", "ImageNet (paper)", "1.65 %", "4.03 %"]
    assert all(claim.order in report for claim in quick.claims)
    assert len(quick.claims) == 30
    assert quick.unfinished == []
    assert (folder / "figures" / "features-scenes.png").stat().st_size > 1000
    for features in (PAPER_VISTERMS, OUR_VISTERMS, ENSEMBLE, CHAIN):
        assert f"scenes-{features.slug} | k-NN" in report


def test_a_second_run_has_nothing_left_to_do(quick: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    before = quick.report.read_text()
    monkeypatch.setattr(
        "visterm_research.comparison.problem.judge_rows", lambda *_: pytest.fail("test rows read again")
    )
    again = run_study("features", quick.report.parent, quick=True, n_jobs=1, minutes=0)
    assert again.report.read_text() == before
    assert again.unfinished == []


def test_without_time_nothing_is_drawn_or_encoded_and_all_is_listed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    outcome = run_study("features", tmp_path, quick=True, n_jobs=1, minutes=0)
    assert outcome.unfinished == [f"The features {features.label} of scenes" for features in FEATURE_SETS]
    assert not (tmp_path / "data").exists()
    assert "## Not finished" in outcome.report.read_text()


def test_a_model_outside_the_comparison_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model 'vse_ens'; expected some of: auc_embedding, "):
        run_study("features", tmp_path, models=["vse_ens"])


def test_the_command_gives_one_claim_a_line_and_the_report_last(quick: Outcome) -> None:
    folder = str(quick.report.parent)
    command = ["reproduce", "features", "--quick", "--jobs", "1", "--time-budget", "0", "--json", "-o", folder]
    done = run_command(command)
    assert done.returncode == 0, done.stderr
    *claims, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert claims == [claim.as_dict() for claim in quick.claims]
    assert last == {"report": str(quick.report), "unfinished": []}


@pytest.mark.parametrize("option", [["features", "--wordnet", "dict"], ["vse-ens", "--encoder", "histograms"]])
def test_options_of_another_paper_are_refused(option: list[str], tmp_path: Path) -> None:
    done = run_command(["reproduce", *option, "-o", tmp_path / "out"])
    assert done.returncode == 2
    assert f"{option[1]} is for" in done.stderr
    assert not (tmp_path / "out").exists()
