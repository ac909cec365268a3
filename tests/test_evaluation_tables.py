"""The sentences of `visterm evaluate --against` about two runs."""

from __future__ import annotations

import pytest

from visterm.cli.evaluate import show_annotation


@pytest.mark.parametrize(
    ("better", "sentence"),
    [
        (1, "auc: a is better than b (Wilcoxon p = 0.01; difference -0.0978, 95 % -0.1200 to -0.0500)."),
        (-1, "auc: b is better than a (Wilcoxon p = 0.01; difference +0.0978, 95 % +0.0500 to +0.1200)."),
        (0, "auc: a and b do not differ significantly (Wilcoxon p = 0.01; difference -0.0978, 95 % -0.1200 to -0.0500"),
    ],
)
def test_the_difference_is_of_the_run_that_the_sentence_names_first(better, sentence, capsys) -> None:
    pair = {"better": better, "holm_p": 0.01, "mean": -0.0978, "low": -0.12, "high": -0.05}
    runs = [{"run": run, "metrics": {"auc": {"mean": 0.5}}} for run in "ab"]
    show_annotation({"runs": runs, "pairs": [{"first": "a", "second": "b", "auc": pair}]}, ["auc"])
    assert sentence in capsys.readouterr().out
