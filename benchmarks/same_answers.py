"""Check that visterm still answers as it did: fit, annotate, search, index and evaluate with fixed seeds, and compare.

The program draws a library of 240 scenes, encodes it once, and fits nine models on it, with one thread and with two.
Everything goes through what users have: the commands (``python -m visterm``, run in this process so that the kernels
are loaded once), ``visterm.Tagger`` and ``visterm.Catalogue``. Modules may move: as long as the answers stay the same,
the check passes. It takes about two minutes on a quiet machine.

    python benchmarks/same_answers.py --record benchmarks/results/same_answers.json
    python benchmarks/same_answers.py --check benchmarks/results/same_answers.json    # exit code 1 if anything differs

**On a machine like the recording's** (same processor and cores, same versions of Python, numpy, scipy, scikit-learn,
numba, torch) everything is compared exactly: ids and names in their order, scores, confidences and measures to the last
bit, the SHA-256 of every array of a run, features folder or catalogue, and what a run's JSON says. Left out are the
seconds and rates that a clock measured, the number of threads, the checksums in manifests (of files with seconds in
them), and the settings of estimators (a setting without effect may go).

**Elsewhere** other BLAS and compiler code rounds differently, so that training takes slightly other steps. Then names,
types and shapes of arrays, the number of answers and the drawn tables are compared exactly. Scores, confidences,
measures and norms of arrays may differ by `TOLERANCE`, and rankings of a model may have other ids in `OTHER_IDS` of
their places. Hashes, fingerprints, calibrations and the JSON of runs are not compared. ``--tolerant`` compares so on
any machine.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from harness.runs import machine, say
from harness.walks import run
from safetensors.numpy import load_file

THREADS, SCENES, N_ANNOTATED = (1, 2), 240, 12
TOLERANCE = 0.2
"""Share of the largest score of a ranking, or of an array's norm, by which another machine may differ."""

OTHER_IDS = 0.3
"""Share of the places of one model's rankings that may have another id on another machine."""

ENCODER = {"codebook": 100, "colours": 12, "scales": "[1.0]", "sample_blocks": 5000, "max_side": 96}
SHORT = {"epochs": 8, "dim": 16}
VSE_PAPER = {
    "step": "sgd", "schedule": "constant", "learning_rate": 0.01, "l2": 0.01, "max_norm": 10.0, "init_scale": 0.01,
    "bias": 0.0, "average": 20, "patience": 10,
}  # fmt: skip
SAMPLED_PAPER = {
    "learning_rate": 0.0003, "tag_learning_rate": 0.1, "negatives": 10, "power": 1.0, "alpha": 0.01, "start_low": False,
}  # fmt: skip
"""The papers' settings, with which the answers are recorded."""

MODELS: dict[str, dict[str, Any]] = {
    "wsabie": SHORT,
    "ridge": {},
    "knn": {},
    "kernel_ridge": {},
    "pamir": {"epochs": 8},
    "objects_and_parts": SHORT,
    "vse_ens": SHORT | VSE_PAPER,
    "sampled_tagger": {"epochs": 4, "dim": 16, "hidden": [32], "device": "cpu"} | SAMPLED_PAPER,
    "auto": {"candidates": [["knn", {}], ["ridge", {}], ["kernel_ridge", {}], ["wsabie", {"epochs": 5}]]},
}
"""Models and their settings; no budget, as then a clock would decide."""

BY_NUMBER = {"vse_ens"}  # Models fitted on images known only by number
SEARCHES = ("sky", "tree road", "sky -tree", "car wheel")
MEASURED = {"seconds", "images_per_second", "n_jobs", "params", "sha256", "written", "created"}
"""Keys of JSON that say nothing of the answers."""

FINGERPRINT = re.compile(r"[0-9a-f]{16}([0-9a-f]{48})?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--record", type=Path, metavar="FILE", help="write the answers of this code")
    how.add_argument("--check", type=Path, metavar="FILE", help="compare the answers of this code with a recording")
    how.add_argument("--answer", type=int, metavar="THREADS", help=argparse.SUPPRESS)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="only these")
    parser.add_argument("--tolerant", action="store_true", help="compare as on another machine")
    chosen = parser.parse_args()
    if chosen.answer is not None:
        sys.stdout.write(json.dumps(_answers(chosen.answer, chosen.models)))
        return
    began = time.monotonic()
    found = {"machine": _kind_of_machine(), **_answers_by_threads(chosen.models)}
    say(f"{time.monotonic() - began:.0f} s")
    if chosen.record is not None:
        chosen.record.parent.mkdir(parents=True, exist_ok=True)
        chosen.record.write_text(_compact(found) + "\n", encoding="utf-8")
        return
    recorded = json.loads(chosen.check.read_text(encoding="utf-8"))
    exact = recorded["machine"] == found["machine"] and not chosen.tolerant
    if not exact:
        say(f"Recorded on {recorded['machine']}, checked on {found['machine']}: small differences are allowed.")
    differences = list(_differing(recorded, found, chosen.models, exact))
    for line in differences:
        say(line)
    say(f"{len(differences)} differences" if differences else "No answer differs.")
    sys.exit(bool(differences))


def _kind_of_machine() -> dict[str, Any]:
    """Return what decides how numbers are rounded here."""
    known = {name: value for name, value in machine().items() if name != "load"}
    return known | {name: version(name) for name in ("scikit-learn", "torch")}


def _answers_by_threads(models: Sequence[str]) -> dict[str, Any]:
    """Ask a fresh process for each number of threads, with the threads of every library limited to it."""
    found: dict[str, Any] = {}
    for threads in THREADS:
        limits = {f"{pool}_NUM_THREADS": str(threads) for pool in ("OMP", "OPENBLAS", "MKL")}
        command = [sys.executable, __file__, "--answer", str(threads), "--models", *models]
        done = subprocess.run(command, stdout=subprocess.PIPE, env=os.environ | limits, check=True)
        found[f"threads {threads}"] = json.loads(done.stdout)
    first, *others = THREADS
    one = found[f"threads {first}"]
    for threads in others:  # what is equal is written once
        more = found[f"threads {threads}"]
        found[f"threads {threads}"] = {name: value for name, value in more.items() if value != one.get(name)}
    return found


def _answers(threads: int, models: Sequence[str]) -> dict[str, Any]:
    """Run everything in a new folder, with relative paths, and collect the answers under a name each."""
    before = Path.cwd()
    work = Path(tempfile.mkdtemp(prefix="same-answers-")).resolve()
    os.chdir(work)
    try:
        found = {"demo": _demo()}
        images = sorted(path.name for path in Path("demo/library/images").glob("*.jpg"))
        tests = [f"demo/library/images/{name}" for name in images[-N_ANNOTATED:]]
        settings = [part for name, value in ENCODER.items() for part in ("--encoder-set", f"{name}={value}")]
        visterm("encode", "demo/library/images", "-o", "features", "--encoder", "visterms", *settings)
        found["features"] = _weights(Path("features"))
        _write_pairs(Path("pairs.csv"))
        for model in models:
            print(f"{threads} threads: {model}", file=sys.stderr, flush=True)
            found[model] = _of_model(model, images if model in BY_NUMBER else tests)
        if "wsabie" in models:
            found["streamed"] = _of_streamed()
            found["feedback"] = _of_feedback(threads)
            found["python"] = _in_python(tests)
        return found
    finally:
        os.chdir(before)
        shutil.rmtree(work)


def _demo() -> dict[str, Any]:
    """Run `visterm demo`: its table, and the library that everything else reads."""
    table = visterm("demo", "--scenes", SCENES, "-o", "demo")
    pictures = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path("demo/library/images").glob("*.jpg"))))
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(Path("demo/library").glob("*.csv"))}
    return {
        "table": table.splitlines(),
        "pictures": pictures.hexdigest(),
        "library": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()},
        "run": _weights(Path("demo/run")),
        "search": _ranking(json_lines("search", "demo/catalogue", "sky tree", "-k", 10)),
    }


def _of_model(model: str, images: Sequence[str]) -> dict[str, Any]:
    """Fit a model; annotate, evaluate, index and search with its run."""
    from visterm import fit

    run, catalogue = f"runs/{model}", f"catalogues/{model}"
    how: dict[str, Any] = {"model": model, "model_params": MODELS[model], "seed": 3, "out": run}
    tags = ["--tags", "demo/library/tags.csv"]
    if model in BY_NUMBER:
        fit(None, "pairs.csv", encoder="ids", **how)
        given = json_lines("annotate", run, *images[:N_ANNOTATED], "--new-only", "-k", 6)
        return {"run": _weights(Path(run)), "annotate": _tagged(given), **_near(run)}
    if model == "objects_and_parts":
        how["tag_rules"] = {"part_of": "demo/library/part_of.csv", "isa": "demo/library/isa.csv"}
    fit("features", tags[1], **how)
    visterm("index", run, "demo/library/images", *tags, "-o", catalogue)
    return {
        "run": _weights(Path(run)),
        "annotate": _tagged(json_lines("annotate", run, *images, "-k", 6)),
        "evaluate": _clean(json_lines("evaluate", run, "features", *tags)),
        **_near(run),
        **_searches(catalogue, images[0]),
    }


def _near(run: str) -> dict[str, Any]:
    """List the tags nearest to one, where the model has vectors of tags; others refuse."""
    try:
        found = json_lines("tags", run, "--like", "sky", "-k", 5)
    except RuntimeError:
        return {"neighbours": "refused"}
    return {"neighbours": {"ids": [near["tag"] for near in found], "scores": [near["score"] for near in found]}}


def _searches(catalogue: str, image: str) -> dict[str, Any]:
    """Search a catalogue by words, with and without limits, and by a photo; the rows that it stores."""
    found = {words: _ranking(json_lines("search", catalogue, "-k", 8, "--json", "--", words)) for words in SEARCHES}
    found["cut off"] = _ranking(json_lines("search", catalogue, "sky", "-k", 0, "--cutoff"))
    found["of road"] = _ranking(json_lines("search", catalogue, "sky", "--tag", "road", "-k", 8))
    found["alike"] = _ranking(json_lines("search", catalogue, "--like", image, "-k", 8))
    rows = {
        path.relative_to(catalogue).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((Path(catalogue) / "rows").rglob("*"))
        if path.is_file()
    }
    return {"search": found, "rows": {"sha256 of files": rows}}


def _of_streamed() -> dict[str, Any]:
    """Fit with less memory than the features take, which streams them from disk."""
    settings = [part for name, value in SHORT.items() for part in ("--set", f"{name}={value}")]
    how = ["--model", "wsabie", *settings, "--memory", "1M", "-o", "runs/streamed"]
    visterm("fit", "features", "--tags", "demo/library/tags.csv", *how)
    return {"run": _weights(Path("runs/streamed"))}


def _of_feedback(threads: int) -> dict[str, Any]:
    """Accept and reject tags in a catalogue, learn from that, and search again."""
    from visterm import Catalogue

    shutil.copytree("catalogues/wsabie", "catalogues/feedback")
    catalogue = Catalogue.load("catalogues/feedback", n_jobs=threads)
    for image, tag in ((200, "sky"), (201, "road"), (202, "tree")):
        catalogue.judge(image, tag, 1)
    catalogue.judge(203, "sky", -1)
    catalogue.give(204, ["sky", "road"])
    catalogue.learn()
    del catalogue
    accepted = _ranking(json_lines("search", "catalogues/feedback", "sky", "--tag", "sky", "-k", 8))
    return {"search": _ranking(json_lines("search", "catalogues/feedback", "sky tree", "-k", 8)), "accepted": accepted}


def _in_python(images: Sequence[str]) -> dict[str, Any]:
    """Ask a run and a catalogue in Python."""
    from visterm import Catalogue, Tagger

    annotated = Tagger.load("runs/wsabie").annotate(list(images), k=4).images
    found = Catalogue.load("catalogues/wsabie").search("sky tree", 6).hits
    ranking = _ranking([hit.as_dict() for hit in found])
    return {"annotate": _tagged([item.as_dict() for item in annotated]), "search": ranking}


def visterm(*arguments: object) -> str:
    """Run a command in this process, and return what it printed."""
    return run([str(argument) for argument in arguments])


def json_lines(*arguments: object) -> list[dict[str, Any]]:
    """Run a command with --json and return its objects."""
    command = arguments if "--json" in arguments else (*arguments, "--json")
    return [json.loads(line) for line in visterm(*command).splitlines()]


def _write_pairs(path: Path) -> None:
    """Write the tags of the library as pairs of image and tag, which the encoder ``ids`` learns from."""
    with open("demo/library/tags.csv", newline="", encoding="utf-8") as tags, path.open("w", encoding="utf-8") as out:
        print("image,tag", file=out)
        for row in csv.DictReader(tags):
            for tag in filter(None, row["tags"].split(";")):
                print(f"{row['file_name']},{tag}", file=out)


def _tagged(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rankings of tags."""
    return [
        {"image": Path(item["image"]).name}
        | {"ids": [tag["tag"] for tag in item["tags"]], "scores": [tag["score"] for tag in item["tags"]]}
        | {"confidences": [tag.get("confidence") for tag in item["tags"]]}
        for item in items
    ]


def _ranking(hits: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a ranking of images."""
    names, confidences = [Path(hit["image"]).name for hit in hits], [hit.get("confidence") for hit in hits]
    return {"ids": names, "scores": [hit["score"] for hit in hits], "confidences": confidences}


def _weights(folder: Path) -> dict[str, Any]:
    """Return the arrays of a run or features folder, a hash each, and what its JSON says but for times and settings."""
    arrays: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.endswith(".times.json"):  # the seconds of epochs and nothing else, in newer runs
            continue
        if path.suffix == ".safetensors":
            arrays |= {f"{name}: {key}": _array(array) for key, array in sorted(load_file(path).items())}
        elif path.suffix in (".json", ".jsonl") and path.is_file():
            lines = path.read_text(encoding="utf-8").replace(str(Path.cwd()), ".")
            values = [json.loads(line) for line in lines.splitlines()] if path.suffix == ".jsonl" else json.loads(lines)
            texts[name] = hashlib.sha256(json.dumps(_clean(values), sort_keys=True).encode()).hexdigest()
    return {"arrays": arrays, "sha256 of json": texts}


def _array(array: Any) -> dict[str, Any]:
    whole = np.ascontiguousarray(array)
    norm = float(f"{np.sqrt(np.square(whole.astype(np.float64)).sum()):.7g}") if whole.size else 0.0
    digest = hashlib.sha256(whole.tobytes()).hexdigest()
    return {"type": str(whole.dtype), "shape": list(whole.shape), "norm": norm, "sha256": digest}


def _clean(value: Any) -> Any:
    """Leave out what a clock measured, and settings."""
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items() if key not in MEASURED}
    return [_clean(item) for item in value] if isinstance(value, list) else value


def _differing(recorded: Any, found: Any, models: Sequence[str], exact: bool) -> Iterator[str]:
    """Compare the answers of each number of threads under each name that this check made."""
    one = f"threads {THREADS[0]}"
    for threads in (f"threads {n}" for n in THREADS):
        before, now = recorded[one] | recorded[threads], found[one] | found[threads]
        for name in now:
            yield from compare(before.get(name), now[name], f"{threads}, {name}", exact=exact)


def compare(before: Any, now: Any, where: str, *, exact: bool) -> Iterator[str]:
    """Yield a line for each difference of two values read from JSON."""
    if isinstance(before, dict) and isinstance(now, dict):
        if not exact and {"ids", "scores"} <= before.keys():
            yield from _compare_rankings(before, now, where)
            return
        for key in sorted(before.keys() | now.keys()):
            if not exact and ("sha256" in key or key in ("pictures", "table") or key.startswith("calibration")):
                continue
            if key not in before or key not in now:
                yield f"{where}, {key}: {'only recorded' if key in before else 'not recorded'}"
            else:
                yield from compare(before[key], now[key], f"{where}, {key}", exact=exact)
    elif isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            yield f"{where}: {len(before)} entries recorded, now {len(now)}"
        else:
            for i, (a, b) in enumerate(zip(before, now, strict=True)):
                yield from compare(a, b, f"{where}, {i}", exact=exact)
    elif not exact and isinstance(before, float) and isinstance(now, float):
        if abs(before - now) > TOLERANCE * max(1.0, abs(before)):
            yield f"{where}: {before} recorded, now {now}"
    elif not exact and isinstance(before, str) and FINGERPRINT.fullmatch(before):
        return
    elif before != now:
        yield f"{where}: {before} recorded, now {now}"


def _compare_rankings(before: dict[str, Any], now: dict[str, Any], where: str) -> Iterator[str]:
    if len(before["ids"]) != len(now["ids"]):
        yield f"{where}: {len(before['ids'])} answers recorded, now {len(now['ids'])}"
        return
    others = len(set(before["ids"]) - set(now["ids"]))
    if others > OTHER_IDS * len(before["ids"]):
        yield f"{where}: {others} other answers: {before['ids']} recorded, now {now['ids']}"
    scale = TOLERANCE * max((abs(score) for score in before["scores"]), default=0.0)
    for a, b in zip(before["scores"], now["scores"], strict=True):
        if abs(a - b) > scale:
            yield f"{where}: a score of {a} recorded, now {b}"


def _compact(value: Any, indent: str = "", depth: int = 5) -> str:
    """Return JSON of a line an answer or array, so that differences of two recordings can be read."""
    if depth == 0 or not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = indent + " "
    lines = (f"{inner}{json.dumps(key, ensure_ascii=False)}: {_compact(value[key], inner, depth - 1)}" for key in value)
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


if __name__ == "__main__":
    main()
