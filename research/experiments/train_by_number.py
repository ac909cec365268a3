"""Training on images known only by number: seconds to a MAP, ours beside LightFM's WARP and implicit's BPR.

One tag of each image with two or more is held out, as in the VSE-ens paper, and an image's other tags are left out of
its ranking. Each side first looks for its best MAP over its own small grid; then all run, in turn, to the best that the
other reached. Only training is timed; the rivals run in a process of their own, under the Python that is named.

    python train_by_number.py --data SHARED/data/nuswide --lightfm-python /tmp/rivals/bin/python
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.runs import machine, options, parse, say, write
from lab.child import Child, RivalError
from lab.grids import grid
from lab.judged import Judge
from lab.race import Limits, as_json, explore, race
from lab.sides import Ours, Theirs, hand_over

from visterm.core.vocabulary import Vocabulary
from visterm.data.tag_formats.tables import read_table
from visterm.data.tag_queries import hold_one_out
from visterm_research.data.drawn_tags import draw_dictionary, draw_pairs

DIM = 100
JUDGED_SCORES = 50_000_000
"""At most so many scores are judged after an epoch: fewer images where there are more tags."""


FIXED = {"wsabie": {"step": "adagrad", "schedule": "cosine", "row_length": 1.0, "init_scale": 0.01}}
LENGTHS = ({"epochs": 12, "average": 2}, {"epochs": 20, "average": 5})
"""The cosine schedule ends with the last epoch: short and quick, or longer and better."""

OURS = {
    "wsabie": [
        {**length, **settings}
        for length in LENGTHS
        for settings in grid(bias=[0.6, 0.8, 1.0], learning_rate=[0.2, 0.3], max_norm=[1.2, 1.3])
    ]
}
LIGHTFM = grid(learning_rate=[0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1])
BPR = grid(learning_rate=[0.005, 0.01, 0.02, 0.05], regularization=[0.01, 0.05])


def nuswide(folder: Path) -> sp.csr_array:
    records = read_table(folder / "labels.tsv", image_column="row", tags_column="labels", separator=",")
    lists = [record.tags for record in records]
    return Vocabulary.from_lists(lists).encode(lists)


def zipf(n_images: int, n_tags: int) -> sp.csr_array:
    return draw_pairs(n_images, draw_dictionary(n_tags, random_state=0), random_state=1)


def compare(Y: sp.csr_array, options: Any, limits: Limits, folder: Path) -> dict[str, Any]:
    """Race on one set of pairs."""
    held = hold_one_out(Y, np.random.default_rng(0), at_most=JUDGED_SCORES // Y.shape[1])
    n_images, n_tags = Y.shape
    say(f"{n_images:,} images × {n_tags:,} tags, {held.rest.nnz:,} pairs; {held.images.size:,} judged")
    judge = Judge(held.held, held.known)
    X = sp.eye_array(Y.shape[0], dtype=np.float32, format="csr")
    fixed = {
        **FIXED[options.model],
        "dim": DIM,
        "max_trials": options.max_trials,
        "valid_share": 0,
        "n_jobs": options.threads,
    }
    ours = Ours(options.model, X, held.rest, X[held.images], judge, fixed)
    result: dict[str, Any] = {
        "images": Y.shape[0],
        "tags": Y.shape[1],
        "pairs": held.rest.nnz,
        "judged": held.images.size,
    }
    settings = OURS[options.model][:1] if options.quick else OURS[options.model]
    our_curves = explore(ours, settings, limits)
    result[ours.name] = as_json(our_curves)
    pairs = hand_over(folder / "pairs.npz", held.rest, held.images)
    rivals = {
        "lightfm": (
            options.lightfm_python,
            "lightfm_warp.py",
            LIGHTFM,
            {"no_components": DIM, "max_sampled": options.max_trials},
        ),
        "implicit": (options.implicit_python or options.lightfm_python, "implicit_bpr.py", BPR, {"factors": DIM}),
    }
    for name, (python, script, their_grid, their_fixed) in rivals.items():
        try:
            with Child(python, script, options.threads) as child:
                child.ask("load", pairs=pairs, threads=options.threads)
                theirs = Theirs(child, name, folder, judge, their_fixed)
                curves = explore(theirs, their_grid[:1] if options.quick else their_grid, limits)
                result[theirs.name] = as_json(curves)
                result[f"against {name}"] = race(ours, theirs, (our_curves, curves), options.runs, limits)
        except RivalError as error:
            say(f"\n{name} is missing: {error}")
            result[f"against {name}"] = f"missing: {error}"
    return result


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="NUS-WIDE's labels.tsv; without, only drawn pairs")
    parser.add_argument("--drawn", type=int, nargs=2, default=(100_000, 10_000), metavar=("IMAGES", "TAGS"))
    parser.add_argument("--model", choices=sorted(OURS), default="wsabie")
    parser.add_argument(
        "--max-trials", type=int, default=10, help="draws a pair, of ours and of LightFM's (its default)"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lightfm-python", type=Path, metavar="PATH")
    parser.add_argument("--implicit-python", type=Path, metavar="PATH", help="default: that of LightFM")
    parser.add_argument("--patience", type=int, default=4, help="epochs without a better MAP")
    parser.add_argument("--most-seconds", type=float, default=60, help="of one training")
    chosen = parse(parser)
    limits = Limits(chosen.patience, 3 if chosen.quick else 100, chosen.most_seconds)
    result: dict[str, Any] = {"machine": machine(), "threads": chosen.threads, "max trials": chosen.max_trials}
    warm_up(chosen)
    with tempfile.TemporaryDirectory() as folder:
        if chosen.data is None:
            say("NUS-WIDE is left out: no --data")
        else:
            result["nuswide"] = compare(nuswide(chosen.data), chosen, limits, Path(folder))
        drawn = (2_000, 300) if chosen.quick else tuple(chosen.drawn)
        result["drawn"] = compare(zipf(*drawn), chosen, limits, Path(folder))
    write(result, chosen.json)


def warm_up(options: Any) -> None:
    """Load the compiled kernels, so that no clock pays for it."""
    for n_tags in (50, 2000):
        Y = zipf(500, n_tags)
        X = sp.eye_array(500, dtype=np.float32, format="csr")
        judge = Judge(Y)
        Ours(options.model, X, Y, X, judge, {"epochs": 2, "valid_share": 0}).train({}, 0, lambda *_: False)


if __name__ == "__main__":
    main()
