"""The ten best of 109,444 tags for one image and for a thousand: ours, faiss and NumPy, interleaved, as ratios.

One image is also compared with reading the matrix once (NumPy's matrix-vector product). Memory is the growth of the
process's peak during a call (Linux). Where other programs keep a core busy, compare with --threads 1.

python benchmarks/top_tags.py [--runs 7] [--threads 2] [--json FILE]
"""

from __future__ import annotations

import statistics
from importlib import import_module
from pathlib import Path

import numpy as np
from harness import runs
from harness.turns import in_turns
from threadpoolctl import threadpool_limits

from visterm.core.products import top_k_products

N_TAGS, DIM, K = 109_444, 100, 10  # As many annotations as WSABIE's Web-data has (Table 1)


def sides(U, V, faiss, n_threads):
    """Return, for each side, a call that ranks the tags of U."""

    def numpy_product():
        scores = U @ V.T
        ids = np.argpartition(scores, scores.shape[1] - K, axis=1)[:, -K:]
        best = np.take_along_axis(scores, ids, axis=1)
        order = np.lexsort((ids, -best), axis=1)
        return np.take_along_axis(ids, order, axis=1)

    calls = {"visterm": lambda: top_k_products(U, V, K, n_threads).ids, "numpy product + argpartition": numpy_product}
    if len(U) == 1:
        calls["numpy matrix-vector product"] = lambda: V @ U[0]
    if faiss is not None:
        index = faiss.IndexFlatIP(DIM)
        index.add(V)
        calls["faiss IndexFlatIP"] = lambda: index.search(U, K)[1]
    return calls


def peak_growth(call):
    """Return the bytes by which a call raises the peak of resident memory; None where Linux does not tell."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    try:
        reset.write_text("5")
    except OSError:
        return None

    def kib(field):
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(field))

    before = kib("VmRSS:")
    call()
    return 1024 * max(0, kib("VmHWM:") - before)


def agrees(calls):
    """Return whether each side that ranks found the tags that ours found."""
    expected = calls["visterm"]()
    ranking = {name: call for name, call in calls.items() if name != "numpy matrix-vector product"}
    return {name: bool(np.array_equal(call(), expected)) for name, call in ranking.items()}


def measure(n_images, V, options, faiss, rng):
    """Compare all sides on so many images."""
    calls = sides(rng.standard_normal((n_images, DIM), np.float32), V, faiss, options.threads)
    same = agrees(calls)
    seconds = in_turns(calls, options.runs, 10 if n_images == 1 else 1)
    memory = {name: peak_growth(call) for name, call in calls.items()}
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    what = f"{n_images} image{'s' * (n_images > 1)}, {N_TAGS:,} tags, width {DIM}, the best {K}"
    print(f"\n{what}; medians of {options.runs} turns with {options.threads} threads")
    for name, median in medians.items():
        used = "not measured" if memory[name] is None else f"{memory[name] / 2**20:.1f} MiB"
        print(
            f"  {name:30s}{1e3 * median:10.2f} ms (least {1e3 * min(seconds[name]):.2f})"
            f"  {median / medians['visterm']:6.2f} × ours   {used}{'' if same.get(name, True) else '   OTHER TAGS'}"
        )
    return {
        "images": n_images,
        "seconds": seconds,
        "medians": medians,
        "ratios_to_ours": {name: median / medians["visterm"] for name, median in medians.items()},
        "peak_bytes": memory,
        "same_tags": same,
    }


def main():
    parser = runs.options(__doc__)
    parser.add_argument("--threads", type=int, default=2, help="of every side")
    options = runs.parse(parser)
    try:
        faiss = import_module("faiss")
        faiss.omp_set_num_threads(options.threads)
    except ImportError:
        faiss = None
    rng = np.random.default_rng(0)
    V = rng.standard_normal((N_TAGS, DIM), np.float32)
    result = {"machine": runs.machine(), "threads": options.threads, "faiss": faiss.__version__ if faiss else "missing"}
    with threadpool_limits(options.threads):
        result["one image"] = measure(1, V, options, faiss, rng)
        result["1,000 images"] = measure(1000, V, options, faiss, rng)
    runs.write(result, options.json)


if __name__ == "__main__":
    main()
