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
from visterm_research.pamir.methods import LONG_SIDE
from visterm_research.pamir.rows import validation_avgp, values_of
from visterm_research.pamir.search_run import SearchRun
from visterm_research.papers import read_paper

paper = read_paper("pamir")

QUICK_TRAINING_PICTURES = 30
"""Number of training pictures of a quick run; other runs use all."""

BLOCK_PIXELS = 32
"""Side of a block in pixels, half of the paper's choice."""

AGGRESSIVENESS = Axis((0.03, 0.1, 0.3, 1.0, 3.0))
"""Values of c, which are searched together with the settings of each kernel."""

KERNELS: dict[str, Sequence[Mapping[str, Any]]] = {
    "expected likelihood": [{"kernel": "expected_likelihood", "gaussians": number} for number in (1, 2, 3)],
    "match": [{"kernel": "match", "minor": minor} for minor in ("rbf", "linear", "polynomial")],
    "visterm-linear": [{"kernel": "visterm", "codebook": number} for number in (10_000, 2000)],
}
"""Rows of the table, and the settings of ``bag_kernel`` to try for each."""

DESCRIPTOR_SETTINGS: dict[str, Mapping[str, Any]] = {"visterm": {**PAPER_BLOCKS, **PAPER_WORDS}}
"""Settings of ``bag_kernel`` for blocks and words as in the paper; the other kernels only use the blocks."""

PAIRS = (("visterm-linear", "match"), ("visterm-linear", "expected likelihood"), ("match", "expected likelihood"))
"""Section V-B: visterms are clearly best, followed by match and then the expected likelihood."""

SMALL = {"colours": 12, "codebook": 100, "sample_blocks": 2000}


def kernels_part(run: SearchRun) -> None:
    """Compare the kernels, each with its best setting and c, by PAMIR's AvgP over the validation queries."""
    quick = run.comparison.quick
    n_pictures = run.pictures.divisions[0].train.size
    n_training = min(QUICK_TRAINING_PICTURES, n_pictures) if quick else n_pictures
    rows, best_by_kernel = [], {}
    for kernel, encoders in KERNELS.items():
        best = _best_record(run, kernel, encoders, n_training)
        paper_avgp, paper_choice = paper.TABLE_4[kernel]
        best_by_kernel[kernel] = best
        settings_text = "–" if best is None else ", ".join(f"{name}={value}" for name, value in best["of"].items())
        rows.append(
            [kernel, "–" if best is None else percent(best["avgp"]), settings_text, percent(paper_avgp), paper_choice]
        )
    header = ("kernel", f"AvgP ({run.name})", "chosen", "AvgP (paper)", "chosen (paper)")
    run.comparison.document.table(f"Table IV on {run.name}: kernels, AvgP over validation queries", header, rows)
    run.comparison.document.text(
        f"On {n_training:,} training pictures, the same for all kernels (the paper trains on 4,000), and all "
        f"validation pictures; blocks of {BLOCK_PIXELS} px, described and weighed as in the paper."
    )
    kernel_claims(run, {kernel: best for kernel, best in best_by_kernel.items() if best is not None})


def kernel_claims(run: SearchRun, records: Mapping[str, Record]) -> None:
    """Judge the order of the kernels, each with its chosen settings, over the validation queries."""
    for first, second in PAIRS:
        if first in records and second in records:
            run.comparison.claims.append(
                ranks_claim(
                    first,
                    second,
                    "AvgP over validation queries",
                    (values_of(records[first]), values_of(records[second])),
                    where="Table IV",
                    problem=run.name,
                    paper=(paper.TABLE_4[first][0], paper.TABLE_4[second][0]),
                )
            )


def _best_record(run: SearchRun, kernel: str, encoders: Sequence[Mapping[str, Any]], n_training: int) -> Record | None:
    """Return the record of the best setting of a kernel and c, or None if there was no time for any setting."""
    quick = run.comparison.quick
    tried: list[Record] = []

    def fit(settings: Settings) -> list[float]:
        encoder, c = encoders[settings["kernel"]], settings["c"]
        work = partial(_trial_record, run, encoder, c, n_training)
        record = run.comparison.while_time(f"Table IV on {run.name}: {kernel}", work)
        if record is None:
            return [-np.inf]
        tried.append(record)
        return [record["avgp"]]

    box = {"kernel": unordered(*range(len(encoders))), "c": AGGRESSIVENESS}
    points = draw_points(box, DRAWN, seed=run.comparison.trials.seed)
    points.sort(key=lambda settings: settings["kernel"])  # so that each kernel is computed once
    if quick:
        fit(points[0])
    else:
        search(box, points, fit)
    return max(tried, key=lambda record: record["avgp"], default=None)


def _trial_record(run: SearchRun, encoder: Mapping[str, Any], c: float, n_training: int) -> Record:
    pictures, trials = run.pictures, run.comparison.trials
    division = pictures.divisions[0]
    training_rows = np.sort(np.random.default_rng(trials.seed).permutation(division.train)[:n_training])
    descriptors = DESCRIPTOR_SETTINGS.get(encoder["kernel"], PAPER_BLOCKS)
    params = {"block": BLOCK_PIXELS / LONG_SIDE, **descriptors, **encoder, **(SMALL if run.comparison.quick else {})}

    def work() -> Record:
        X, X_valid = run.encoded.once(
            key_of(pictures.name, params, training_rows.tolist()),
            lambda: _encode(run, params, training_rows, division.valid),
        )
        captions = pictures.captions[training_rows]
        valid_queries = pictures.queries_of(pictures.captions[division.valid])
        idf = inverse_frequencies(np.bincount(captions.indices, minlength=captions.shape[1]), n_training)
        queries = Queries(weigh_words(valid_queries.words, idf), valid_queries.relevant)
        limits = {"max_words": pictures.max_words, "max_subsets": pictures.max_subsets}
        model = trials.make("kernel_pamir", {**limits, "kernel": "precomputed", "aggressiveness": c})
        model.fit(X, captions, valid=(X_valid, pictures.captions[division.valid]))
        return validation_avgp(model, X_valid, queries)

    names = [str(image) for image in pictures.development.images]
    shown_settings = {**{name: params[name] for name in encoder}, "c": c}
    return trials.once(
        f"{pictures.name}-kernels",
        [names, division.valid.tolist(), training_rows.tolist(), params, c],
        work,
        shown_settings,
    )


def _encode(run: SearchRun, params: Mapping[str, Any], training_rows: Any, valid_rows: Any) -> tuple[Any, Any]:
    images, trials = run.pictures.development.images, run.comparison.trials
    encoder = make_encoder("bag_kernel", params, {"random_state": trials.seed, "n_jobs": trials.n_jobs})
    training_images = [images[i] for i in training_rows]
    encoder.fit(training_images)
    return encoder.transform(training_images), encoder.transform([images[i] for i in valid_rows])
