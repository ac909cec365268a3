"""Corel5k's tags with relations from other sources: the depth of inheritance is chosen on validation rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary
from visterm_research.comparison.feature_sets import FeatureSet
from visterm_research.comparison.records import Record
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.sources import Source
from visterm_research.data.wordnet import WordNet
from visterm_research.parts.images import Labelled, corel_images
from visterm_research.parts.methods import SHARED_IW, quick_method
from visterm_research.parts.parts_run import PartsRun
from visterm_research.parts.problem import PHOTO_SHARE, PartsProblem
from visterm_research.parts.relations import Relations, pascal_relations, wordnet_relations
from visterm_research.parts.report import quick_related, run_parts

NONE = "–"


def photo_runs(
    comparison: Comparison, folder: Path, features: FeatureSet, nouns: WordNet, pascal: Path | None
) -> list[PartsRun]:
    """Run all methods on Corel5k, once with the relations of each source.

    Parameters
    ----------
    folder : Path
        The folder of Corel5k.
    pascal : Path, optional
        The folder of PASCAL-Part's ontology.
    """
    data: Labelled | None = comparison.while_time(
        f"Corel5k, {features.label}", partial(corel_images, Source.of(comparison), folder, features)
    )
    if data is None:
        return []
    vocabulary = Vocabulary(data.tags)
    sources = [wordnet_relations(nouns, vocabulary)]
    sources += [] if pascal is None else [pascal_relations(nouns, vocabulary, pascal)]
    runs = []
    for source in sources:
        problem = related_photos(comparison, data, source)
        runs += [] if problem is None else [run_parts(comparison, problem)]
    return runs


def related_photos(comparison: Comparison, data: Labelled, source: Relations) -> PartsProblem | None:
    """Choose over how many steps wholes inherit parts; None, with the reason in the report, if nothing can be chosen.

    All photos with a tag of the relations of the largest depth are kept, so that every depth has the same rows. The
    measure of a depth is the mean rank of the right pair by the first method with its start settings, over validation
    quadruplets of the relations of the smallest depth, which all depths have.
    """
    document = comparison.document
    by_depth = {depth: pairs for depth, pairs in source.by_depth.items() if len(pairs)}
    related_data = replace(data, name=f"{data.name}-{source.name}")
    document.section(f"Relations of {related_data.name}", source.what)
    if not by_depth:
        document.text("There are none among the tags.")
        return None
    nearest, farthest = by_depth[min(by_depth)], by_depth[max(by_depth)]
    related_data = related_data.bearing(np.unique(farthest))
    related_data = replace(related_data, siblings=source.siblings)
    try:
        problems = {
            depth: quick_related(comparison.options, related_data, pairs, 0.0, nearest)
            for depth, pairs in by_depth.items()
        }
        ranks = _validation_ranks(comparison, problems)
        _depths_part(comparison, problems, ranks, len(related_data.tags))
        if not ranks:
            return None
        depth = min(ranks, key=lambda candidate: ranks[candidate])
        problem = quick_related(comparison.options, related_data, by_depth[depth], PHOTO_SHARE)
    except DataError as error:
        document.text(f"There is nothing to choose settings by. {error}")
        return None
    document.text(
        f"Chosen: {depth} steps, by the mean rank of part-object labelling ({SHARED_IW.label}, the settings to start "
        "with) over validation quadruplets of the relations of the first line, which all have. A share of "
        f"{PHOTO_SHARE:g} of the relations is then left out of training."
    )
    what = f"{source.what} Inherited over {depth} steps; a share of {PHOTO_SHARE:g} left out of training."
    return replace(problem, what=what)


def _validation_ranks(comparison: Comparison, problems: dict[int, PartsProblem]) -> dict[int, float]:
    method = quick_method(SHARED_IW) if comparison.quick else SHARED_IW
    ranks = {}
    for depth, problem in problems.items():
        record: Record | None = comparison.while_time(
            f"Relations inherited over {depth} steps, {problem.name}",
            partial(comparison.trials.validate, problem, method, dict(method.fixed)),
        )
        if record is not None and record["mean_rank"] is not None:
            ranks[depth] = float(record["mean_rank"][method.by])
    return ranks


def _depths_part(
    comparison: Comparison, problems: dict[int, PartsProblem], ranks: dict[int, float], n_tags: int
) -> None:
    rows = []
    for depth, problem in problems.items():
        pairs = problem.relations.kept
        counts = [f"{len(pairs):,}", f"{np.unique(pairs).size:,}", f"{problem.training_quadruplets:,}"]
        rows.append([str(depth), *counts, f"{ranks[depth]:,.1f}" if depth in ranks else NONE])
    header = ("steps of is-a", "relations", "tags in them", "quadruplets of training photos", "mean rank")
    name = next(iter(problems.values())).name
    caption = f"Relations of {name} by how far wholes inherit parts; mean rank of {n_tags**2:,} pairs, validation rows"
    comparison.document.table(caption, header, rows)
