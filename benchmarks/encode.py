"""Encoding pixels in memory: against well-known libraries, and against onnxruntime. folder.py measures files.

Two questions, each answered by a ratio of runs that take turns:

* **features**: LBP, colours and assignment of blocks to words, on pixels in memory and one core, against scikit-image's
  `local_binary_pattern` and scikit-learn's `MiniBatchKMeans.predict` (goal: 10 times as fast), and each step alone.
  Seconds of the processor. With the default's 10,000 words both sides spend their time in the same matrix product; with
  1,000 the rest counts.
* **table**: a network by name, through a row of a user's table, against onnxruntime alone on the same photos in memory,
  in batches of 32 that are prepared and run on as many threads (goal: 0.95 of its rate). One view a photo.

python benchmarks/encode.py [--only features table] [--network FILE] [--output NAME] [--json FILE]
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from harness.libraries import Libraries, parts, photos
from harness.runs import machine, options, parse, ratios, say, spread, write

from visterm.core.threads import one_blas_thread
from visterm.data.images import read_image
from visterm.encoders.visterms import Visterms

MOBILENET = Path(__file__).resolve().parents[2] / "shared/models/mobilenet_v2.onnx"
BATCH = 32
CODEBOOKS = (10_000, 1_000)


def interleaved(calls, runs, clock=time.perf_counter):
    """Time calls in turn, after one of each that does not count."""
    seconds = {name: [] for name in calls}
    for run in range(runs + 1):
        for name, call in calls.items():
            start = clock()
            call()
            if run:
                seconds[name].append(clock() - start)
    return seconds


def features(codebook, learned_from, paths, runs):
    """Time the features of pixels in memory on one core."""
    arrays = [read_image(path) for path in paths]
    with one_blas_thread():
        encoder = Visterms(codebook=codebook, n_jobs=1).fit(learned_from)
        libraries = Libraries(encoder)
        sides = {"visterm": lambda: encoder.encode(arrays), "libraries": lambda: libraries.encode(arrays)}
        seconds = interleaved(sides, runs, time.process_time)
        steps = {
            name: interleaved({"visterm": ours, "libraries": theirs}, runs, time.process_time)
            for name, (ours, theirs) in parts(encoder, libraries, arrays).items()
        }
    return {
        "images": len(arrays),
        "words": len(encoder.codebook_),
        "ms_an_image": {name: spread([1000 * s / len(arrays) for s in each]) for name, each in seconds.items()},
        "ratio": ratios(seconds["libraries"], seconds["visterm"]),
        "goal": 10,
        "steps": {name: ratios(each["libraries"], each["visterm"]) for name, each in steps.items()},
    }


def table(network, output, paths, runs, folder):
    """Time a network by name against onnxruntime alone, on one thread and on two."""
    import onnxruntime as ort

    from visterm.encoders.named import make_encoder
    from visterm.encoders.preparation import views_of

    row = f'[measured]\ngood_for = "-"\nlicence = "-"\nimage = {{ file = "{network}" }}\n'
    row += f'encoder = {{ views = "whole" }}\nsettings = {{ output = {json.dumps(output)} }}\n'
    (folder / "networks.toml").write_text(row)
    os.environ["VISTERM_NETWORKS"] = str(folder / "networks.toml")
    encoder = make_encoder("measured", {"n_jobs": 1}, {}).fit(paths[:8])
    opened = encoder._open()
    arrays = [read_image(path, max_side=encoder._max_side) for path in paths]

    def prepared(photo):
        (batch,) = opened.feed(next(iter(views_of(photo, opened.preparation, "whole")))[None]).values()
        return batch[0]

    found = {"network": Path(network).name, "images": len(arrays), "goal": 0.95}
    for threads in (1, 2):
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = ort.InferenceSession(str(network), options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name

        def ours(threads=threads):
            encoder._kept_outputs = None  # else they would not be shown to the network again
            encoder.set_params(n_jobs=threads).encode(arrays)

        def alone(session=session, name=name, threads=threads):
            with ThreadPoolExecutor(threads) as pool:
                for i in range(0, len(arrays), BATCH):
                    session.run([output], {name: np.stack(list(pool.map(prepared, arrays[i : i + BATCH])))})

        sides = {"visterm": ours, "onnxruntime": alone}
        both = interleaved(sides, runs, lambda: np.array([time.perf_counter(), time.process_time()]))
        seconds = {side: [float(each[0]) for each in times] for side, times in both.items()}
        processor = {side: [float(each[1]) for each in times] for side, times in both.items()}
        found[f"threads {threads}"] = {
            "images_a_second": {side: spread([len(arrays) / s for s in each]) for side, each in seconds.items()},
            "ratio": ratios(seconds["onnxruntime"], seconds["visterm"]),
            "ratio_of_processor_seconds": ratios(processor["onnxruntime"], processor["visterm"]),
        }
        say("table", threads, "threads", json.dumps(found[f"threads {threads}"]))
    return found


def main():
    parser = options(__doc__)
    parser.add_argument("--only", nargs="+", choices=("features", "table"), default=("features", "table"))
    parser.add_argument("--network", default=MOBILENET, help="of the question table: an ONNX file of float pictures")
    parser.add_argument("--output", default="features", help="the output of that network to read")
    chosen = parse(parser)
    learned, some = (40, 8) if chosen.quick else (2000, 256)
    result = {"machine": machine(), "quick": chosen.quick}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (drawn := folder / "drawn").mkdir()
        paths, result["photos"] = photos(learned, drawn)
        result["fit_images"] = len(paths)
        if "features" in chosen.only:
            result["features"] = {n: features(n, paths, paths[:some], chosen.runs) for n in CODEBOOKS}
            say("features, by words:", json.dumps(result["features"]))
        if "table" in chosen.only:
            result["table"] = table(chosen.network, chosen.output, paths[: some // 8], chosen.runs, folder)
    write(result, chosen.json)


if __name__ == "__main__":
    main()
