"""`auto` over features of several kinds with a model that compares each kind by its own distance."""

from __future__ import annotations

import pytest

from test_auto_blocks import RIDGE, Kinds
from visterm.models.blend.auto import Auto


@pytest.fixture(scope="module")
def kinds():
    return Kinds()


def test_models_that_compare_kinds_are_told_the_blocks_where_they_read_all(kinds):
    model = Auto(candidates=[("jec", {"distances": "l2"})], blocks=kinds.widths).fit(kinds.X_train, kinds.Y_train)
    told = {entry["block"]: entry["settings"].get("blocks") for entry in model.report_ if entry["model"] == "jec"}
    assert told == {None: kinds.widths, 1: None, 2: None}


@pytest.mark.parametrize("own", [{"blocks": (12, 1)}, {"distances": ["l2", "cosine"]}])
def test_a_candidate_with_settings_for_each_block_reads_all(own, kinds):
    X = kinds.X_train[:, :13]
    model = Auto(candidates=[("jec", own), RIDGE], blocks=[12, 1]).fit(X, kinds.Y_train)
    tried = sorted((entry["model"], entry["block"] or 0) for entry in model.report_)
    assert tried == [("jec", 0), ("ridge", 0), ("ridge", 1), ("ridge", 2)]
