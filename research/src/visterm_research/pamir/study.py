"""`visterm reproduce pamir`: Tables I to XIII and Figures 4 and 5 of the PAMIR paper, compared with the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from visterm_research.comparison.feature_sets import FeatureSet
from visterm_research.comparison.methods import Method
from visterm_research.comparison.run import Comparison, Options, Study
from visterm_research.comparison.sources import Source, corel_folder
from visterm_research.pamir.images import Pictures, corel_pictures, drawn_pictures
from visterm_research.pamir.methods import (
    BY_BLOCK,
    MORE_METHODS,
    PAMIR,
    PAPER_METHODS,
    QUICK,
    QUICK_TRIED,
    SVM,
    SVM_ON_DENSE,
    TRIED,
    quick_method,
)
from visterm_research.pamir.pictures import shown_queries
from visterm_research.pamir.report import described, report, summary
from visterm_research.pamir.rows import Encoded
from visterm_research.pamir.search_run import N_FINALISTS, SearchRun
from visterm_research.papers import read_paper

DIVISIONS, QUICK_DIVISIONS = 5, 2
DRAWN, QUICK_DRAWN = 4000, 80
"""Number of pictures of the drawn library that replaces CorelLarge."""

MAX_WORDS = 3
MAX_SUBSETS, QUICK_SUBSETS = 2**16, 2**8
"""Maximum number of sets of words of drawn pictures, each of which has many words."""

FIGURE_4 = ("petals", "buildings, cars")
LIKE_4, LIKE_5 = ((1, 4), (2, 3)), ((3, 13), (2, 4))
"""Numbers of words and of relevant pictures of the paper's queries."""


def run(comparison: Comparison) -> dict[str, Any]:
    """Search by several words, on Corel5k if it is given and on a drawn library, which then replaces CorelLarge.

    Features and settings of each method are chosen by AvgP over the validation queries of one division of the
    development pictures; the test pictures are ranked once for each of five divisions, and figures are means. With an
    additional encoder, there are also its Table IX and its annotation with five tags.
    """
    options, source, methods = comparison.options, Source.of(comparison), comparison.methods
    papers = {method.label for method in PAPER_METHODS}
    of_paper = [method for method in methods if method.label in papers]
    more = [method for method in methods if method.label not in papers]
    encoded, folder = Encoded(source), corel_folder(options.data)
    small, extra, large = None, None, None
    if folder is not None:
        n_divisions = QUICK_DIVISIONS if options.quick else DIVISIONS
        pictures = corel_pictures(folder, n_divisions=n_divisions, seed=options.seed)
        small = _first(_with_shown(pictures, FIGURE_4, LIKE_4), comparison, encoded, of_paper)
    library: Pictures | None = comparison.while_time(
        "The drawn library",
        partial(
            drawn_pictures,
            source,
            QUICK_DRAWN if options.quick else DRAWN,
            max_words=MAX_WORDS,
            max_subsets=QUICK_SUBSETS if options.quick else MAX_SUBSETS,
        ),
    )
    if library is not None and small is None:
        small = _first(_with_shown(library, (), LIKE_4), comparison, encoded, of_paper)
    elif library is not None and small is not None:
        # Only settings are chosen: features are those of the first pictures, as in the paper (V-B).
        large = SearchRun(_with_shown(library, (), LIKE_5), comparison, encoded)
        for method in of_paper:
            if method.label in small.choices:
                large.choose(_for(method, library), [small.choices[method.label].features])
                large.judge(method.label)
    if small is not None:
        chosen = small.choices.get(PAMIR.label)
        for method in more:
            usual = (QUICK_TRIED if options.quick else BY_BLOCK)[0]
            small.choose(method, [usual if chosen is None else chosen.features])
            small.judge(method.label)
        if options.encoder is not None:
            extra = _with_encoder(small, options.encoder, of_paper, more)
        whole = len(methods) == len(PAPER_METHODS) + len(MORE_METHODS)
        report(small, large, extra, [_for(method, small.pictures) for method in of_paper], more, whole=whole)
    runs = [run for run in (small, large, extra) if run is not None]
    comparison.preface.text(_protocol(runs))
    return {
        "problems": {run.pictures.name: described(run) for run in runs},
        "tested": {run.name: {label: summary(run, label) for label in run.choices} for run in runs},
    }


def check(options: Options, _methods: Sequence[Method]) -> None:
    """Raise an error for a folder without Corel5k, or for several folders."""
    corel_folder(options.data)


def _with_shown(pictures: Pictures, texts: Sequence[str], like: Sequence[tuple[int, int]]) -> Pictures:
    """Return the pictures with the queries whose best pictures are shown."""
    return replace(pictures, shown=tuple(shown_queries(pictures, texts, like)))


def _first(pictures: Pictures, comparison: Comparison, encoded: Encoded, methods: Sequence[Method]) -> SearchRun:
    """Choose features and settings of the paper's methods on the pictures, and measure the methods."""
    run = SearchRun(pictures, comparison, encoded)
    for method in methods:
        run.choose(_for(method, pictures), QUICK_TRIED if comparison.quick else TRIED)
        run.judge(method.label)
    return run


def _with_encoder(small: SearchRun, encoder: str, of_paper: Sequence[Method], more: Sequence[Method]) -> SearchRun:
    """Choose settings of all methods on features of one more kind, and measure the methods."""
    name = encoder.partition(":")[0]
    features = FeatureSet(f"{name} (not in the paper)", "extra", encoder)
    run = SearchRun(small.pictures, small.comparison, small.encoded, title=f"{small.pictures.name} with {name}")
    if run.comparison.while_time(f"The features {name} of {run.pictures.name}", partial(run.rows, features)) is None:
        return run
    for method in (*of_paper, *more):
        if run.takes(method, features):
            dense = quick_method(SVM_ON_DENSE) if small.comparison.quick else SVM_ON_DENSE
            run.choose(dense if method.label == SVM.label else _for(method, run.pictures), [features])
            run.judge(method.label)
    return run


def _for(method: Method, pictures: Pictures) -> Method:
    """Return the method; PAMIR gets the settings with which the queries of the pictures are made."""
    if method.label != PAMIR.label:
        return method
    return replace(method, fixed={"max_words": pictures.max_words, "max_subsets": pictures.max_subsets})


def _protocol(runs: Sequence[SearchRun]) -> str:
    """Return a text about how queries are made and settings are chosen."""
    n = max((len(run.pictures.divisions) for run in runs), default=1)
    return (
        "Queries are made from captions as in section V-A: every set of words that a picture has, with the pictures "
        "that have all of them as relevant; only words of two or more test pictures count. Words are weighted by "
        "normalised idf of the training captions. Codebooks, colours and idf of visterms are learned from the "
        "development pictures, without their captions. Each method has the features, block size, codebook size and "
        "settings with the best AvgP over the validation queries of the first division of the development pictures: "
        f"each kind of features is tried with one setting, and the best {N_FINALISTS} are searched together with the "
        "settings, in a box that is widened if the best value is at its edge. Every method is then fitted on each of "
        f"{n} divisions, and ranks the test pictures once for each; figures are means over the divisions. Methods that "
        "give probabilities rank by the inner product of the weights of words and P(word | picture), as in the paper; "
        'the lines "product" rank by the product of P(word | picture) to the power of the weights.'
    )


STUDY = Study(
    read_paper("pamir").PAPER,
    "PAMIR: searches by several words",
    (*PAPER_METHODS, *MORE_METHODS),
    run,
    check,
    quick_method,
    ". The test is Wilcoxon's signed-rank test at 95 % over the test queries; the value of a query is its mean over "
    "the divisions. Single measurements of time that differ by less than a tenth count as equal.",
    QUICK,
)
