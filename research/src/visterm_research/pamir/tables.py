"""Tables I to VIII of the PAMIR paper: the pictures, the choices on validation queries, and the costs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from visterm.data import Queries
from visterm_research.comparison.claims import least_claim, percent, ranks_claim
from visterm_research.comparison.feature_sets import FeatureSet
from visterm_research.comparison.records import Record
from visterm_research.comparison.search import Settings
from visterm_research.comparison.trials import Trials
from visterm_research.pamir.methods import PAMIR, SVM
from visterm_research.pamir.rows import SearchRows, blocks_of, values_of
from visterm_research.pamir.search_run import SearchChoice, SearchRun
from visterm_research.papers import read_paper

paper = read_paper("pamir")
SMALL = paper.SMALL

N_TIMED_QUERIES = 500
N_ROUNDS = 5

PARTS = ("training", "validation", "test")
NONE = "–"

BLOCKS_TEXT = (
    "Blocks overlap by half, 50 colours. As in the paper: RGB, histograms of texture and colour side by side, one "
    "word a block, tf · idf; ours: our encoder's defaults, at one scale of blocks (CIELAB, texture three times as "
    "heavy, roots of histograms, four words a block, √tf · idf). There are few large blocks, so fewer than "
    "10,000 words are learned: one per ten blocks."
)


def statistics_part(run: SearchRun, number: str, theirs: str) -> None:
    """Tables I and II: pictures, queries and words."""
    pictures = run.pictures
    division = pictures.divisions[0]
    made = [pictures.queries_of(pictures.captions[rows]) for rows in (division.train, division.valid)]
    queries = [*made, pictures.test_queries]
    sizes = [_sizes(pictures.development.images), _sizes(pictures.development.images), _sizes(pictures.test.images)]
    here = {
        "pictures": [f"{n:,}" for n in (division.train.size, division.valid.size, len(pictures.test))],
        "picture size": sizes,
        "queries": [f"{len(one):,}" for one in queries],
        "relevant pictures a query": [f"{_mean(one.n_relevant):.2f}" for one in queries],
        "words of the vocabulary": [f"{len(pictures.words):,}"] * 3,
        "words a query": [f"{_mean(one.n_words):.2f}" for one in queries],
    }
    rows = [[name, *here[name], *paper.STATISTICS[theirs][name]] for name in here]
    header = ("", *PARTS, *(f"{part} ({theirs}, paper)" for part in PARTS))
    run.comparison.document.table(f"Table {number}: {run.name}", header, rows)
    kinds = pictures.kinds
    beside = theirs == SMALL and not run.comparison.quick
    counts = ", ".join(
        f"{int(kinds[kind].sum()):,} {kind}" + (f" ({paper.KIND_COUNTS[kind]:,})" if beside else "")
        for kind in paper.KIND_COUNTS
    )
    run.comparison.document.text(f"Test queries by kind{' (in brackets: in the paper)' if beside else ''}: {counts}.")


def blocks_part(run: SearchRun, ours: Sequence[FeatureSet], theirs: Sequence[FeatureSet]) -> None:
    """Table III: PAMIR's AvgP on validation queries by the size of blocks, with our and the paper's word weights."""
    as_paper = run.compare_features(PAMIR, theirs)
    choice = run.choices.get(PAMIR.label)
    as_ours = {} if choice is None else choice.by_features
    plain = {features.params["block"]: features for features in theirs}
    rows = []
    for features in ours:
        block = features.params["block"]
        other = plain.get(block)
        pixels, double = round(block * 192), pixels_of(features)
        blocks, avgp = paper.TABLE_3.get(double, (0, None))
        rows.append(
            [
                f"{pixels} px ({double} px)",
                _avgp(as_ours.get(features.slug)),
                NONE if other is None else _avgp(as_paper.get(other.slug)),
                NONE if avgp is None else percent(avgp),
                NONE if avgp is None else str(blocks),
            ]
        )
    header = ("block (in the paper's pictures)", "ours", "as in the paper", "paper", "blocks a picture (paper)")
    run.comparison.document.table(f"Table III on {run.name}: AvgP of PAMIR over validation queries", header, rows)
    others = {
        slug: record for slug, record in as_ours.items() if slug not in {feature_set.slug for feature_set in ours}
    }
    if others and choice is not None:
        run.comparison.document.table(
            f"Other blocks and codebooks on {run.name}: AvgP of PAMIR over validation queries",
            ("features", "AvgP"),
            [[slug, _avgp(record)] for slug, record in others.items()],
        )
    if not run.comparison.quick:
        run.comparison.document.text(BLOCKS_TEXT)
    block_claims(run, {pixels_of(features): as_paper.get(features.slug) for features in theirs})


def pixels_of(features: FeatureSet) -> int:
    """Return the side of blocks in the paper's pictures, which are twice as large as ours."""
    return round(float(features.params["block"]) * 384)


def block_claims(run: SearchRun, records: Mapping[int, Record | None]) -> None:
    """Judge the paper's best block of Table III against the others, over the validation queries.

    Parameters
    ----------
    run : SearchRun
    records : mapping of int to dict, optional
        Records of PAMIR with the paper's features, by the side of blocks in the paper's pictures; None: no record.
    """
    best = max(paper.TABLE_3, key=lambda side: paper.TABLE_3[side][1])
    precisions = {side: values_of(record) for side, record in records.items() if record and record["avgp"] is not None}
    for side in sorted(precisions.keys() & paper.TABLE_3.keys() - {best}) if best in precisions else ():
        run.comparison.claims.append(
            ranks_claim(
                f"blocks of {best // 2} px (the paper's {best})",
                f"blocks of {side // 2} px ({side})",
                "PAMIR's AvgP over validation queries",
                (precisions[best], precisions[side]),
                where="Table III",
                problem=run.name,
                paper=(paper.TABLE_3[best][1], paper.TABLE_3[side][1]),
            )
        )


def learning_part(runs: Sequence[tuple[SearchRun, str]]) -> None:
    """Table V: PAMIR's aggressiveness and its number of steps."""
    rows = []
    for run, theirs in runs:
        choice = run.choices.get(PAMIR.label)
        if choice is not None:
            steps = round(choice.record["learned"]["epochs"] * _pairs(run))
            rows.append([run.name, f"{choice.settings['aggressiveness']:g}", f"{steps:,}", _avgp(choice.record)])
        rows.append([f"{theirs} (paper)", *paper.TABLE_5[theirs], NONE])
    header = ("data", "aggressiveness c", "steps n", "AvgP (validation)")
    runs[0][0].comparison.document.table("Table V: what PAMIR's learning chose", header, rows)


def settings_part(runs: Sequence[tuple[SearchRun, str]]) -> None:
    """Table VI: features and settings of every method."""
    rows = []
    for run, theirs in runs:
        for choice in run.choices.values():
            label = choice.method.label
            rows.append(
                [
                    label,
                    run.name,
                    choice.features.label,
                    f"{run.rows(choice.features).X.shape[1]:,}",
                    shown_settings(choice),
                    f"{len(choice.by_features)} + {len(choice.tried)}",
                    _avgp(choice.record),
                    NONE if choice.record["seconds"] is None else f"{choice.record['seconds']:.1f}",
                ]
            )
            if label in paper.METHODS:
                rows.append([label, f"{theirs} (paper)", NONE, NONE, paper.TABLE_6[theirs][label], NONE, NONE, NONE])
    header = ("method", "data", "features", "numbers", "settings", "tried", "AvgP (validation)", "seconds of its fit")
    runs[0][0].comparison.document.table("Table VI: features and settings chosen on validation queries", header, rows)
    runs[0][0].comparison.document.text(
        "Tried: kinds of features with one setting of the method, and settings together with the best of these kinds. "
        "In brackets: what a method chose itself during fitting (C: the median)."
    )


def costs_part(run: SearchRun, theirs: str) -> None:
    """Tables VII and VIII: seconds of indexing and milliseconds per query, on the same features and one thread."""
    if PAMIR.label not in run.choices:
        return
    features = run.choices[PAMIR.label].features
    rows, seconds = [], {}
    for label in paper.METHODS:
        choice = run.choices.get(label)
        if choice is None:
            continue
        settings = frozen(choice.method.model, choice.settings, choice.record)
        record = run.comparison.while_time(
            f"Table VII on {run.name}, {label}", partial(_index_time, run, features, choice.method.model, settings)
        )
        if record is not None:
            seconds[label] = record["fit"] + record["map"]
            cells = [f"{record[part]:.2f}" for part in ("fit", "map")]
            paper_seconds = f"{paper.TABLE_7[theirs][label]:,}"
            rows.append([label, *cells, f"{seconds[label]:.2f}", paper_seconds])
    document = run.comparison.document
    header = ("method", "training (s)", "mapping (s)", "together (s)", f"{theirs}, paper (s)")
    document.table(f"Table VII on {run.name}: indexing", header, rows)
    document.text(
        f"Each method ran once, on the features that PAMIR chose ({features.label}; "
        f"{blocks_of(run.rows(features)):.0f} non-zero), on one thread, with the settings of Table VI, including "
        "those that a method chose itself. The paper's machine: an AMD Athlon64 of 2.4 GHz, 2008."
    )
    retrieval = run.comparison.while_time(
        f"Table VIII on {run.name}", lambda: retrieval_time(run.comparison.trials, run.rows(features))
    )
    if retrieval is not None:
        row = [run.name, f"{1000 * retrieval['seconds']:.3f}"]
        document.table(
            f"Table VIII on {run.name}: retrieval, the same for all models",
            ("data", "milliseconds a query"),
            [row, [f"{theirs} (paper)", f"{paper.TABLE_8[theirs]}"]],
        )
    time_claims(run, theirs, seconds)


def shown_settings(choice: SearchChoice) -> str:
    """Return a text with the settings of a choice, and the settings that the model chose in its fit."""
    set_to = [
        f"{name}={value}"
        for name, value in choice.settings.items()
        if name not in choice.method.fixed and value is not None
    ]
    learned = [
        f"{name} {value:.3g}" for name, value in choice.record["learned"].items() if choice.settings.get(name) is None
    ]
    return (
        " ".join([*([", ".join(set_to)] if set_to else []), *([f"({', '.join(learned)})"] if learned else [])]) or NONE
    )


def time_claims(run: SearchRun, theirs: str, seconds: Mapping[str, float]) -> None:
    """Judge the times of Table VII: PAMIR and SVM against each other method; the faster in the paper comes first."""
    table = paper.TABLE_7[theirs]
    pairs = [(PAMIR.label, other) for other in table if other != PAMIR.label]
    pairs += [(SVM.label, other) for other in table if other not in (PAMIR.label, SVM.label)]
    for pair in pairs:
        if pair[0] in seconds and pair[1] in seconds:
            first, second = sorted(pair, key=lambda label: table[label])
            run.comparison.claims.append(
                least_claim(
                    first,
                    second,
                    "time of indexing",
                    where=f"Table VII, {theirs}",
                    paper=(f"{table[first]:,} s", f"{table[second]:,} s"),
                    problem=run.name,
                    here=(seconds[first], seconds[second]),
                    unit="s",
                )
            )


def _index_time(run: SearchRun, features: FeatureSet, model: str, settings: Settings) -> Record:
    return index_time(run.comparison.trials, run.rows(features), model, settings)


def _pairs(run: SearchRun) -> int:
    """Return the number of pairs of a training query and a relevant picture, which is the number of steps per epoch."""
    pictures = run.pictures
    queries: Queries = pictures.queries_of(pictures.captions[pictures.divisions[0].train])
    return int(queries.relevant.nnz)


def _sizes(images: Sequence[Any]) -> str:
    """Return the sizes of the first pictures as a text, most frequent first."""
    counts: dict[str, int] = {}
    for image in images[:200]:
        with Image.open(image) as picture:
            size = f"{picture.width}x{picture.height}"
        counts[size] = counts.get(size, 0) + 1
    ordered = sorted(counts, key=lambda size: -counts[size])
    return " or ".join(ordered[:2]) + (" or others" if len(ordered) > 2 else "")


def _mean(numbers: Any) -> float:
    return float(np.mean(numbers)) if len(numbers) else 0.0


def _avgp(record: Record | None) -> str:
    if record is None:
        return NONE
    return "diverged" if record["avgp"] is None else percent(record["avgp"])


def frozen(model: str, settings: Settings, record: Record) -> Settings:
    """Return the settings of a single run: values that the model chose are fixed, and there is no early stopping.

    The paper's Table VII also times single runs. Values of C for each word are replaced by their median.
    """
    learned = record["learned"]
    single_run = dict(settings)
    if model == "pamir":
        return {**single_run, "epochs": max(1, int(learned["epochs"])), "valid_share": 0.0}
    for name in ("alpha", "beta", "C"):
        if name in learned:
            single_run[name] = learned[name]
    return single_run


def index_time(trials: Trials, rows: SearchRows, model: str, settings: Settings) -> Record:
    """Measure, or read from earlier trials, the times of training and of scoring the test pictures on one thread."""

    def work() -> Record:
        timed_model = trials.make(model, settings, n_jobs=1)
        start = time.perf_counter()
        timed_model.fit(rows.train.X, rows.train.Y)
        fit_end = time.perf_counter()
        for _ in timed_model.score_blocks(rows.X_test):
            pass
        return {"fit": fit_end - start, "map": time.perf_counter() - fit_end}

    key_parts = [rows.fingerprint, rows.test_fingerprint, model, settings]
    return trials.once(f"{rows.name}/index-time", key_parts, work, {"model": model, **settings})


def retrieval_time(trials: Trials, rows: SearchRows) -> Record:
    """Measure, or read from earlier trials, the median seconds of ranking the scored test pictures for a query."""
    words = rows.test_queries.words[:N_TIMED_QUERIES]
    n_images = rows.X_test.shape[0]

    def work() -> Record:
        S: Any = np.random.default_rng(trials.seed).random((n_images, words.shape[1]), np.float32)
        seconds = []
        for _ in range(N_ROUNDS):
            start = time.perf_counter()
            for query in range(words.shape[0]):
                part = slice(words.indptr[query], words.indptr[query + 1])
                np.argsort(-(S[:, words.indices[part]] @ words.data[part]), kind="stable")
            seconds.append((time.perf_counter() - start) / words.shape[0])
        return {"seconds": float(np.median(seconds))}

    key_parts = [rows.test_fingerprint, N_ROUNDS]
    return trials.once(f"{rows.name}/retrieval-time", key_parts, work, {"pictures": n_images})
