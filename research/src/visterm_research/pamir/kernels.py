"""Table IV of the PAMIR paper: three kernels of bags of blocks, on the same training pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from visterm.core.packing import key_of
from visterm.core.queries import inverse_frequencies, weigh_words
from visterm.data import Queries
from visterm.encoders import make_encoder
from visterm_research.comparison.claims import percent, ranks_claim
from visterm_research.comparison.feature_sets import PAPER_BLOCKS, PAPER_WORDS
from visterm_research.comparison.records import Record
from visterm_research.comparison.search import DRAWN, Axis, Settings, draw_points, search, unordered
from visterm_research.pamir.methods import LONG_SIDE, PAMIR
from visterm_research.pamir.rows import validation_avgp, values_of
from visterm_research.pamir.search_run import SearchRun
from visterm_research.papers import read_paper

paper = read_paper("pamir")

QUICK_TRAINED = 30
"""Training pictures of a quick run; else all of them."""

SIDE = 32
"""Pixels of a block, half of the paper's choice."""

AGGRESSIVENESS = Axis((0.03, 0.1, 0.3, 1.0, 3.0))
"""Values of c, which are searched together with the settings of each kernel."""

KERNELS: dict[str, Sequence[Mapping[str, Any]]] = {
    "expected likelihood": [{"kernel": "expected_likelihood", "gaussians": number} for number in (1, 2, 3)],
    "match": [{"kernel": "match", "minor": minor} for minor in ("rbf", "linear", "polynomial")],
    "visterm-linear": [{"kernel": "visterm", "codebook": number} for number in (10_000, 2000)],
}
"""Rows of the table, and the settings of ``bag_kernel`` to try for each."""

DESCRIBED: dict[str, Mapping[str, Any]] = {"visterm": {**PAPER_BLOCKS, **PAPER_WORDS}}
"""Settings of ``bag_kernel`` that make blocks, and words of them, as in the paper; the other kernels: blocks alone."""

PAIRS = (("visterm-linear", "match"), ("visterm-linear", "expected likelihood"), ("match", "expected likelihood"))
"""Section V-B: visterms are clearly best, followed by match and then the expected likelihood."""

SMALL = {"colours": 12, "codebook": 100, "sample_blocks": 2000}


def kernels_part(run: SearchRun) -> None:
    """Compare the kernels by PAMIR's AvgP over the validation queries; each with its best setting and c."""
    quick = run.comparison.quick
    n_pictures = run.pictures.divisions[0].train.size
    n_trained = min(QUICK_TRAINED, n_pictures) if quick else n_pictures
    rows, chosen_of = [], {}
    for kernel, encoders in KERNELS.items():
        best = _searched(run, kernel, encoders, n_trained)
        theirs, chosen = paper.TABLE_4[kernel]
        chosen_of[kernel] = best
        shown = "–" if best is None else ", ".join(f"{name}={value}" for name, value in best["of"].items())
        rows.append([kernel, "–" if best is None else percent(best["avgp"]), shown, percent(theirs), chosen])
    header = ("kernel", f"AvgP ({run.name})", "chosen", "AvgP (paper)", "chosen (paper)")
    run.comparison.document.table(f"Table IV on {run.name}: kernels, AvgP over validation queries", header, rows)
    run.comparison.document.text(
        f"On {n_trained:,} training pictures, the same for all kernels (the paper trains on 4,000), and all validation "
        f"pictures; blocks of {SIDE} px, described and weighed as in the paper."
    )
    kernel_claims(run, {kernel: best for kernel, best in chosen_of.items() if best is not None})


def kernel_claims(run: SearchRun, found: Mapping[str, Record]) -> None:
    """Judge the order of the kernels, each with what was chosen for it, over the validation queries."""
    for first, second in PAIRS:
        if first in found and second in found:
            run.comparison.claims.append(
                ranks_claim(
                    first,
                    second,
                    "AvgP over validation queries",
                    (values_of(found[first]), values_of(found[second])),
                    where="Table IV",
                    problem=run.name,
                    paper=(paper.TABLE_4[first][0], paper.TABLE_4[second][0]),
                )
            )


def _searched(run: SearchRun, kernel: str, encoders: Sequence[Mapping[str, Any]], n_trained: int) -> Record | None:
    """Return the record of the best setting of a kernel and c; None where there was no time for any."""
    quick = run.comparison.quick
    tried: list[Record] = []

    def fit(one: Settings) -> list[float]:
        encoder, c = encoders[one["kernel"]], one["c"]
        work = partial(_tried, run, encoder, c, n_trained)
        record = run.comparison.while_time(f"Table IV on {run.name}: {kernel}", work)
        if record is None:
            return [-np.inf]
        tried.append(record)
        return [record["avgp"]]

    box = {"kernel": unordered(*range(len(encoders))), "c": AGGRESSIVENESS}
    points = draw_points(box, DRAWN, seed=run.comparison.trials.seed)
    points.sort(key=lambda one: one["kernel"])  # each is computed once
    if quick:
        fit(points[0])
    else:
        search(box, points, fit)
    return max(tried, key=lambda record: record["avgp"], default=None)


def _tried(run: SearchRun, encoder: Mapping[str, Any], c: float, n_trained: int) -> Record:
    pictures, trials = run.pictures, run.comparison.trials
    division = pictures.divisions[0]
    trained = np.sort(np.random.default_rng(trials.seed).permutation(division.train)[:n_trained])
    described = DESCRIBED.get(encoder["kernel"], PAPER_BLOCKS)
    params = {"block": SIDE / LONG_SIDE, **described, **encoder, **(SMALL if run.comparison.quick else {})}

    def work() -> Record:
        X, X_valid = run.encoded.once(
            key_of(pictures.name, params, trained.tolist()), lambda: _encoded(run, params, trained, division.valid)
        )
        captions = pictures.captions[trained]
        made = pictures.queries_of(pictures.captions[division.valid])
        idf = inverse_frequencies(np.bincount(captions.indices, minlength=captions.shape[1]), n_trained)
        queries = Queries(weigh_words(made.words, idf), made.relevant)
        limits = {"max_words": pictures.max_words, "max_subsets": pictures.max_subsets}
        model = trials.make(PAMIR.model, {**limits, "kernel": "precomputed", "aggressiveness": c})
        model.fit(X, captions, valid=(X_valid, pictures.captions[division.valid]))
        return validation_avgp(model, X_valid, queries)

    names = [str(image) for image in pictures.development.images]
    shown = {**encoder, "c": c}
    return trials.once(
        f"{pictures.name}-kernels", [names, division.valid.tolist(), trained.tolist(), params, c], work, shown
    )


def _encoded(run: SearchRun, params: Mapping[str, Any], trained: Any, valid: Any) -> tuple[Any, Any]:
    images, trials = run.pictures.development.images, run.comparison.trials
    made = make_encoder("bag_kernel", params, {"random_state": trials.seed, "n_jobs": trials.n_jobs})
    chosen = [images[i] for i in trained]
    made.fit(chosen)
    return made.transform(chosen), made.transform([images[i] for i in valid])
