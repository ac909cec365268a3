"""`visterm reproduce ugc`: Tables 1 to 3, the two without a number and Figures 2 and 3 of the sampled tagging paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from visterm_research.comparison.methods import Method
from visterm_research.comparison.run import Comparison, Options, Study
from visterm_research.comparison.sources import COREL, DELICIOUS, known_folders
from visterm_research.papers import read_paper
from visterm_research.ugc.across import across_part
from visterm_research.ugc.measures import KINDS
from visterm_research.ugc.methods import METHODS, quick_method
from visterm_research.ugc.pictures import pictures_part
from visterm_research.ugc.problems import VISTERMS, TagProblem, tag_problems
from visterm_research.ugc.tables import (
    AVERAGED,
    PLAIN,
    data_part,
    examples_part,
    five_claims,
    five_tags_part,
    goal_part,
    settings_part,
)
from visterm_research.ugc.tag_run import TagRun
from visterm_research.ugc.times import times_part
from visterm_research.ugc.times_costs import costs_part
from visterm_research.ugc.times_draws import draws_part
from visterm_research.ugc.zero_shot import zero_shot_part

paper = read_paper("ugc")


def run(comparison: Comparison) -> dict[str, Any]:
    """Run the comparison on Corel5k and Delicious, and on scenes and a dictionary that are always drawn besides."""
    quick = comparison.quick
    comparison.preface.text(AVERAGED)
    if not quick:  # on the paper's figures, which a quick report leaves out
        comparison.preface.text(f"{paper.MISPRINTS} {paper.WITHOUT_DENSECAP}")
    comparison.preface.text(PLAIN)
    runs: list[TagRun] = []
    for name, make in tag_problems(comparison):
        problem: TagProblem | None = comparison.while_time(f"The data {name}", make)
        if problem is not None:
            runs.append(TagRun(problem, comparison))
            runs[-1].run([problem.of_it(method) for method in comparison.methods])
            report(runs[-1])
            comparison.trials.forget(name)
    by_label = {method.label: method for method in comparison.methods}
    photos = [run for run in runs if run.name == COREL] or [run for run in runs if run.problem.library is not None]
    for one in photos:
        with comparison.document.section_if_filled(f"Words that no training image of {one.name} has"):
            zero_shot_part(one, by_label)
    encoder = comparison.options.encoder or VISTERMS
    across_part(runs, by_label, same_features=encoder != VISTERMS and not quick)
    with comparison.document.section_if_filled("Time and cost"):
        times_part(comparison)
        costs_part(comparison)
        for one in photos:
            draws_part(comparison, one.problem.rows)
    settings_part(runs)
    return {
        "problems": {one.name: one.described() for one in runs},
        "tested": {one.name: one.summaries() for one in runs},
        "aims": [aim.as_dict() for one in runs for aim in one.aims],
    }


def report(run: TagRun) -> None:
    """Write the tables and pictures of one problem, and judge the orders that the paper has."""
    what = run.problem.rows.what
    run.comparison.document.section(f"On {run.name}", f"{what[0].upper()}{what[1:]}.")
    data_part(run)
    goal_part(run)
    for kind in KINDS:
        five_tags_part(run, kind)
    examples_part(run)
    pictures_part(run)
    five_claims(run)


def check(options: Options, _methods: Sequence[Method]) -> None:
    """Refuse folders that hold neither Corel5k nor Delicious."""
    known_folders(options.data, (COREL, DELICIOUS))


STUDY = Study(paper.PAPER, "Sampled tagging", METHODS, run, check, quick_method)
