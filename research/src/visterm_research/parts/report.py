"""The order of the tables of the objects-and-parts comparison, and what stands before and after them."""

from __future__ import annotations

from collections.abc import Sequence

from visterm_research.comparison.claims import RESAMPLES
from visterm_research.comparison.markdown import Document
from visterm_research.comparison.run import Comparison, Outcome
from visterm_research.comparison.sections import claims_part, introduction, unfinished_part
from visterm_research.papers import objects_and_parts as paper
from visterm_research.parts.claims import parts_claims
from visterm_research.parts.pictures import pictures_part
from visterm_research.parts.run import OWN_PARTS, QUADRUPLETS, PartsRun
from visterm_research.parts.tables import (
    known_part,
    nearest_part,
    ours_part,
    settings_part,
    statistics_part,
    tasks_part,
)

LHI = "LHI"

JUDGED = (
    ". A figure is the mean over relations of the mean over each one's examples, and intervals are of "
    f"{RESAMPLES:,} resamples of the relations, for quadruplets of one relation share images and labels."
)
"""The paper's second data, which are not at hand."""


def report(run: PartsRun) -> None:
    """Write all tables and pictures of one problem, and judge the orders that the paper has."""
    document = run.comparison.document
    what = run.problem.data.what
    document.section(f"On {run.name}", f"{what[0].upper()}{what[1:]}. {run.problem.what}")
    statistics_part(run)
    settings_part(run)
    images = "test quadruplets of relations that were"
    tasks_part(run, "3", QUADRUPLETS[:1], f"{images} learned from", paper.TABLE_3, f"{paper.DATA}-WordNet")
    tasks_part(run, "3", QUADRUPLETS[1:], f"{images} left out", {}, "")
    both = "objects with their own parts"
    tasks_part(run, "4", OWN_PARTS, f"{both}, all relations", paper.TABLE_4, LHI)
    tasks_part(run, "4", OWN_PARTS[:1], f"{both}, relations that were learned from", {}, "")
    tasks_part(run, "4", OWN_PARTS[1:], f"{both}, relations that were left out", {}, "")
    known_part(run)
    nearest_part(run)
    ours_part(run)
    pictures_part(run)
    parts_claims(run)


def finish(comparison: Comparison, runs: Sequence[PartsRun], *, quick: bool, left_out: Sequence[str]) -> Outcome:
    """Put what it is and the claims before the tables, what is missing behind, and write all."""
    body, document = comparison.document, Document("Objects and their parts, labelled again")
    comparison.document = document
    introduction(document, paper.PARTS_PAPER, quick=quick, left_out=left_out)
    document.text(
        "Images carry tags; which tag is part of which is known for some tags only. No image says whose part it shows: "
        "quadruplets are any image of the whole with any image of the part. Settings of each method are those of the "
        "least mean rank of part-object labelling over validation quadruplets of learned relations, by the method's "
        "own score: with words (IW) or by images alone (I). They are chosen in stages (learning rates, α, γ, "
        "dimensions), each beginning with the best of the one before; the SVM by the mean rank of an image's label. "
        "The test rows are ranked once, by what was chosen. p@10 is at most 10 %, as in the paper; MAP is the mean "
        "reciprocal rank. "
        "An image with several tags is right for the quadruplet's tag alone."
    )
    claims_part(comparison, JUDGED)
    document.parts.extend(body.parts)
    document.tables.extend(body.tables)
    unfinished_part(comparison)
    return comparison.write(
        {
            "quick": quick,
            "left_out": list(left_out),
            "problems": {run.name: run.described() for run in runs},
            "tested": {run.name: run.summaries() for run in runs},
        }
    )
