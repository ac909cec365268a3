"""Visterms: words looked for in the nearest groups only, and folders of large JPEGs.

* **groups**: the assignment of blocks to words, among those of the four nearest groups (``grouped_visterms``) against
  all (goals: 5 times as fast; less than .003 lost of the MAP over images of ridge, on four times 500 of 2,000 training
  photos of Corel5k). Left out where that is not there.
* **large**: drawn JPEGs of 12, 24 and 48 megapixels, from files to rows: the share of Pillow's own decoding at the same
  draft (goal: .9), and two threads against one. Seconds of the processor, but for the threads.

python large_photos.py [--json FILE]
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from encode import interleaved
from harness.runs import machine, options, parse, ratios, say, spread, write
from PIL import Image, ImageDraw
from visterms import PHOTOS, photos

from visterm.core.threads import one_blas_thread
from visterm.core.vocabulary import Vocabulary
from visterm.data.images import read_image
from visterm.data.pillow import reduced_size
from visterm.encoders.blocks import pixel_codes
from visterm.encoders.visterms import Visterms
from visterm.models.linear.ridge import Ridge
from visterm_research.encoders.grouped_visterms import GroupedVisterms

GROUPS = 4
SIZES = ((4000, 3000), (6000, 4000), (8000, 6000))


def in_groups(flat):
    """Return a fitted encoder of visterms as one that looks for words in groups."""
    some = GroupedVisterms(**flat.get_params(deep=False), nearest_groups=GROUPS)
    for name, value in vars(flat).items():
        if name.endswith("_"):
            setattr(some, name, value)
    return some


def groups(flat, paths, arrays, runs):
    """Time the assignment of blocks to words, of all and of the nearest groups, and compare ridge's MAP."""
    flat.set_params(n_jobs=1)
    some = in_groups(flat)
    with one_blas_thread():
        codes = [pixel_codes(pixels, flat._table()) for pixels in arrays[:256]]
        points = [[flat._cutter().points(code, scale) for code in codes] for scale in range(len(flat.scales))]

        def assigning(encoder):
            finders = encoder._finder_and_pyramid()[0]._find_nearest
            return lambda: [find(p) for find, of_scale in zip(finders, points, strict=True) for p in of_scale]

        seconds = interleaved({"all": assigning(flat), "groups": assigning(some)}, runs, time.process_time)
        rows = {name: encoder.transform(arrays) for name, encoder in (("all", flat), ("groups", some))}
    found = {
        "ms_an_image": {name: spread([1000 * s / len(codes) for s in each]) for name, each in seconds.items()},
        "ratio": ratios(seconds["all"], seconds["groups"]),
        "goal": 5,
    }
    labels = dict(line.split("\t")[::2] for line in (PHOTOS / "labels.tsv").read_text().splitlines()[1:])
    vocabulary = Vocabulary.from_lists([labels[path.name].split(",") for path in paths])
    Y = sp.csr_array(vocabulary.encode([labels[path.name].split(",") for path in paths]))
    losses = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(paths))
        train, held = np.split(order, [3 * len(paths) // 4])
        maps = {name: Ridge().fit(X[train], Y[train]).score(X[held], Y[held]) for name, X in rows.items()}
        losses.append(maps["all"] - maps["groups"])
        say("groups", "MAP", json.dumps(maps))
    return found | {"MAP lost": spread(losses), "most MAP lost": 0.003, "images": len(paths)}


def large(encoder, sizes, folder, runs):
    """Time the decoding of large photos by Pillow alone, and all that is done from their files to rows."""
    rng = np.random.default_rng(0)
    some, result = in_groups(encoder), {}
    for width, height in sizes:
        paths = []
        for i in range(4):
            coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3)).astype(np.uint8))
            photo = coarse.resize((width, height), Image.Resampling.BICUBIC)
            draw = ImageDraw.Draw(photo)
            for x, y, side, *colour in rng.integers(0, (width, height, width // 10, 256, 256, 256), (300, 6)).tolist():
                draw.ellipse((x, y, x + side, y + side), fill=tuple(colour))
            noise = rng.normal(0, 8, (height // 8, width, 3)).astype(np.int16)
            pixels = np.asarray(photo).reshape(8, height // 8, width, 3)
            paths.append(folder / f"{width}_{i}.jpeg")
            noisy = np.concatenate([np.clip(part + noise, 0, 255).astype(np.uint8) for part in pixels])
            Image.fromarray(noisy).save(paths[-1], quality=90)

        def decode(paths=paths):
            for path in paths:
                with Image.open(path) as photo:
                    photo.draft(None, reduced_size(photo.size, encoder._max_side))
                    photo.load()

        def encode(encoder, n_jobs, paths=paths):
            return lambda: encoder.set_params(n_jobs=n_jobs).encode(paths)

        calls = {"decode": decode, "read": lambda paths=paths: [read_image(p, max_side=256) for p in paths]}
        calls |= {"encode": encode(encoder, 1), "encode, groups": encode(some, 1)}
        seconds = interleaved(calls, runs, time.process_time)
        walls = interleaved({"1": encode(encoder, 1), "2": encode(encoder, 2)}, runs)
        name = f"{width * height / 1e6:.0f} megapixels, {paths[0].stat().st_size / 1e6:.1f} MB"
        result[name] = {
            "ms_an_image": {side: spread([1000 * s / len(paths) for s in each]) for side, each in seconds.items()},
            "share of decoding": {side: ratios(seconds["decode"], seconds[side]) for side in list(seconds)[1:]},
            "two threads": ratios(walls["1"], walls["2"]),
            "goal": 0.9,
        }
        say("large", name, {side: round(each["median"], 3) for side, each in result[name]["share of decoding"].items()})
        say("large", name, "two threads", json.dumps(result[name]["two threads"]))
    return result


def main():
    parser = options(__doc__)
    chosen = parse(parser)
    n, sizes = (40, ((800, 640),)) if chosen.quick else (2000, SIZES)
    result = {"machine": machine()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "drawn").mkdir()
        paths, result["photos"] = photos(n, folder / "drawn")
        arrays = [read_image(path) for path in paths]
        encoder = Visterms(n_jobs=1).fit(arrays)
        result["large"] = large(encoder, sizes, folder, chosen.runs)
        write(result, chosen.json)
        if result["photos"] == "corel5k":
            result["groups"] = groups(encoder, paths, arrays, chosen.runs)
            say("groups", json.dumps(result["groups"]["ratio"]), json.dumps(result["groups"]["MAP lost"]))
    write(result, chosen.json)


if __name__ == "__main__":
    main()
