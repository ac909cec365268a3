"""Encoding photos: against well-known libraries, decoding beside encoding, memory and threads.

Five questions, each answered by a ratio of runs that take turns:

* **features**: LBP, colours and assignment of blocks to words, on pixels in memory and one core, against scikit-image's
  `local_binary_pattern` and scikit-learn's `MiniBatchKMeans.predict` (goal: 10 times as fast), and each step alone.
  Seconds of the processor. With the default's 10,000 words both sides spend their time in the same matrix product; with
  1,000 the rest counts.
* **together**: decoding and encoding at the same time against the slower of the two alone (goal: 0.85 of it). Alone
  each has one thread and together they have two; "same threads" gives all three two. Photos as they are, and enlarged
  ones of 1,536 pixels, of which JPEG decodes a draft.
* **memory**: the peak of fresh processes that annotate and encode 500 and 5,000 photos (goal: the same).
* **threads**: encoding 5,000 photos on two threads against one (goal: 1.7 times as fast).
* **table**: a network by name, through a row of a user's table, against onnxruntime alone on the same photos in memory,
  in batches of 32 that are prepared and run on as many threads (goal: 0.95 of its rate), and against runs of batches
  that are ready. One view a photo.

python benchmarks/encode.py [--only features together memory threads table] [--encoder visterms] [--network FILE]
    [--output NAME] [--json FILE]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from harness.libraries import Libraries, parts, photos
from harness.runs import machine, options, parse, ratios, say, spread, write
from PIL import Image

from visterm.core.threads import one_blas_thread
from visterm.data.images import decode_images, read_image
from visterm.encoders.visterms import Visterms
from visterm.tagging.tagger import Tagger

QUESTIONS = ("features", "together", "memory", "threads", "table")
MOBILENET = Path(__file__).resolve().parents[2] / "shared/models/mobilenet_v2.onnx"
BATCH = 32
CODEBOOKS = (10_000, 1_000)
LARGE = 1536
"""Long side of the enlarged photos, in pixels."""

PEAK = """
import sys
from pathlib import Path
from visterm.cli import main
sys.argv = ["visterm", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    status = Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    print(end.code, peak.split()[1], file=sys.stderr)
"""
"""Runs a command, then says how it ended and the most memory that it held, in KiB."""


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
        seconds = interleaved(
            {"visterm": lambda: encoder.encode(arrays), "libraries": lambda: libraries.encode(arrays)},
            runs,
            time.process_time,
        )
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


def together(encoder, paths, runs):
    """Time decoding, encoding, and both at the same time."""
    max_side = encoder._max_side
    arrays = [item.pixels for item in decode_images(paths, max_side=max_side, n_jobs=2)]

    def decoding(n_jobs):
        return lambda: sum(1 for _ in decode_images(paths, max_side=max_side, n_jobs=n_jobs))

    def encoding(images, n_jobs):
        return lambda: encoder.set_params(n_jobs=n_jobs).encode(images)

    seconds = interleaved(
        {
            "decode 1": decoding(1),
            "encode 1": encoding(arrays, 1),
            "decode 2": decoding(2),
            "encode 2": encoding(arrays, 2),
            "together 2": encoding(paths, 2),
        },
        runs,
    )

    def of_the_slower(threads):
        alone = zip(seconds[f"decode {threads}"], seconds[f"encode {threads}"], strict=True)
        return ratios([max(pair) for pair in alone], seconds["together 2"])

    return {
        "images": len(paths),
        "ms_an_image": {name: spread([1000 * s / len(paths) for s in each]) for name, each in seconds.items()},
        "of_the_slower_alone": of_the_slower(1),
        "of_the_slower_alone_with_the_same_threads": of_the_slower(2),
        "goal": 0.85,
    }


def memory(run, paths, sizes, runs, folder):
    """Measure the peak of fresh processes that go through few and many photos."""
    folders = {}
    for n in sizes:
        folders[n] = folder / f"{n}_photos"
        folders[n].mkdir()
        for i in range(n):
            (folders[n] / f"{i:06}.jpeg").symlink_to(paths[i % len(paths)])

    def annotate(n, _):
        return ["annotate", run, folders[n], "--json"]

    def encode(n, number):
        return ["encode", folders[n], "--encoder", run, "-o", folder / f"features_{n}_{number}"]

    found = {}
    for command in (annotate, encode):
        peaks = {n: [] for n in sizes}
        for number in range(runs):
            for n in sizes:
                peaks[n].append(_peak(command(n, number)))
        found[command.__name__] = {
            "MiB": {str(n): spread(each) for n, each in peaks.items()},
            "ratio": ratios(peaks[sizes[1]], peaks[sizes[0]]),
            "goal": 1.0,
        }
    return found


def _peak(arguments):
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    code, peak = done.stderr.split()[-2:]
    if code != "0":
        raise RuntimeError(f"visterm {' '.join(map(str, arguments))} ended with {code}: {done.stderr}")
    return int(peak) / 1024


def threads(encoder, paths, runs):
    """Time encoding from files on one thread and on two."""
    seconds = interleaved({str(n): lambda n=n: encoder.set_params(n_jobs=n).encode(paths) for n in (1, 2)}, runs)
    return {
        "images": len(paths),
        "images_a_second": {name: spread([len(paths) / s for s in each]) for name, each in seconds.items()},
        "ratio": ratios(seconds["1"], seconds["2"]),
        "goal": 1.7,
    }


def table(network, output, paths, runs, folder):
    """Time a network by name against onnxruntime alone, on one thread and on two."""
    import onnxruntime as ort

    from visterm.encoders.named import make_encoder
    from visterm.encoders.preparation import views_of

    (folder / "networks.toml").write_text(
        f'[measured]\ngood_for = "-"\nlicence = "-"\nimage = {{ file = "{network}" }}\n'
        'encoder = { views = "whole" }\n'
        f"settings = {{ output = {json.dumps(output)} }}\n"
    )
    os.environ["VISTERM_NETWORKS"] = str(folder / "networks.toml")
    encoder = make_encoder("measured", {"n_jobs": 1}, {}).fit(paths[:8])
    opened = encoder._open()
    arrays = [read_image(path, max_side=encoder._max_side) for path in paths]

    def prepared(photo):
        (batch,) = opened.feed(next(iter(views_of(photo, opened.preparation, "whole")))[None]).values()
        return batch[0]

    ready = [np.stack([prepared(a) for a in arrays[i : i + BATCH]]) for i in range(0, len(arrays), BATCH)]
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

        def of_ready(session=session, name=name):
            for batch in ready:
                session.run([output], {name: batch})

        sides = {"visterm": ours, "onnxruntime": alone, "onnxruntime, ready": of_ready}
        both = interleaved(sides, runs, lambda: np.array([time.perf_counter(), time.process_time()]))
        seconds = {side: [float(each[0]) for each in times] for side, times in both.items()}
        processor = {side: [float(each[1]) for each in times] for side, times in both.items()}
        found[f"threads {threads}"] = {
            "images_a_second": {side: spread([len(arrays) / s for s in each]) for side, each in seconds.items()},
            "ratio": ratios(seconds["onnxruntime"], seconds["visterm"]),
            "ratio_of_processor_seconds": ratios(processor["onnxruntime"], processor["visterm"]),
            "ratio_to_ready_of_processor_seconds": ratios(processor["onnxruntime, ready"], processor["visterm"]),
        }
        for name, each in found[f"threads {threads}"].items():
            say("table", threads, "threads", name, json.dumps(each))
    return found


def enlarged(paths, folder):
    """Write larger copies of photos."""
    folder.mkdir()
    written = []
    for i, path in enumerate(paths):
        photo = Image.open(path)
        scale = LARGE / max(photo.size)
        written.append(folder / f"{i}.jpeg")
        photo = photo.resize([round(side * scale) for side in photo.size], Image.Resampling.BICUBIC)
        photo.save(written[-1], quality=90)
    return written


def main():
    parser = options(__doc__)
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=QUESTIONS, metavar="QUESTION")
    parser.add_argument("--encoder", default="visterms", help="of all questions but the first, as in `visterm fit`")
    parser.add_argument("--network", default=MOBILENET, help="of the question table: an ONNX file of float pictures")
    parser.add_argument("--output", default="features", help="the output of that network to read")
    chosen = parse(parser)
    learned, some, few, many = (40, 8, 20, 60) if chosen.quick else (2000, 256, 500, 5000)
    result = {"machine": machine(), "encoder": chosen.encoder, "quick": chosen.quick}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        drawn = folder / "drawn"
        drawn.mkdir()
        paths, result["photos"] = photos(learned, drawn)
        result["fit_images"] = len(paths)
        all_many = [paths[i % len(paths)] for i in range(many)]
        if "features" in chosen.only:
            result["features"] = {n: features(n, paths, paths[:some], chosen.runs) for n in CODEBOOKS}
            for codebook, found in result["features"].items():
                say("features", codebook, "words", json.dumps(found["ratio"]))
                for name, each in found["steps"].items():
                    say("features", codebook, "words", name, json.dumps(each))
        tagger = Tagger(encoder=chosen.encoder, model="ridge", n_jobs=2)
        if "table" in chosen.only:
            result["table"] = table(chosen.network, chosen.output, paths[: some // 8], chosen.runs, folder)
        if set(chosen.only) - {"features", "table"}:
            tagger.fit(paths[:few], tags=[[f"tag {i % 7}"] for i in range(few)])
        if "together" in chosen.only:
            sets = {"as they are": paths[:few], f"of {LARGE} pixels": enlarged(paths[:some], folder / "large")}
            result["together"] = {name: together(tagger.encoder, each, chosen.runs) for name, each in sets.items()}
            for name, each in result["together"].items():
                say("together", name, json.dumps(each["of_the_slower_alone"]))
        if "memory" in chosen.only:
            tagger.save(folder / "run")
            result["memory"] = memory(folder / "run", paths, (few, many), chosen.runs, folder)
            for name, each in result["memory"].items():
                say("memory", name, json.dumps(each["ratio"]))
        if "threads" in chosen.only:
            result["threads"] = threads(tagger.encoder, all_many, chosen.runs)
            say("threads", json.dumps(result["threads"]["ratio"]))
    write(result, chosen.json)


if __name__ == "__main__":
    main()
