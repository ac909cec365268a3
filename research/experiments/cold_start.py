"""A library without a tag and a list of words: first guesses, then rounds of 20 answers, each learned at once.

The two towers are the stand-in of `text_ridge.py`: half of Corel5k's tags teach the map. The words are the other
half's, the photos those that the map was not taught on, and the answers what Corel5k says. The queue's questions stand
beside as many drawn at random from the predictions. After each round the run is learned again (seconds; with
`--photos 5000` photos are repeated up to that), and judged on the test photos, which are not in the library: MAP.

    python cold_start.py SHARED --cache CACHE --json figures/cold_start.json
"""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.runs import machine, options, parse, say, write
from PIL import Image
from text_ridge import Towers, data_sets, quick_data, stand_in

import visterm
from visterm.core.errors import DataError
from visterm.library.review import review_queue
from visterm.metrics.ranking import average_precisions

ROUNDS, ANSWERS = 10, 20


def library(towers: Towers, folder: Path, n_photos: int) -> tuple[Any, Any]:
    """Write photos, features and vectors; return a catalogue of a run without tags, and what photos have."""
    places = np.arange(n_photos) % len(towers.X)
    (folder / "photos").mkdir()
    for number in range(n_photos):
        pixel = (number % 256, number // 256, 0)
        Image.new("RGB", (2, 2), pixel).save(folder / "photos" / f"{number:05d}.png")
    np.save(folder / "rows.npy", towers.X[places])
    (folder / "rows.names.txt").write_text("\n".join(f"{number:05d}.png" for number in range(n_photos)))
    words = [f"tag{number}" for number in range(len(towers.text))]
    lines = (
        f"{word} {' '.join(f'{value:.6g}' for value in row)}\n" for word, row in zip(words, towers.text, strict=True)
    )
    (folder / "text.vec").write_text("".join(lines))
    run = visterm.fit(
        images=folder / "photos", words=words, encoder=f"precomputed:{folder / 'rows.npy'}", model="text_ridge",
        word_vectors=folder / "text.vec", out=folder / "run",
    )  # fmt: skip
    catalogue = visterm.Catalogue.create(folder / "catalogue", run)
    catalogue.index(folder / "photos")
    return catalogue, towers.Y[places]


def questions(catalogue: Any, how: str, rng: np.random.Generator) -> list[tuple[int, str]]:
    """Return the next 20 pairs to ask about."""
    if how == "queue":
        return [(item.image_id, item.tag) for item in review_queue(catalogue.stored, ANSWERS)]
    run = catalogue.stored.runs.current()
    pairs = catalogue.stored.database.rows(
        "SELECT image_id, tags.name FROM predictions JOIN tags ON tags.id = tag_id WHERE run_id = ?", (run.id,)
    )
    return [pairs[place] for place in rng.permutation(len(pairs))[:ANSWERS]]


def judged(catalogue: Any, towers: Towers) -> float:
    """Return MAP over the test photos."""
    scores = catalogue.tagger.model.decision_function(towers.X_judged)
    order = [catalogue.tagger.vocabulary.get(f"tag{number}") for number in range(len(towers.text))]
    right = sp.csr_array(towers.Y_judged.astype(np.float32))
    return float(np.nanmean(average_precisions(np.ascontiguousarray(scores[:, order]), right)))


def rounds(towers: Towers, n_photos: int, how: str, seed: int) -> dict[str, list[float]]:
    """Answer and learn, round by round; return MAP, seconds of learning and of the queue, and answers of yes."""
    rng, names = np.random.default_rng(seed), {f"tag{number}": number for number in range(len(towers.text))}
    found: dict[str, list[float]] = {"map": [], "learn": [], "ask": [], "yes": []}
    with tempfile.TemporaryDirectory() as folder:
        catalogue, has = library(towers, Path(folder), n_photos)
        place = {image.id: int(Path(image.name).stem) for image in catalogue.records}
        found["map"].append(judged(catalogue, towers))
        for _ in range(ROUNDS):
            started = time.perf_counter()
            asked = questions(catalogue, how, rng)
            found["ask"].append(time.perf_counter() - started)
            yes = [bool(has[place[image_id], names[tag]]) for image_id, tag in asked]
            for (image_id, tag), right in zip(asked, yes, strict=True):
                catalogue.judge(image_id, tag, 1 if right else -1)
            found["yes"].append(sum(yes))
            started = time.perf_counter()
            with suppress(DataError):  # no answer was yes so far
                catalogue.learn(use_even_if_worse=True)
            found["learn"].append(time.perf_counter() - started)
            found["map"].append(judged(catalogue, towers))
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="has data/corel5k and models/mobilenet_v2.onnx")
    parser.add_argument("--cache", type=Path, default=Path("text_ridge_cache"), help="encoded features")
    parser.add_argument("--photos", type=int, help="in the library [default: all, each once]")
    parser.add_argument("--on", choices=["test", "valid"], default="test")
    chosen = parse(parser)
    if chosen.folder is None and not chosen.quick:
        parser.error("FOLDER is not given (or --quick).")
    _, data = next(quick_data() if chosen.quick else data_sets(chosen.folder, chosen.cache, 0))
    result: dict[str, Any] = {
        "machine": machine(),
        "photos": chosen.photos,
        "measured on": f"{chosen.on} rows",
        "draws": [],
    }
    for seed in range(chosen.runs):
        towers = stand_in(data, seed, chosen.on)
        n_photos = chosen.photos or (300 if chosen.quick else len(towers.X))
        draw = {how: rounds(towers, n_photos, how, seed) for how in ("queue", "at random")}
        result["draws"].append(draw)
        for how, found in draw.items():
            say(f"{how}: MAP {np.round(found['map'], 3).tolist()}, yes {found['yes']}")
            learn, ask = found["learn"], found["ask"]
            say(f"  learning {np.median(learn):.2f} s (at most {max(learn):.2f}), queue {np.median(ask):.2f} s")
        write(result, chosen.json)


if __name__ == "__main__":
    main()
