"""Figures 4 and 5 of the PAMIR paper: the best pictures of two queries by PAMIR and by the SVM, in one file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visterm_research.comparison.figures import figure_class, framed, save
from visterm_research.pamir.images import Pictures
from visterm_research.pamir.methods import PAMIR, SVM
from visterm_research.pamir.rows import N_SHOWN_PICTURES
from visterm_research.pamir.search_run import SearchRun


def shown_queries(pictures: Pictures, texts: Sequence[str], like: Sequence[tuple[int, int]]) -> list[int]:
    """Choose the queries to show: `texts` if all of them exist, otherwise by a rule that does not use results.

    Parameters
    ----------
    texts : sequence of str
        Queries; commas separate their words.
    like : sequence of (words, relevant pictures)
        Numbers of the paper's queries: for each, the first query with the same number of words and the nearest number
        of relevant pictures is shown.
    """
    queries = pictures.test_queries
    numbers = {frozenset(text.split(", ")): query for query, text in enumerate(queries.texts(pictures.words.tags))}
    text_queries = [numbers.get(frozenset(text.split(", "))) for text in texts]
    if texts and None not in text_queries:
        return [query for query in text_queries if query is not None]
    similar_queries = []
    for n_words, n_relevant in like:
        candidates = np.flatnonzero(queries.n_words == n_words)
        if candidates.size:
            differences = np.abs(queries.n_relevant[candidates] - n_relevant)
            similar_queries.append(int(candidates[np.argmin(differences)]))
    return similar_queries


def pictures_part(run: SearchRun, number: int, theirs: Sequence[str]) -> None:
    """Draw the best pictures of the shown queries, for the first division."""
    methods = [label for label in (PAMIR.label, SVM.label) if label in run.found]
    if len(methods) < 2 or not run.pictures.shown:
        return
    queries = run.pictures.test_queries
    texts = queries.texts(run.pictures.words.tags)
    n_columns = len(run.pictures.shown) * len(methods)
    figure = figure_class()(figsize=(1.9 * n_columns, 1.5 * N_SHOWN_PICTURES + 0.9), dpi=110, layout="constrained")
    parts = figure.subfigures(1, len(run.pictures.shown), squeeze=False)[0]
    for index, (part, query) in enumerate(zip(parts, run.pictures.shown, strict=True)):
        relevant = frozenset(queries.relevant[[query]].indices.tolist())
        part.suptitle(f"{texts[query]}\n({len(relevant)} relevant pictures)", fontsize=11)
        for column, label in enumerate(methods):
            for rank, picture in enumerate(run.found[label].judged[0].values["top"][index]):
                axes = part.add_subplot(N_SHOWN_PICTURES, len(methods), rank * len(methods) + column + 1)
                image = run.pictures.test.images[int(picture)]
                framed(axes, image, right=int(picture) in relevant, side=240, width=4)
                if rank == 0:
                    axes.set_title(label, fontsize=10)
    name = f"figures/figure-{number}-{run.name}.png"
    save(figure, run.comparison.out / name)
    run.comparison.document.picture(
        name,
        f"Figure {number} on {run.name}: the best {N_SHOWN_PICTURES} test pictures by PAMIR and by SVM for "
        f"{' and '.join(repr(texts[query]) for query in run.pictures.shown)} (first division; green frames: relevant). "
        f"The paper's queries: {' and '.join(repr(text) for text in theirs)}.",
    )
