"""From a folder of photos to the first search, and a folder that is known already: each beside its floor.

* **first**: a fresh process with an empty cache does what `visterm serve PHOTOS` does: it makes a catalogue, encodes
  photos by the built-in network, learns their tags and searches. In turns with it: the encoder alone, and the floor,
  libjpeg's decoding at the scale that the encoder reads (Pillow's draft) and bare onnxruntime, as many threads. Photos
  are those of Corel5k, else drawn; as they are, and enlarged with noise to 4000 x 3000. Goals: the encoder at most 1.25
  of the floor, all but the start (imports, and the network's file, which is made once) at most 1.15 of the encoder.
* **known**: `visterm index` again, with 100,000 known photos and 100 new ones, beside os.walk and stat of the same
  files, and `visterm watch` with one more. Goals: under 5 s, and the peak of memory beside that of a tenth of them.

python benchmarks/folder.py [--only first known] [--photos 1000] [--known 100000] [--json FILE]
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
from harness.libraries import PHOTOS
from harness.runs import machine, options, parse, ratios, say, spread, write
from harness.watched import watched
from PIL import Image

from visterm import Catalogue, Tagger
from visterm.connectors.watch import FolderWatcher, Stop, folders_to_watch, tags_as_indexed
from visterm.core.persist import file_hash
from visterm.core.threads import resolve_jobs
from visterm.data.pillow import reduced_size
from visterm.encoders.named import default_encoder, make_encoder
from visterm.learning.fit_request import FitRequest
from visterm.library.start import learn_first, learn_quickly, open_or_start
from visterm.store.images import NewImage
from visterm_research.scenes import draw_library

SIZE = (4000, 3000)
NEW, FITTED, TINY = 100, 100, 40  # New photos; photos for the encoder's mean, as in `visterm serve`; pictures to link
CLOCKS = ("by the wall", "of processors")
STEPS = ("first photos", "index", "learn", "search")


def timed(call):
    """Return the seconds of a call, by the wall and of this process's processors."""
    wall, processors = time.perf_counter(), time.process_time()
    call()
    return [time.perf_counter() - wall, time.process_time() - processors]


def first_search(photos, catalogue, cache, started):
    """Make a catalogue as `visterm serve` and its `visterm watch` do, search, and return both seconds of each step."""
    os.environ["XDG_CACHE_HOME"] = cache
    make_encoder(None, {}, {})._open()
    steps = {"start": [time.perf_counter() - float(started), time.process_time()]}
    steps["first photos"] = timed(lambda: open_or_start(photos, catalogue, FitRequest()))
    opened = Catalogue.load(catalogue)
    folders, tags = folders_to_watch(opened.stored), tags_as_indexed(opened.stored)
    watching = FolderWatcher(opened, folders, tags=tags, stop=Stop(), say=say)
    steps["index"] = timed(lambda: list(watching.compare_folders()))
    steps["learn"] = timed(lambda: learn_quickly(opened, Stop().is_set))
    if few := not len(opened.tagger.vocabulary):
        steps["learn"] = timed(lambda: learn_first(opened, Stop().is_set))
    steps["search"] = timed(lambda: Catalogue.load(catalogue).search(opened.tagger.vocabulary.tags[0]).hits[0])
    return steps | ({} if few else {"default model, later": timed(lambda: learn_first(opened, Stop().is_set))})


def index_again(catalogue, photos):
    """Index as `visterm index` does, and return the seconds of processors; the parent process takes the others."""
    Catalogue.load(catalogue).index(photos)
    return {"processor": time.process_time()}


def encoder_and_floor(photos):
    """Return two calls: the encoder on files, and only libjpeg and onnxruntime on the same files."""
    encoder = make_encoder(None, {}, {}).fit(photos[:FITTED])
    network, setup = encoder._open(), ort.SessionOptions()
    setup.intra_op_num_threads = setup.inter_op_num_threads = 1
    session = ort.InferenceSession(network.path, setup, providers=["CPUExecutionProvider"])
    drawn = np.random.default_rng(0).integers(0, 256, (2, *network.preparation.size, 3), np.uint8)
    [(name, pictures)] = network.feed(drawn).items()

    def encode():
        encoder._kept_outputs = None  # else the network would not see the photos again
        encoder.encode(photos)

    def two(paths):
        for path in paths:
            with Image.open(path) as image:
                image.draft(None, reduced_size(image.size, encoder.reading_side))
                image.load()
        session.run([network.output], {name: pictures[: len(paths)]})

    def floor():
        with ThreadPoolExecutor(resolve_jobs(None)) as pool:
            list(pool.map(two, [photos[i : i + 2] for i in range(0, len(photos), 2)]))

    return encode, floor


def tagged_photos(folder, n, quick):
    """Copy photos of Corel5k, or draw scenes, into a folder with a file of their tags."""
    if quick or not PHOTOS.is_dir():
        return draw_library(folder / "drawn", n_scenes=n).images
    (photos := folder / "photos").mkdir()
    rows = [line.split("\t") for line in (PHOTOS / "labels.tsv").read_text().splitlines()[1 : n + 1]]
    with (photos / "metadata.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file_name", "tags"), *((name, tags.replace(",", ";")) for name, _, tags in rows)])
    for name, *_ in rows:
        shutil.copyfile(PHOTOS / "images" / name, photos / name)
    return photos


def enlarged(photos, folder, n):
    """Write copies of the first photos, enlarged and with noise, beside the file of their tags."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    shutil.copyfile(photos / "metadata.csv", folder / "metadata.csv")  # it also names others
    for path in sorted(photos.glob("*.jp*g"))[:n]:
        photo = Image.open(path).convert("RGB")
        size = SIZE if photo.width >= photo.height else SIZE[::-1]
        pixels = np.asarray(photo.resize(size, Image.Resampling.BICUBIC)).astype(np.int16)
        pixels += np.frombuffer(rng.bytes(pixels.size), np.int8).reshape(pixels.shape) >> 4
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / path.name, quality=90)
    return folder


def first(photos, folder, runs):
    """Measure the three sides in turns."""
    encode, floor = encoder_and_floor(files := sorted(map(str, photos.glob("*.jp*g"))))
    sides = {"floor": [], "encoder": [], "whole": []}
    for run in range(runs):
        sides["encoder"].append(timed(encode))
        sides["floor"].append(timed(floor))
        new = [str(folder / f"{kind} {run}") for kind in ("catalogue", "cache")]
        sides["whole"].append(watched(__file__, ["first", str(photos), *new, str(time.perf_counter())]))
    result = {"photos": len(files), "encoder": default_encoder()}
    for clock, name in enumerate(CLOCKS):
        seconds = {side: [run[clock] for run in sides[side]] for side in ("floor", "encoder")}
        steps = [step for step, value in sides["whole"][0].items() if isinstance(value, list)]
        seconds |= {step: [run[step][clock] for run in sides["whole"]] for step in steps}
        whole = [sum(run) for run in zip(*(seconds[step] for step in STEPS), strict=True)]
        result[name] = {f"seconds: {side}": spread(each) for side, each in seconds.items()}
        result[name]["encoder over floor"] = ratios(seconds["encoder"], seconds["floor"])
        result[name]["all but the start over encoder"] = ratios(whole, seconds["encoder"])
        say(photos.name, name, {key: round(value["median"], 2) for key, value in result[name].items()})
    return result


def known(n, folder, runs):
    """Measure `visterm index` in a folder of `n` known photos, beside a walk that calls stat."""
    rng, photos = np.random.default_rng(0), folder / "photos"

    def draw(name):
        (path := photos / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (rng.integers(32, 96), 48, 3), np.uint8)).save(path)
        return path

    drawn = [draw(f"0/{i}.jpg") for i in range(TINY)]
    tags = [[("even", "odd")[i % 2], "picture"] for i in range(TINY)]
    tagger = Tagger(model="ridge").fit(drawn, tags, calibrate=False)
    catalogue, records = Catalogue.create(folder / "catalogue", tagger), []
    U = tagger.model.image_rows(tagger.encoder.encode(drawn).rows)
    facts = [(path.stat().st_size, 48, 48, file_hash(path), (), path.stat().st_mtime_ns, "jpeg") for path in drawn]
    for i in range(n):
        name = f"{i // 200:04d}/IMG_{i:06d}.jpg"
        (photos / name).parent.mkdir(exist_ok=True)
        os.link(drawn[i % TINY], photos / name)
        records.append(NewImage(name, os.path.realpath(photos / name), *facts[i % TINY], camera=""))
    catalogue.stored.add(records, U[np.arange(n) % TINY])
    catalogue.stored.close()

    def walk():
        return [os.stat(os.path.join(parent, name)) for parent, _, names in os.walk(photos) for name in names]

    stat, index = [], []
    for run in range(runs + 1):  # the first of each does not count
        for i in range(NEW):
            draw(f"new {run}/{i}.jpg")
        stat.append(timed(walk))
        index.append(watched(__file__, ["known", str(folder / "catalogue"), str(photos)]))
    watching = FolderWatcher(Catalogue.load(folder / "catalogue"), [str(photos)], stop=Stop(), say=say)
    more = [str(draw(f"more/{run}.jpg")) for run in range(runs + 1)]
    alone = [timed(lambda path=path: list(watching.update_paths([path])))[0] for path in more]
    result = {"seconds": spread([run["seconds"] for run in index[1:]]), "seconds of watch": spread(alone[1:])}
    result["peak MiB"] = spread([run["peak_anonymous"] / 2**20 for run in index[1:]])
    result["processor seconds"] = spread([run["processor"] for run in index[1:]])
    result |= {f"seconds of stat {name}": spread([run[clock] for run in stat[1:]]) for clock, name in enumerate(CLOCKS)}
    say(n, "known", {key: round(value["median"], 2) for key, value in result.items()})
    return result


def main():
    if sys.argv[1:2] == ["--child"]:
        say(json.dumps({"first": first_search, "known": index_again}[sys.argv[2]](*sys.argv[3:])))
        return
    parser = options(__doc__)
    parser.add_argument("--only", nargs="+", choices=("first", "known"), default=("first", "known"))
    parser.add_argument("--photos", type=int, default=1000, help="as they are, and a fifth of them enlarged")
    parser.add_argument("--known", type=int, default=100_000, help="photos that the catalogue knows")
    chosen = parse(parser)
    n, n_known = (60, 1000) if chosen.quick else (chosen.photos, chosen.known)
    result = {"machine": machine(), "quick": chosen.quick}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if "first" in chosen.only:
            photos = tagged_photos(folder, n, chosen.quick)
            result["as they are"] = first(photos, folder / "of photos", chosen.runs)
            photos = enlarged(photos, folder / "enlarged", n // 5)
            result["enlarged"] = first(photos, folder / "of enlarged", chosen.runs)
        for n in (n_known // 10, n_known) if "known" in chosen.only else ():
            result[f"known {n}"] = known(n, folder / f"known {n}", chosen.runs)
    write(result, chosen.json)


if __name__ == "__main__":
    main()
