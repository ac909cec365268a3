"""Whoever wrote the files of a run of this package's models and encoders, it is refused with one line or it answers."""

from __future__ import annotations

import pytest

import fuzzed_encoders
import fuzzed_models
from test_fuzzed_runs import MANY, check, names_of, runs
from visterm.core.registry import RESEARCH
from visterm.core.tables import ENCODERS, MODELS

__all__ = ["runs"]


@pytest.mark.parametrize("cases", [fuzzed_models, fuzzed_encoders], ids=lambda cases: cases.__name__)
def test_any_damage_to_a_run_is_refused_in_one_line_or_leaves_it_answering(cases, runs):
    check(cases, runs(cases, RESEARCH), "all")


@pytest.mark.slow
@pytest.mark.parametrize("name", names_of(MODELS, RESEARCH))
def test_any_of_many_damages_to_a_model_is_refused_in_one_line_or_leaves_it_answering(name, runs):
    check(fuzzed_models, runs(fuzzed_models, RESEARCH), name, MANY)


@pytest.mark.slow
@pytest.mark.parametrize("name", names_of(ENCODERS, RESEARCH))
def test_any_of_many_damages_to_an_encoder_is_refused_in_one_line_or_leaves_it_answering(name, runs):
    check(fuzzed_encoders, runs(fuzzed_encoders, RESEARCH), name, MANY)
