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
READS = "numpy matrix-vector product"


def sides(U, V, faiss, n_threads):
    """Return, for each side, a call that ranks the tags of U."""

    def numpy_product():
        scores = U @ V.T
        ids = np.argpartition(scores, scores.shape[1] - K, axis=1)[:, -K:]
        return np.take_along_axis(ids, np.lexsort((ids, -np.take_along_axis(scores, ids, axis=1)), axis=1), axis=1)

    calls = {"visterm": lambda: top_k_products(U, V, K, n_threads).ids, "numpy product + argpartition": numpy_product}
    if len(U) == 1:
        calls[READS] = lambda: V @ U[0]
    if faiss is not None:
        index = faiss.IndexFlatIP(DIM)
        index.add(V)
        calls["faiss IndexFlatIP"] = lambda: index.search(U, K)[1]
    return calls


def peak_growth(call):
    """Return the bytes by which a call raises the peak of resident memory."""
    status = Path("/proc/self/status")
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak to the present
    before = status.read_text().partition("VmRSS:")[2].split()[0]
    call()
    return 1024 * max(0, int(status.read_text().partition("VmHWM:")[2].split()[0]) - int(before))


def measure(n_images, V, options, faiss, rng):
    """Compare all sides on so many images."""
    calls = sides(rng.standard_normal((n_images, DIM), np.float32), V, faiss, options.threads)
    best = calls["visterm"]()
    same = {name: bool(np.array_equal(call(), best)) for name, call in calls.items() if name != READS}
    seconds = in_turns(calls, options.runs, 10 if n_images == 1 else 1)
    memory = {name: peak_growth(call) for name, call in calls.items()}
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    ratios = {name: median / medians["visterm"] for name, median in medians.items()}
    runs.say(f"{n_images:,} images, {N_TAGS:,} tags, width {DIM}, the best {K}; medians of {options.runs} turns")
    for name, median in medians.items():
        used = f"{memory[name] / 2**20:.1f} MiB{'' if same.get(name, True) else '   OTHER TAGS'}"
        runs.say(f"  {name:30s}{1e3 * median:10.2f} ms  {ratios[name]:6.2f} × ours   {used}")
    return {"images": n_images, "seconds": seconds, "medians": medians, "ratios_to_ours": ratios,
            "peak_bytes": memory, "same_tags": same}  # fmt: skip


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
        for n_images, name in ((1, "one image"), (1000, "1,000 images")):
            result[name] = measure(n_images, V, options, faiss, rng)
    runs.write(result, options.json)


if __name__ == "__main__":
    main()
