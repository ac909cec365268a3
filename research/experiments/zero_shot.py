"""Zero-shot tagging of Corel5k: a fifth of the tags kept from training, and found on test images by word vectors.

Five questions: whether held-out tags are found at five times chance, and better than by the average word vector, among
themselves and among all tags; whether random vectors fail; whether words outside the tags are found better when they
follow the tags that training moved; and what photos teach of drawn scenes, and scenes of photos.
Settings were chosen on validation images of the training split (--on valid measures there).

    python zero_shot.py --data SHARED/data/corel5k --json zero_shot.json \\
        --encoder onnx:SHARED/models/mobilenet_v2.onnx --scenes 1000
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness.runs import machine, options, parse, say, write

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from planted import plant_corpus
from visterm.encoders.word_rows import sentence_vectors
from visterm.metrics import paired_bootstrap
from visterm_research.comparison.image_problems import corel_problem, scene_problem
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.comparison.sources import Source
from visterm_research.ugc.methods import SAMPLED_SETTINGS
from visterm_research.zero_shot.across_corpora import across_corpora
from visterm_research.zero_shot.arms import ZeroShot, ZeroShotArm, zero_shot
from visterm_research.zero_shot.vectors import prepared, tag_list_vectors, with_common, word_sources

SHORT = {"hidden": [256], "epochs": 8, "learning_rate": 0.001, "device": "cpu"}
LONG = {"hidden": [1024], "epochs": 15, "learning_rate": 0.0003, "device": "cpu"}
JOINT = {**SHORT, **SAMPLED_SETTINGS, "power": 0.25}
FIXED = {**JOINT, "fixed_vectors": True}

AS_THEY_ARE = " as they are"
"""Vectors that are not centred: so the average word vector does better."""

NEAR = 0.8
"""Cosine from which on tags are joined; the common number makes cosines (1 + c) / 2."""

COMPARED = (
    ("sampled, fixed", "average word vector", ("held-out p@5", "all p@5")),
    ("sampled, words follow", "average word vector", ("held-out p@5", "all p@5")),
    ("sampled, words follow", "sampled, words stay", ("word map", "word p@10", "held-out p@5")),
)

MEASURES = (
    "held-out p@5",
    "held-out r@5",
    "held-out chance",
    "all p@5",
    "all r@5",
    "all held-out p@5",
    "word map",
    "word p@10",
    "word chance",
)


def arms(source: str) -> list[ZeroShotArm]:
    """List what is run with the vectors of a source."""
    return [
        ZeroShotArm("average word vector", "average_word_vector", source + AS_THEY_ARE, LONG),
        ZeroShotArm("fast0tag", "fast0tag", source, SHORT),
        ZeroShotArm("sampled, fixed", "sampled_tagger", source, FIXED),
        ZeroShotArm("sampled, words follow", "sampled_tagger", source, JOINT),
        ZeroShotArm("sampled, words stay", "sampled_tagger", source, JOINT, moved=False),
    ]


def named(arm: ZeroShotArm) -> str:
    return f"{arm.label} ({arm.source.removesuffix(AS_THEY_ARE)})"


def figures(found: list[ZeroShot]) -> dict[str, Any]:
    """Return the mean of each measure over the draws of held-out tags, and what each draw gave."""
    result: dict[str, Any] = {}
    for name in dict.fromkeys(named(one.arm) for one in found):
        draws = [one.metrics for one in found if named(one.arm) == name]
        means = {measure: float(np.mean([draw[measure] for draw in draws])) for measure in MEASURES}
        means["times chance"] = means["held-out p@5"] / means["held-out chance"]
        result[name] = {**means, "draws": [{measure: draw[measure] for measure in MEASURES} for draw in draws]}
        say(
            f"{name:40s} {means['times chance']:5.2f} times chance ({means['held-out chance']:.3f}); p@5 held-out "
            f"{means['held-out p@5']:.3f}, all {means['all p@5']:.3f}; words: MAP {means['word map']:.3f}, "
            f"p@10 {means['word p@10']:.3f} (chance {means['word chance']:.3f})"
        )
    return result


def difference(found: list[ZeroShot], first: str, second: str, measure: str) -> dict[str, float]:
    """Compare two arms image by image (or word by word), all draws together: 95 % of bootstrap samples."""
    sides = [
        np.concatenate([one.values[measure] for one in found if named(one.arm) == name]) for name in (first, second)
    ]
    defined = ~np.isnan(sides[0]) & ~np.isnan(sides[1])
    gap = paired_bootstrap(sides[0][defined], sides[1][defined], n_resamples=2000)
    low, high = float(gap.low), float(gap.high)
    say(f"{first} less {second}, {measure}: {low:+.4f} to {high:+.4f}")
    return {"low": low, "high": high}


def crossed(problem: Problem, scenes: Problem, on: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Learn from photos and tag drawn scenes, and the other way round; vectors of the sentence network stay."""
    result = {}
    for source, target in ((problem, scenes), (scenes, problem)):
        words = with_common(prepared(sentence_vectors([*source.tags, *target.tags]).matrix))
        vectors = {"source": words[: len(source.tags)], "target": words[len(source.tags) :]}
        name = f"{source.name}→{target.name}"
        result[name] = across_corpora(source, target, "sampled_tagger", settings, vectors, least_cosine=NEAR, on=on)
        for way, measures in result[name].items():
            say(f"{name}, tags joined by {way}: { ({key: round(value, 3) for key, value in measures.items()}) }")
    return result


def quick_problem() -> Problem:
    """Plant a corpus of 60 tags: shows that the program works."""
    drawn = plant_corpus(n_train=200, n_test=100, n_tags=60, n_features=60)
    train, test = Rows(drawn.X_train, drawn.Y_train), Rows(drawn.X_test, drawn.Y_test)
    return Problem("planted", "", [f"word {number}" for number in range(60)], train, test, test)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, help="folder of Corel5k")
    parser.add_argument("--encoder", default="visterms", help="as visterm fit --encoder takes it")
    parser.add_argument("--cache", type=Path, help="where drawn scenes and features are kept")
    parser.add_argument("--on", choices=["test", "valid"], default="test")
    parser.add_argument("--scenes", type=int, default=0, help="drawn scenes to cross corpora with; 0: do not")
    chosen = parse(parser)
    if chosen.data is None and not chosen.quick:
        parser.error("--data is not given; expected a folder of Corel5k (or --quick).")
    result: dict[str, Any] = {
        "machine": machine(),
        "encoder": chosen.encoder.rpartition("/")[2],
        "measured on": f"{chosen.on} rows",
    }
    with tempfile.TemporaryDirectory() as folder:
        cache = chosen.cache or Path(folder)
        params = {"output": "features"} if chosen.encoder.startswith("onnx:") else {}
        source, encoder = Source(cache, n_jobs=1), (chosen.encoder, params)
        problem = quick_problem() if chosen.quick else corel_problem(source, chosen.data, *encoder)
        sources = word_sources(problem.tags, problem.train.Y)
        sources |= {
            "learned" + AS_THEY_ARE: tag_list_vectors(problem.tags, problem.train.Y),
            "sentences" + AS_THEY_ARE: sentence_vectors(problem.tags).matrix,
        }
        tried = [*arms("sentences"), *arms("learned"), ZeroShotArm("sampled, fixed", "sampled_tagger", "random", FIXED)]
        started = time.perf_counter()
        found = zero_shot(problem, sources, tried, seeds=range(chosen.runs), on=chosen.on)
        result["seconds"] = time.perf_counter() - started
        result["tags"], result["arms"] = len(problem.tags), figures(found)
        result["differences"] = {
            f"{first} ({source}) less {second} ({source}), {measure}": difference(
                found, f"{first} ({source})", f"{second} ({source})", measure
            )
            for source in ("sentences", "learned")
            for first, second, measures in COMPARED
            for measure in measures
        }
        if chosen.scenes:
            result["across corpora"] = crossed(
                problem, scene_problem(source, chosen.scenes, *encoder), chosen.on, FIXED
            )
    write(result, chosen.json)


if __name__ == "__main__":
    main()
