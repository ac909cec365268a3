"""What a library of n photos costs, stage by stage: bytes and seconds from measured figures, money from prices.

What was measured is read from `figures` and `docs/figures`; what is assumed stands here, by name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from lab.pages import told, volume

EXPERIMENTS = Path(__file__).resolve().parents[1]
FIGURES = (EXPERIMENTS / "figures", EXPERIMENTS.parents[1] / "docs" / "figures")

TAGS = 432_213
"""The dictionary of the sampled tagging paper."""

TAGS_AN_IMAGE, NUMBERS, DIM, DRAWS = 5, 1024, 100, 200
"""Assumed: tags given to a photo, dense numbers of its features, width of the joint space, draws a pair at most."""

PHOTO_BYTES = 150e3
"""Assumed: of a photo as it is stored, already scaled for screens."""

EPOCHS = {"ranking": 10, "sampled": 5}
"""Assumed."""

ROW_READ = 25e-9
"""Seconds to score one drawn tag on one core (docs/performance.md, a row of 100 numbers from memory)."""

PRICES = {"core hour": 0.04, "GPU hour": 3.0, "TB month": 23.0, "GB of memory, month": 3.0, "million reads": 0.4}
"""Assumed, in dollars: machines rented by the hour without a contract, an object store's standard class."""

GPU_ENCODES = 1000
"""Assumed: photos a second that a GPU takes through a large network; none was measured."""

SHARD, SHARD_ENTRY, LISTED = 512, 180, 1000
"""Images in a shard; bytes of its entry in the manifest, about; names that an object store lists in one answer."""


class Rates(NamedTuple):
    """What was measured of one core, in seconds.

    Attributes
    ----------
    encode, join, pair, sampled, annotate, index : float
        Of an image; `pair` of an image and one of its tags in one epoch, `sampled` of an image in one epoch.
    catalogue_bytes, name_bytes : float
        Of an image in SQLite, and of its name in the memory of the command that encodes.
    row_scored : float
        Of one of a million rows in an exact search, on two cores.
    encoder : str
    """

    encode: float
    join: float
    pair: float
    sampled: float
    annotate: float
    index: float
    catalogue_bytes: float
    name_bytes: float
    row_scored: float
    encoder: str


class Stage(NamedTuple):
    """One stage: bytes read and left, hours of a core, those that only one process at a time can do, objects read."""

    name: str
    read: float
    left: float
    core_hours: float
    one_by_one: float
    objects: float

    @property
    def dollars(self) -> float:
        """The price of its cores and of its reads from an object store."""
        return self.core_hours * PRICES["core hour"] + self.objects / 1e6 * PRICES["million reads"]


def figure(name: str) -> Any:
    """Read a file of figures; None where there is none yet."""
    path = next((path for folder in FIGURES if (path := folder / f"{name}.json").is_file()), None)
    return None if path is None else json.loads(path.read_text(encoding="utf-8"))


def rates() -> Rates:
    """Take the rates of one core from the figures of this project."""
    large, tagged, small = figure("larger_than_memory"), figure("top_tags"), figure("small_costs")
    sampled, catalogue, workers = figure("sampled"), figure("catalogue"), figure("two_workers")
    encode, encoder = 1 / figure("visterms")["images_a_second_a_core"]["visterm"], "visterms"
    if workers is not None and "encode" in workers:
        encode = 1 / workers["encode"]["images a second"]["1"]["median"]
        encoder = workers["encode"]["encoder"]
    streamed = large["streamed"]
    best_tags = 2 * tagged["one image"]["medians"]["visterm"] * 0.22  # a thousand at a time take 0.22 of one by one
    if "1,000 images" in tagged:
        best_tags = 2 * tagged["1,000 images"]["medians"]["visterm"] / 1000
    return Rates(
        encode=encode,
        join=(streamed["seconds"] - sum(streamed["epochs"])) / streamed["images"],
        pair=2 / large["speed"]["streamed"]["median"] / TAGS_AN_IMAGE + DRAWS * ROW_READ,
        sampled=sampled["epoch"][0]["many"]["median"] / sampled["epoch"][0]["images"],
        annotate=2 / large["annotate"]["images_per_second"] + best_tags * TAGS / 109_444,
        index=small["catalogue"]["seconds"],
        catalogue_bytes=small["catalogue"]["bytes"],
        name_bytes=small["bytes a name"],
        row_scored=catalogue["sizes"][-1]["seconds"]["exact"]["median"] / catalogue["sizes"][-1]["rows"],
        encoder=encoder,
    )


def rate_rows(of: Rates) -> list[list[str]]:
    """Return the rates as rows of a table: what, how much, and where it comes from."""
    micro = 1e6

    def row(what: str, seconds: float, file: str) -> list[str]:
        return [what, f"{told(seconds * micro)} µs", f"`{file}`"]

    rows = [
        row(f"encode an image ({of.encoder})", of.encode, "two_workers" if of.encoder != "visterms" else "visterms"),
        row("join the tags of an image, survey and copy its row", of.join, "larger_than_memory"),
        row(f"learn from a pair of an image and a tag, {DRAWS} draws", of.pair, "larger_than_memory"),
        row("learn from an image, sampled tagger, a hidden layer of 512", of.sampled, "sampled"),
        row(f"annotate an image, ten best of {TAGS:,}", of.annotate, "larger_than_memory, top_tags"),
        row("index an image by its features", of.index, "small_costs"),
        row("search: score an image, on two cores", of.row_scored, "catalogue"),
        ["an image in SQLite", f"{of.catalogue_bytes:,.0f} bytes", "`small_costs`"],
        ["a file's name in memory", f"{of.name_bytes:,.0f} bytes", "`small_costs`"],
    ]
    million = figure("ten_million")
    if million is not None:
        last = million["sizes"][-1]
        pair = 2 * last["stages"]["train"] / last["pairs"]
        rows.append(row(f"for comparison: a pair, sparse features, {last['tags']:,} tags", pair, "ten_million"))
    return rows


def crowd(way: str) -> float:
    """Return how much longer work takes with all cores at it: as on the two here, 1 where that was not measured yet."""
    workers = figure("two_workers") or {}
    return float(workers.get(way, {}).get("simulate", {}).get("crowd", 1.0))


def stages(n: float, of: Rates) -> list[Stage]:
    """Return the stages of n photos."""
    row, hour, shards = NUMBERS * 4.0, 3600.0, n / SHARD
    pairs, joined = n * TAGS_AN_IMAGE, joined_bytes(n)
    ranking, sampled = EPOCHS["ranking"], EPOCHS["sampled"]
    kept = n * (of.catalogue_bytes + DIM * 4)
    join, index = n * of.join / hour, n * of.index / hour
    table, words = TAGS * DIM * 4.0, TAGS * 300 * 4.0
    return [
        Stage("encode", n * PHOTO_BYTES, n * row, n * of.encode / hour, 0, n),
        Stage("join the tags, survey and copy the rows", n * row, joined + n * row, join, join, shards),
        Stage(f"WSABIE, {ranking} epochs", ranking * n * row, table, ranking * pairs * of.pair / hour, 0, 0),
        Stage(f"sampled tagger, {sampled} epochs", sampled * n * row, words, sampled * n * of.sampled / hour, 0, 0),
        Stage("annotate, ten tags", n * row, n * 400.0, n * of.annotate / hour, 0, shards),
        Stage("index", n * row, kept, index, index, shards),
    ]


def joined_bytes(n: float) -> float:
    """Return the bytes of the joined tags' files (docs/larger_than_memory.md)."""
    return 8.0 * n * TAGS_AN_IMAGE


def limits(n: float, of: Rates) -> dict[str, str]:
    """Return what grows with the number of photos in one place, as it would be told."""
    rows = n * DIM * 4.0
    search = n * of.row_scored
    return {
        "names of files in the memory of `visterm encode`": volume(n * of.name_bytes),
        "shards of 512, and their manifest": f"{n / SHARD:,.0f}, {volume(n / SHARD * SHARD_ENTRY)}",
        "answers of an object store that list the photos": f"{n / LISTED:,.0f}",
        "files of the joined tags": volume(joined_bytes(n)),
        "memory to sort the hashes of names": volume(n * 24),
        "SQLite's file": volume(n * of.catalogue_bytes),
        "predictions in it, rows": f"{10 * n:,.0f}",
        "rows to search": volume(rows),
        "exact search of one query on two cores, all rows in memory": f"{told(search)} s",
        "an object store a month: photos, features, rows": "$ "
        + ", ".join(f"{each / 1e12 * PRICES['TB month']:,.0f}" for each in (n * PHOTO_BYTES, n * NUMBERS * 4, rows)),
        "memory for all rows a month": f"$ {rows / 1e9 * PRICES['GB of memory, month']:,.0f}",
        f"a large network on GPUs of {GPU_ENCODES:,} photos a second": f"{n / GPU_ENCODES / 3600:,.0f} hours of a GPU, "
        f"$ {n / GPU_ENCODES / 3600 * PRICES['GPU hour']:,.0f}",
    }
