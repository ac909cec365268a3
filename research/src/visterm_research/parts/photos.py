"""Corel5k's tags with relations of other people's making: how far they are inherited is chosen on validation rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary
from visterm.data import WordNet
from visterm_research.comparison.feature_sets import FeatureSet
from visterm_research.comparison.records import Record
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.sources import Source
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
        Of Corel5k.
    pascal : Path, optional
        Of PASCAL-Part's ontology.
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
    """Choose how far wholes inherit parts; None, and why in the report, where no validation photos show relations.

    All photos are kept that have a tag of the farthest inherited relations, so that every depth has the same rows. A
    depth is as good as the mean rank that the first method, with the settings to start with, gives the right pair
    over validation quadruplets of the nearest relations, which all depths have.
    """
    document = comparison.document
    by_depth = {depth: pairs for depth, pairs in source.by_depth.items() if len(pairs)}
    kept = replace(data, name=f"{data.name}-{source.name}")
    document.section(f"Relations of {kept.name}", source.what)
    if not by_depth:
        document.text("There are none among the tags.")
        return None
    nearest, farthest = by_depth[min(by_depth)], by_depth[max(by_depth)]
    kept = kept.bearing(np.unique(farthest))
    kept = replace(kept, siblings=source.siblings)
    try:
        tried = {
            depth: quick_related(comparison.options, kept, pairs, 0.0, nearest) for depth, pairs in by_depth.items()
        }
        found = _validated(comparison, tried)
        _depths_part(comparison, tried, found, len(kept.tags))
        if not found:
            return None
        depth = min(found, key=lambda one: found[one])
        problem = quick_related(comparison.options, kept, by_depth[depth], PHOTO_SHARE)
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


def _validated(comparison: Comparison, tried: dict[int, PartsProblem]) -> dict[int, float]:
    method = quick_method(SHARED_IW) if comparison.quick else SHARED_IW
    found = {}
    for depth, problem in tried.items():
        record: Record | None = comparison.while_time(
            f"Relations inherited over {depth} steps, {problem.name}",
            partial(comparison.trials.validate, problem, method, dict(method.fixed)),
        )
        if record is not None and record["mean_rank"] is not None:
            found[depth] = float(record["mean_rank"][method.by])
    return found


def _depths_part(comparison: Comparison, tried: dict[int, PartsProblem], found: dict[int, float], n_tags: int) -> None:
    rows = []
    for depth, problem in tried.items():
        pairs = problem.relations.kept
        counts = [f"{len(pairs):,}", f"{np.unique(pairs).size:,}", f"{problem.training_quadruplets:,}"]
        rows.append([str(depth), *counts, f"{found[depth]:,.1f}" if depth in found else NONE])
    header = ("steps of is-a", "relations", "tags in them", "quadruplets of training photos", "mean rank")
    name = next(iter(tried.values())).name
    caption = f"Relations of {name} by how far wholes inherit parts; mean rank of {n_tags**2:,} pairs, validation rows"
    comparison.document.table(caption, header, rows)
