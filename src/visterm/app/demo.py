"""The demo: draw a library, learn its tags, annotate and search images never seen, beside the baselines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.app.catalogue import Catalogue
from visterm.app.report import Report
from visterm.app.rows import encode_corpus, training_rows
from visterm.app.tagger import Tagger, make_model
from visterm.core.progress import SILENT, Progress
from visterm.core.tables import MODELS
from visterm.core.types import Matrix
from visterm.data.corpus import Corpus
from visterm.data.drawn import GROUPS, DrawnLibrary, Query, draw_library
from visterm.metrics import average_precisions, evaluate

BASELINES = ("knn", "ridge", "prior")
METRICS = ("map", "p@5", "r@5", "n_plus@5", "word_map")
HEADER = ("model", "MAP", "p@5", "r@5", "tags recalled", "one-word MAP", "query MAP")
N_PICTURES = 24
N_QUERIES = 8
N_FOUND = 8


class DemoResult(NamedTuple):
    """The table that the demo prints, and where its report lies."""

    header: Sequence[str]
    rows: list[list[str]]
    report: Path


class _Test(NamedTuple):
    """Images never seen: their features, the tags given, the true tags, and the queries that they answer."""

    corpus: Corpus
    X: Matrix
    Y: sp.csr_array
    true_tags: list[set[str]]
    queries: list[Query]


def run_demo(
    out: str | os.PathLike[str],
    *,
    n_scenes: int = 2000,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
) -> DemoResult:
    """Run the whole job on a drawn library, and write the library, a run, a catalogue and a report into a folder.

    Parameters
    ----------
    out : path-like
        The folder: afterwards it holds ``library/``, ``run/``, ``catalogue/`` and ``report.html``.
    n_scenes : int
        Pictures to draw.
    seed : int
        Same seed, same pictures, same figures.
    n_jobs : int, optional
        Threads; None is all cores.
    progress : Progress
        Told of each step.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    library = draw_library(folder / "library", n_scenes=n_scenes, seed=seed, n_jobs=n_jobs, progress=progress)
    corpus = Corpus.read(library.images, library.tags_file)
    tagger = Tagger(seed=seed, n_jobs=n_jobs)
    rows = training_rows(tagger.encoder, corpus, min_count=2, progress=progress)
    tagger.learn(rows, progress=progress)
    tagger.save(folder / "run")
    taggers = {MODELS.name_of(tagger.model): tagger}
    for name in BASELINES:
        model = make_model(name, {}, {"random_state": seed, "n_jobs": n_jobs})
        taggers[name] = Tagger.from_parts(tagger.encoder, model, rows.vocabulary).learn(rows, progress=progress)
    test = _test_images(tagger, corpus, library, progress)
    table = [[name, *_figures(tagger, test)] for name, tagger in taggers.items()]
    catalogue = Catalogue(tagger).add(test.corpus, progress=progress)
    catalogue.save(folder / "catalogue")
    report = folder / "report.html"
    _report(tagger, catalogue, test, table, len(rows.vocabulary)).write(report)
    return DemoResult(HEADER, table, report)


def _test_images(tagger: Tagger, corpus: Corpus, library: DrawnLibrary, progress: Progress) -> _Test:
    test = corpus.select("test")
    X, Y, _ = encode_corpus(tagger.encoder, test, tagger.vocabulary, progress)
    truth = {picture.file_name: set(picture.tags) for picture in library.pictures}
    queries = [
        query
        for query in library.queries
        if query.split == "test" and all(word in tagger.vocabulary for word in query.words)
    ]
    return _Test(test, X, Y, [truth[name] for name in test.names], queries)


def _figures(tagger: Tagger, test: _Test) -> list[str]:
    values = evaluate(lambda: tagger.model.score_blocks(test.X), test.Y, list(METRICS))
    U = tagger.model.image_rows(test.X)
    Q = sp.vstack([tagger.query_weights(list(query.words)).weights for query in test.queries], format="csr")
    scores = tagger.model.query_rows(Q) @ U.T
    scores = scores.toarray() if sp.issparse(scores) else scores
    relevant = np.array([[tags.issuperset(query.words) for tags in test.true_tags] for query in test.queries])
    found = float(np.nanmean(average_precisions(np.asarray(scores), relevant)))
    return [f"{values[name]:.0f}" if name.startswith("n_plus") else f"{values[name]:.3f}" for name in METRICS] + [
        f"{found:.3f}"
    ]


def _report(tagger: Tagger, catalogue: Catalogue, test: _Test, table: list[list[str]], n_tags: int) -> Report:
    report = Report(
        "What visterm learned from a drawn photo library",
        f"{n_tags:,} tags, as people wrote them: synonyms, misspellings, several languages, some missing, a few wrong. "
        f"Everything below is on {len(test.corpus):,} pictures that were never seen in training.",
    )
    report.section(
        "Beside the baselines",
        "MAP and p@5: the tags put on a picture, against those that people gave. One-word and query MAP: the pictures "
        "put under one word, and under one to three words, against what is truly drawn.",
    )
    report.table(HEADER, table, best=max(range(len(table)), key=lambda row: float(table[row][1])))
    report.section("Tags on new pictures", "Green: the tag, or another spelling of it, is true of the picture.")
    chosen = range(0, len(test.corpus), max(1, len(test.corpus) // N_PICTURES))
    chosen_images = [test.corpus.images[i] for i in chosen][:N_PICTURES]
    annotated = tagger.annotate(chosen_images, k=6).images
    report.annotated(
        [
            (
                test.corpus.images[i],
                item.tags,
                {n for n, tag in enumerate(item.tags) if GROUPS.get(tag.tag.casefold(), tag.tag) in test.true_tags[i]},
                test.corpus.tags[i],
            )
            for i, item in zip(chosen, annotated, strict=False)
        ]
    )
    report.section(
        "Searching by words", "The best pictures under a few words; outlined in green: all words are true of it."
    )
    pictures = dict(zip(test.corpus.names, zip(test.corpus.images, test.true_tags, strict=True), strict=True))
    several = [query for query in test.queries if len(query.words) > 1 and query.n_relevant >= 3]
    for query in several[:: max(1, len(several) // N_QUERIES)][:N_QUERIES]:
        hits = catalogue.search(list(query.words), N_FOUND).hits
        shown = [(pictures[hit.image][0], pictures[hit.image][1].issuperset(query.words)) for hit in hits]
        report.search(query.text, f"{query.n_relevant} pictures are right", shown)
    report.section("Tags that mean nearly the same", "The nearest tags by their vectors, learned from pictures alone.")
    frequent = np.argsort(-tagger.vocabulary.counts)[:12]
    report.pairs(
        [
            (tagger.vocabulary.tags[i], ", ".join(n.tag for n in tagger.neighbours(tagger.vocabulary.tags[i], 6)))
            for i in frequent
        ]
    )
    return report
