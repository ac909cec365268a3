"""Fitting and annotating features on disk that are larger than the memory they may take: its peak, and the speed.

Features and tags are drawn onto disk, `--gigabytes` of them. Child processes fit, annotate and evaluate them with
`--memory`, and their anonymous memory is looked at fifty times a second (RssAnon of /proc; file maps and caches do not
count). Then the two ways of fitting and of annotating (without writing) are timed on a size that fits, one after the
other: images a second of an epoch, or of all, streamed over in memory. The goal: 4 GB of features, at most 1 GB of
memory, and at least 0.8 of the speed.

    python benchmarks/larger_than_memory.py --gigabytes 4 --memory 1G --json larger_than_memory.json
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness.runs import machine, options, parse, ratios, say, spread, write
from harness.watched import watched

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from visterm import Tagger
from visterm.data.feature_shards import Shard
from visterm.encoders.named import make_encoder
from visterm.evaluation.streamed import evaluate_streamed
from visterm.features.streaming.memory import Plan, read_size
from visterm.features.streaming.shards import Shards
from visterm.learning.fit_request import FitRequest
from visterm.learning.streamed_fit import fit_streamed
from visterm.tagging.annotating import ChunkTagger, TagsWanted
from written_features import write_features

WIDTH, N_TAGS, TAGS_AN_IMAGE, SHARD = 1024, 1000, 5, 512
EVALUATED = ("map", "tag_r@5", "word_map")


def draw(folder: Path, n_images: int) -> None:
    """Write features of noise and of what their tags light up, and the tags as JSON lines."""
    rng = np.random.default_rng(0)
    signs = rng.standard_normal((N_TAGS, WIDTH), np.float32)
    encoder = make_encoder("visterms", {"codebook": WIDTH}, {"random_state": 0, "n_jobs": 1})
    encoder.fit(list(rng.integers(0, 256, (256, 256, 256, 3), np.uint8)))  # of fewer it learns fewer words
    with (folder / "tags.jsonl").open("w", encoding="utf-8") as lines:

        def shards() -> Iterator[Shard]:
            for start in range(0, n_images, SHARD):
                n = min(SHARD, n_images - start)
                tags = np.minimum(rng.geometric(0.01, (n, TAGS_AN_IMAGE)), N_TAGS) - 1
                rows = rng.standard_normal((n, WIDTH), np.float32) + signs[tags].sum(axis=1)
                rows /= np.linalg.norm(rows, axis=1, keepdims=True)
                names = [f"{number:09}.jpg" for number in range(start, start + n)]
                for name, own in zip(names, tags.tolist(), strict=True):
                    lines.write(json.dumps({"file_name": name, "tags": [f"tag {tag}" for tag in own]}) + "\n")
                yield Shard(names, [hashlib.sha256(name.encode()).hexdigest() for name in names], rows)

        write_features(folder / "features", shards(), encoder)


def be_child(way: str, folder: Path, memory: int, epochs: int, threads: int, valid: float) -> None:
    """Fit or annotate in this process, and print the figures as JSON."""
    features, tags, run = folder / "features", folder / "tags.jsonl", folder / "run"
    if way.startswith("annotate"):
        tagger = Tagger.load(run, n_jobs=threads)
        chunk = None if way == "annotate" else (shards := Shards(features)).chunk(range(len(shards)))
        start = time.perf_counter()
        each = tagger.annotate_each(features, 5) if chunk is None else ChunkTagger(tagger, TagsWanted(5)).of(chunk)
        n = sum(1 for _ in each)
        say(json.dumps({"images": n, "images_per_second": n / (time.perf_counter() - start)}))
        return
    if way == "evaluate":
        tagger, start = Tagger.load(run, n_jobs=threads), time.perf_counter()
        found = evaluate_streamed(tagger, features, tags, EVALUATED, work=folder)
        took = time.perf_counter() - start
        means = {name: float(np.nanmean(values)) for name, values in found.values.items()}
        say(json.dumps({"images": found.n_images, "images_per_second": found.n_images / took, **means}))
        return
    tagger = Tagger(model="wsabie", model_params={"epochs": epochs}, n_jobs=threads)
    start = time.perf_counter()
    if way == "streamed":
        plan = Plan(memory + 1, memory)
        request = FitRequest(images=features, tags=tags, work=folder / "work", valid=valid, calibrate=valid > 0)
        tagger.parts, _ = fit_streamed(tagger.parts, request, plan, any_encoder=True)
    else:
        tagger.fit(features, tags, valid=valid, calibrate=False)
    took = time.perf_counter() - start
    if valid:
        tagger.save(run, overwrite=True)
    history, n = tagger.model.history_, tagger.facts["images"]
    each = [entry["seconds"] for entry in history]
    per_second = n / min(each[1:] or each)
    say(
        json.dumps(
            {"images": n, "epochs": each, "images_per_second": per_second, "all": took, "map": history[-1]["map"]}
        )
    )


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--gigabytes", type=float, default=0.25, help="of features, for the peaks")
    parser.add_argument("--fitting", type=float, default=0.25, help="gigabytes of features to compare speeds on")
    parser.add_argument("--memory", default="1G", help="as of visterm fit")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--where", type=Path, help="a folder for the features, on a real disk")
    parser.add_argument("--child", nargs=6, help="(this program calls itself)")
    chosen = parse(parser)
    if chosen.child:
        way, folder, *numbers, valid = chosen.child
        be_child(way, Path(folder), *map(int, numbers), float(valid))
        return
    if chosen.quick:
        chosen.gigabytes = chosen.fitting = 0.01
    result: dict[str, Any] = {"machine": machine(), "gigabytes": chosen.gigabytes, "memory": chosen.memory}
    memory = read_size(chosen.memory)
    shared = [str(memory), str(chosen.epochs), str(chosen.threads)]
    with tempfile.TemporaryDirectory(dir=chosen.where) as temporary:
        (large := Path(temporary, "large")).mkdir()
        draw(large, int(chosen.gigabytes * 2**30) // (4 * WIDTH))
        for way in ("streamed", "annotate", "evaluate"):
            found = result[way] = watched(__file__, [way, str(large), *shared, "0.1"])
            peak = f"at most {found['peak_anonymous'] / 2**20:.0f} MB anonymous"
            say(f"{way}: {found['images']:,} images, {found['images_per_second']:,.0f} a second, {peak}")
        small = large
        if chosen.fitting != chosen.gigabytes:
            (small := Path(temporary, "small")).mkdir()
            draw(small, int(chosen.fitting * 2**30) // (4 * WIDTH))
        speeds: dict[str, list[float]] = {"streamed": [], "memory": [], "annotate": [], "annotate in memory": []}
        watched(__file__, ["streamed", str(small), *shared, "0.1"])  # leaves the run that annotates
        for _ in range(chosen.runs):
            for way, values in speeds.items():
                values.append(watched(__file__, [way, str(small), *shared, "0"])["images_per_second"])
    result["speed"] = {way: spread(values) for way, values in speeds.items()}
    result["streamed / memory"] = ratios(speeds["streamed"], speeds["memory"])
    result["annotate, streamed / memory"] = ratios(speeds["annotate"], speeds["annotate in memory"])
    for way, found in result["speed"].items():
        say(f"{way}: {found['median']:,.0f} images a second (of an epoch), {chosen.fitting:g} GB of features")
    write(result, chosen.json)


if __name__ == "__main__":
    main()
