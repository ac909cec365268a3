"""`visterm reproduce parts`: Tables 3 to 6 and Figure 4 of the objects-and-parts paper, compared with the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from visterm.core.errors import UserError
from visterm_research.comparison.claims import RESAMPLES
from visterm_research.comparison.feature_sets import OUR_VISTERMS, FeatureSet
from visterm_research.comparison.methods import Method
from visterm_research.comparison.run import Comparison, Options, Study
from visterm_research.comparison.sources import Source, corel_folder
from visterm_research.data.wordnet import WordNet
from visterm_research.papers import read_paper
from visterm_research.parts.images import drawn_images
from visterm_research.parts.methods import MORE_METHODS, PAPER_METHODS, quick_method
from visterm_research.parts.parts_run import PartsRun
from visterm_research.parts.photos import photo_runs
from visterm_research.parts.problem import DRAWN_SHARE
from visterm_research.parts.relations import PASCAL_LISTS, pascal_folder
from visterm_research.parts.report import quick_related, run_parts
from visterm_research.parts.tables import shares_part

SCENES, QUICK_SCENES = 2000, 100
LEARNED_SCENES, QUICK_LEARNED = 0.2, 1.0
"""Share of the training scenes: with all scenes, images alone label 7 of 10 test crops correctly, and words hardly
help; in the paper they label 1 of 10."""

QUICK_VISTERMS = replace(OUR_VISTERMS, params={"colours": 16, "codebook": 150, "sample_blocks": 3000})


def run(comparison: Comparison) -> dict[str, Any]:
    """Label objects and their parts on drawn images, and on Corel5k if it is given.

    Half of the drawn relations are left out of training. Corel5k's tags have relations from WordNet and PASCAL-Part,
    whose files may also be in the folder ``pascal_part`` next to Corel5k. Relations, features and settings are chosen
    on validation rows. An additional encoder is used for drawn images, besides visterms, and for Corel5k.
    """
    comparison.preface.text(
        "Images have tags, and for some pairs of tags we know that one is part of the other. No image says whose part "
        "it shows: a quadruplet is any image of the whole with any image of the part. Each method has the settings "
        "with the lowest mean rank of part-object labelling over validation quadruplets of learned relations, by its "
        "own score: with words (IW) or by images alone (I). Learning rates, α, γ and dimensions are searched together: "
        "random points in a box of values, then steps from the best one, beyond the box if it is at an edge. The SVM's "
        "settings have the lowest mean rank of an image's label. Test rows are used once for each version of the "
        "search. p@10 is at most 10 %, as in the paper; MAP is the mean reciprocal rank. For an image with several "
        "tags, only the tag of the quadruplet counts as right."
    )
    options, runs = comparison.options, []
    visterms = QUICK_VISTERMS if comparison.quick else OUR_VISTERMS
    name = (options.encoder or "").partition(":")[0]
    more = [] if options.encoder is None else [FeatureSet(name, name.replace("_", "-"), options.encoder)]
    for features in (visterms, *more):
        run = _drawn(comparison, features)
        runs += [] if run is None else [run]
    corel = _corel(options.data)
    if corel is not None:
        features, pascal = [visterms, *more][-1], pascal_folder(options.data, corel)
        runs += photo_runs(comparison, corel, features, WordNet(options.wordnet), pascal)
    return {
        "problems": {run.name: run.described() for run in runs},
        "tested": {run.name: run.summaries() for run in runs},
    }


def check(options: Options, _methods: Sequence[Method]) -> None:
    """Raise an error for folders without Corel5k or with several, and for Corel5k without WordNet's files."""
    if _corel(options.data) is not None:
        WordNet(options.wordnet)


def _drawn(comparison: Comparison, features: FeatureSet) -> PartsRun | None:
    """Run all methods on drawn objects and parts; None, with a note in the report, if there is no time."""
    n_scenes, learned = (QUICK_SCENES, QUICK_LEARNED) if comparison.quick else (SCENES, LEARNED_SCENES)
    data_and_relations = comparison.while_time(
        f"Drawn objects and parts, {features.label}",
        partial(drawn_images, Source.of(comparison), n_scenes, features, learned=learned),
    )
    if data_and_relations is None:
        return None
    data, pairs = data_and_relations
    problem = quick_related(comparison.options, data, pairs, DRAWN_SHARE)
    what = f"The relations as they are drawn, a share of {DRAWN_SHARE:g} of them left out of training."
    run = run_parts(comparison, replace(problem, what=what))
    shares_part(run, lambda share: quick_related(comparison.options, data, pairs, share))
    return run


def _corel(data: Sequence[Path]) -> Path | None:
    """Return the folder of Corel5k, or None if there are only drawn images."""
    corel = corel_folder([folder for folder in data if not (folder / PASCAL_LISTS).is_file()])
    if data and corel is None:
        raise UserError("--data has PASCAL-Part's ontology alone, which has no images. Pass a folder of Corel5k, too.")
    return corel


STUDY = Study(
    read_paper("objects_and_parts").PARTS_PAPER,
    "Objects and their parts",
    (*PAPER_METHODS, *MORE_METHODS),
    run,
    check,
    quick_method,
    ". Figures are means over relations of the mean over each relation's examples. Intervals come from "
    f"{RESAMPLES:,} resamples of the relations, because quadruplets of one relation share images and labels.",
)
"""On drawn objects and parts, and on Corel5k's tags."""
