"""What stands before and after the tables of the PAMIR comparison: what this is, orders that hold, what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from visterm_research.comparison.markdown import Document
from visterm_research.comparison.run import Comparison, Outcome
from visterm_research.comparison.sections import claims_part, introduction, unfinished_part
from visterm_research.pamir.run import SearchRun
from visterm_research.papers import pamir as paper

JUDGED = (
    ": Wilcoxon's signed rank test at 95 % over the test queries, the value of a query being its mean over the "
    "divisions; single measurements of time count as equal within a tenth."
)


def finish(comparison: Comparison, runs: Sequence[SearchRun], *, quick: bool, left_out: Sequence[str]) -> Outcome:
    """Put what it is and the claims before the tables, what is missing behind, and write all."""
    body, document = comparison.document, Document("Search by several words: the PAMIR comparison, run again")
    comparison.document = document
    introduction(document, paper.PAPER, quick=quick, left_out=left_out)
    document.text(_protocol(runs))
    claims_part(comparison, JUDGED)
    document.parts.extend(body.parts)
    document.tables.extend(body.tables)
    unfinished_part(comparison)
    found = {run.name: {label: _summary(run, label) for label in run.choices} for run in runs}
    pictures = {run.pictures.name: _described(run) for run in runs}
    facts: dict[str, Any] = {"quick": quick, "left_out": list(left_out), "problems": pictures, "tested": found}
    return comparison.write(facts)


def _protocol(runs: Sequence[SearchRun]) -> str:
    n = max((len(run.pictures.divisions) for run in runs), default=1)
    return (
        "Queries are made from captions as in section V-A: every set of words that a picture has, and relevant are the "
        "pictures that have all of them; words count that two or more test pictures have. They are weighed by "
        "normalised idf of the training captions. Codebooks, colours and idf of visterms are learned from the "
        "development pictures, without their captions. Features, block and codebook sizes and the settings of each "
        "method are those of the best AvgP over the validation queries of the first division of the development "
        f"pictures; with these, every method is fitted on each of {n} divisions, the test pictures are ranked once for "
        "each, and every figure is the mean over them. Methods that give probabilities rank by the inner product of "
        'the weights of words and P(word | picture), as in the paper; the lines "product" rank by the product of '
        "P(word | picture) to the power of the weights."
    )


def _summary(run: SearchRun, label: str) -> dict[str, Any]:
    choice = run.choices[label]
    summary: dict[str, Any] = {
        "model": choice.arm.model,
        "features": {"encoder": choice.features.encoder, "settings": dict(choice.features.params)},
        "settings": choice.settings,
        "validation": choice.record,
        "tried_features": {slug: record["avgp"] for slug, record in choice.by_features.items()},
        "tried_settings": [{"settings": one, "avgp": record["avgp"]} for one, record in choice.by_settings],
    }
    found = run.found.get(label)
    if found is not None:
        summary["divisions"] = len(found.judged)
        summary["test"] = {
            kind: {
                name: float(np.nanmean(values[chosen])) if chosen.any() else None
                for name, values in found.values.items()
            }
            for kind, chosen in run.pictures.kinds.items()
        }
        summary["test_by_division"] = [
            {name: float(np.nanmean(values)) for name, values in judged.values.items()} for judged in found.judged
        ]
    return summary


def _described(run: SearchRun) -> dict[str, Any]:
    pictures = run.pictures
    return {
        "development_pictures": len(pictures.development),
        "test_pictures": len(pictures.test),
        "training_pictures": int(pictures.divisions[0].train.size),
        "divisions": len(pictures.divisions),
        "words": len(pictures.words),
        "test_queries": {kind: int(chosen.sum()) for kind, chosen in pictures.kinds.items()},
    }
