"""Finished parts of a comparison are found again by names that must never change: weeks of fits are kept under them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.data.corpus import Corpus
from visterm_research.comparison.methods import Method
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.comparison.trials import Choice, Trials
from visterm_research.pamir.images import Division, Pictures, words_of
from visterm_research.pamir.methods import blocks
from visterm_research.pamir.rows import SearchRows
from visterm_research.parts.images import Labelled
from visterm_research.parts.problem import related
from visterm_research.ugc.problems import TagProblem, Words

RIDGE = Method("ridge", "ridge", {"alpha": 1.0})


def eye(n: int) -> Rows:
    return Rows(np.eye(n, 4, dtype=np.float32), sp.csr_array(np.eye(n, 4, dtype=np.float32)))


def annotation() -> Problem:
    return Problem("tiny", "tiny", list("abcd"), eye(4), eye(3), eye(2))


def tags() -> TagProblem:
    vectors = np.eye(4, dtype=np.float32)
    return TagProblem(annotation(), Words("learned", vectors, vectors[:2], ["x", "y"]))


def parts() -> Any:
    data = Labelled("tiny", "tiny", list("abcd"), eye(4), eye(4), eye(4), ["1"] * 4)
    return related(data, np.array([(2, 0), (3, 1)]), share=0.0, n_valid=5, n_test=5, seed=0)


def search() -> SearchRows:
    names = [f"{number}.png" for number in range(1, 5)]
    corpus = Corpus.of(names, names, [["a", "b"], ["a", "b"], ["b"], ["a"]])
    division = Division(np.array([0, 1, 2]), np.array([3]))
    pictures = Pictures("tiny", corpus, corpus, words_of(corpus), (division,), None, shown=(1,))
    X = np.eye(4, dtype=np.float32)
    return SearchRows(pictures, blocks(32), 0, X, X)


@pytest.mark.parametrize(
    ("make", "method", "fit", "judgement"),
    [
        (annotation, RIDGE, "e2f3bc370f1a878b", "6ed2b94c24e21ca8"),
        (tags, RIDGE, "3bcd5a539e4193ee", "88b55f7869c67594"),
        (parts, Method("words", "objects_and_parts", {"dim": 4}, by="words"), "2afad6281068e4b7", "e889d1444c014d23"),
        (search, RIDGE, "8f962267fb447bf6", "4013c624c272583d"),
    ],
)
def test_the_names_of_fits_and_judgements_are_those_of_the_first_version(make, method, fit, judgement, tmp_path):
    benchmark, trials = make(), Trials(tmp_path)
    (settings,) = method.settings()
    assert trials.key(benchmark, method.model, settings) == fit
    assert benchmark.test_key(trials, Choice(method, method.by, settings, {}, [])) == judgement


def test_a_fit_on_record_is_taken_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "tiny" / "valid").mkdir(parents=True)
    written = '{"model": "ridge", "settings": {"alpha": 1.0}, "map": 0.5, "seconds": 1.0, "epoch": null, "curve": []}'
    (tmp_path / "tiny" / "valid" / "e2f3bc370f1a878b.json").write_text(written)
    (choice,) = Trials(tmp_path, until=0.0).choose(annotation(), RIDGE)
    assert choice.record["map"] == 0.5


def test_other_rows_have_other_names(tmp_path: Path) -> None:
    trials, whole = Trials(tmp_path), annotation()
    fewer = replace(whole, train=eye(3))
    assert trials.key(whole, "ridge", {}) != trials.key(fewer, "ridge", {})
