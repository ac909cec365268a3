"""One problem of the objects-and-parts comparison: run methods, write tables and pictures, and judge orders."""

from __future__ import annotations

from typing import Any

from visterm_research.comparison.run import Comparison, Options
from visterm_research.papers import read_paper
from visterm_research.parts.claims import parts_claims
from visterm_research.parts.images import Labelled
from visterm_research.parts.parts_run import OWN_PARTS, QUADRUPLETS, PartsRun
from visterm_research.parts.pictures import pictures_part
from visterm_research.parts.problem import PartsProblem, related
from visterm_research.parts.tables import (
    known_part,
    nearest_part,
    ours_part,
    settings_part,
    statistics_part,
    tasks_part,
)

paper = read_paper("objects_and_parts")

LHI = "LHI"
"""The paper's second data set, which is not available."""

VALID_QUADRUPLETS, QUICK_VALID = 2000, 200
TEST_QUADRUPLETS, QUICK_TEST = 5000, 300


def quick_related(options: Options, data: Labelled, pairs: Any, share: float, judged: Any = None) -> PartsProblem:
    """Leave out a share of the relations, and draw quadruplets; quick runs draw fewer."""
    n_valid, n_test = (QUICK_VALID, QUICK_TEST) if options.quick else (VALID_QUADRUPLETS, TEST_QUADRUPLETS)
    return related(data, pairs, share=share, n_valid=n_valid, n_test=n_test, seed=options.seed, judged=judged)


def run_parts(comparison: Comparison, problem: PartsProblem) -> PartsRun:
    """Choose settings of all methods, measure them, and write this part of the report."""
    run = PartsRun(problem, comparison)
    run.run(comparison.methods)
    report(run)
    return run


def report(run: PartsRun) -> None:
    """Write all tables and pictures of one problem, and judge the paper's orders."""
    document = run.comparison.document
    what = run.problem.data.what
    document.section(f"On {run.name}", f"{what[0].upper()}{what[1:]}. {run.problem.what}")
    statistics_part(run)
    settings_part(run)
    tasks_part(run, "3", QUADRUPLETS[:1], "test quadruplets, learned relations", paper.TABLE_3, f"{paper.DATA}-WordNet")
    tasks_part(run, "3", QUADRUPLETS[1:], "test quadruplets, left-out relations", {}, "")
    both = "objects with their own parts"
    tasks_part(run, "4", OWN_PARTS, f"{both}, all relations", paper.TABLE_4, LHI)
    tasks_part(run, "4", OWN_PARTS[:1], f"{both}, learned relations", {}, "")
    tasks_part(run, "4", OWN_PARTS[1:], f"{both}, left-out relations", {}, "")
    known_part(run)
    nearest_part(run)
    ours_part(run)
    pictures_part(run)
    parts_claims(run)
