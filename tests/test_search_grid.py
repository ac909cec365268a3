"""What searches find, case by case: filters, judgements, kinds of words, ways to combine, limits and orders.

The answers are in tests/data/search_grid.json. A change of code must not change them. Where a change of the answers is
meant, write them anew and read the difference before you commit it:

    python tests/test_search_grid.py
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from visterm import Catalogue, Tagger
from visterm.core.errors import VistermError
from visterm.core.vocabulary import Vocabulary
from visterm.learning.relations import WordRelations
from visterm.learning.word_places import WordPlaces
from visterm.models.confidence.calibration import Calibration, Curve
from visterm.store.filters import Filter
from visterm.store.images import NewImage

ANSWERS = Path(__file__).parent / "data" / "search_grid.json"
COUNTS = {"animal": 3, "blue": 9, "dog": 5, "green": 7, "husky": 4, "rare": 0, "red": 12, "sea light": 6}
TAGS = list(COUNTS)
ADDED = ["zebra"]  # A word with a place among the tags, and no training images
TREE = [("husky", "dog"), ("dog", "animal")]
WIDTH, N = len(TAGS), 16

ONE_WORD = ["Crimson", "-red", "okapi", "-okapi", "zebra", "rare", "xyzzy"]
SEVERAL = [
    "red blue", "red -blue", "red red blue", "red -red", "red green -blue sea light", "red okapi", "okapi -red",
    "red -okapi", "okapi new", "zebra red", "-zebra red", "red rare", "red xyzzy", "-red xyzzy", "dog -husky",
    ["Red", "-sea light"],
]  # fmt: skip
WORDS = [*ONE_WORD, *SEVERAL]
HOW = {
    "as it is": {},
    "sum": {"combine": "sum"},
    "confidence": {"combine": "confidence"},
    "cutoff": {"cutoff": True},
    "likely": {"min_confidence": 0.3},
    "likely, cutoff": {"min_confidence": 0.1, "cutoff": True, "combine": "confidence"},
}
RARELY = {"product": {"combine": "product"}, "sum, cutoff": {"combine": "sum", "cutoff": True}}
FILTERS = {
    "all": None,
    "with blue": Filter(tags=("blue",)),
    "without red": Filter(without=("red",)),
    "a folder": Filter(folder="b"),
    "of a year": Filter(taken_from="2021", taken_to="2022-06"),
    "nothing": Filter(tags=("blue",), without=("blue",)),
    "not reviewed": Filter(unreviewed=True),
    "with dog": Filter(tags=("dog",)),
}
SORTS = [None, "chance", "taken", "oldest", "name", "added"]


def drawn(n, seed):
    """Return rows whose numbers have few digits, so that their products are the same wherever they are computed."""
    return (np.random.default_rng(seed).integers(-32, 33, (n, WIDTH)) / 32).astype(np.float32)


def records(n):
    """Return photos in two folders, of some years, some of them with tags of a file."""
    of_files = {1: ("blue",), 4: ("new", "red"), 6: ("husky",), 9: ("animal/dog/pug",), 11: ("okapi", "green")}
    return [
        NewImage(
            f"{'ab'[i % 2]}/{(7 * i) % n}.jpg", f"/library/{'ab'[i % 2]}/{i}.jpg", 1000 + i, 2, 3, f"{i:064d}",
            tags=of_files.get(i, ()), taken=None if i % 5 == 3 else f"{2019 + i % 4}-{1 + i % 12:02}-01T00:00:00",
        )
        for i in range(n)
    ]  # fmt: skip


def fitted(*, calibrated=True, tree=False, chances=False):
    """Return a run with drawn rows of tags; with `chances`, its scores are probabilities, and V is the identity."""
    params = {"dim": WIDTH, "epochs": 1, "valid_share": 0.0, "bias": 0, "standardize": False}
    tagger = Tagger(model="wsabie", encoder="ids", model_params=params, seed=0, n_jobs=1)
    tagger.fit(list(range(len(TAGS))), [[tag] for tag in TAGS], calibrate=False)
    tagger.model.tag_rows_ = drawn(len(TAGS), 1)
    vocabulary = Vocabulary(TAGS, list(COUNTS.values()), {"Crimson": "red"})
    parts: dict[str, Any] = {"vocabulary": vocabulary, "facts": {**tagger.facts, "images": 40}}
    if chances:
        tagger.model.probabilities = True
        tagger.model._tag_rows = lambda: None
    else:
        parts["words"] = WordPlaces(added=ADDED, rows=drawn(1, 2))
    if calibrated:
        slopes = 0.5 + np.arange(len(TAGS)) / 4
        curve = Curve(np.array([-2.0, 0.0, 2.0]), np.array([-2.0, -0.25, 1.5]), 1.0, 3.0)
        parts["calibration"] = Calibration(slopes, np.arange(len(TAGS)) / 8 - 1.0, 0.25, 100, curve)
    if tree:
        parts["relations"] = WordRelations(tree=TREE)
    tagger.parts = tagger.parts.changed(**parts)
    return tagger


def judge(catalogue):
    """Say something of the photos: tags given, accepted and rejected, new ones among them."""
    given = {
        0: ["red"],
        1: ["Red", "blue"],
        2: ["okapi"],
        3: ["okapi", "red", "new"],
        5: ["husky"],
        8: ["zebra", "rare"],
    }
    for image_id, tags in given.items():
        catalogue.give(image_id, tags)
    for image_id, tag, verdict in (
        (4, "red", 1), (4, "blue", 1), (6, "red", -1), (7, "crimson", -1), (9, "blue", -1), (10, "dog", 1),
        (11, "okapi", -1), (12, "animal", -1), (13, "sea light", 1), (2, "red", 1), (6, "dog", -1), (14, "zebra", -1),
    ):  # fmt: skip
        catalogue.judge(image_id, tag, verdict)


def library(name):
    """Return a catalogue in memory."""
    settings = {"plain": {"calibrated": False}, "tree": {"tree": True}, "chances": {"chances": True}}
    catalogue = Catalogue(fitted(**settings.get(name, {})))
    stored, n = catalogue.stored, 1500 if name == "many" else N
    U = drawn(n, 3)
    stored.add(records(n), sp.csr_array(np.round(np.abs(U))) * np.float32(0.5) if name == "chances" else U)
    if name == "videos":
        frames = stored.frames.set(4, records(n)[4], [0.0, 1.5, 3.0])
        frames += stored.frames.set(7, records(n)[7], [0.0, 2.0])
        stored.set_rows(frames, drawn(len(frames), 4))
    if name != "untouched":
        judge(catalogue)
    return catalogue


def cases():
    """Yield the name of each case, its library, what is called, and with what."""
    searches = [("judged", words, how, "all", 9, None) for words, how in product(WORDS, HOW)]
    searches += [
        ("judged", words, how, among, 0, None)
        for words, how, among in product(["red", "red -blue", "red okapi", "okapi"], ["as it is", "likely"], FILTERS)
        if among != "all"
    ]
    searches += [
        ("judged", words, how, "all", 3, sort)
        for words, how, sort in product(["red blue", "red okapi", "okapi"], ["as it is", "confidence", "cutoff"], SORTS)
    ]
    searches += [
        ("judged", words, "as it is", "without red", 4, sort) for words, sort in product(["blue", "zebra"], SORTS)
    ]
    searches += [("judged", "red blue -husky", how, "all", k, None) for how, k in product(HOW | RARELY, [0, 1, 2])]
    several = ["untouched", "plain", "videos", "chances", "many"]
    searches += [
        (name, words, how, "all", 6, None)
        for name, words, how in product(
            several, ["red", "red blue", "blue -red", "red okapi", "-okapi"], ["as it is", "confidence", "likely"]
        )
    ]
    searches += [
        ("chances", words, "product", among, k, None)
        for words, among, k in product(["red", "red -blue", "red okapi"], ["all", "without red"], [0, 3])
    ]
    searches += [(name, "red blue", "product", "all", 6, None) for name in several]
    searches += [
        ("tree", words, how, among, 6, None)
        for words, how, among in product(
            ["animal", "dog -husky", "pug", "husky pug", "dog red", "-animal"],
            ["as it is", "confidence", "cutoff"],
            ["all", "with dog"],
        )
    ]
    for name, words, how, among, k, sort in searches:
        text = f"{name}: {words} | {how} | {among} | k={k} sort={sort}"
        yield text, name, "search", (words, k), {**(HOW | RARELY)[how], "among": FILTERS[among], "sort": sort}
    for name, among, sort in product(["judged"], FILTERS, SORTS):
        yield f"{name}: browse | {among} | sort={sort}", name, "browse", (FILTERS[among], 4), {"sort": sort}
    for name, among, sort in product(["judged", "chances", "videos"], ["all", "with blue"], SORTS):
        yield f"{name}: like 4 | {among} | sort={sort}", name, "like", (4, 4), {"among": FILTERS[among], "sort": sort}
    for name, words in product(["judged", "tree", "plain"], ["red -blue", "dog zebra", "okapi"]):
        yield f"{name}: shares | {words}", name, "shares", (words, [0, 4, 9]), {}


def answer(catalogue, method, given, how):
    """Return what a case finds, as JSON keeps it: hits column by column, numbers with five digits."""
    try:
        if method == "shares":
            shares = catalogue.shares(*given)
            return [[[s.word, *map(short, (s.score, s.share, s.confidence))] for s in each] for each in shares]
        result = getattr(catalogue, method)(*given, **how)
    except VistermError as error:  # what it says, other tests check
        return type(error).__name__
    hits = result.hits
    columns = {
        "ids": [hit.id for hit in hits],
        "scores": [short(hit.score) for hit in hits],
        "confidences": [short(hit.confidence) for hit in hits],
        "sources": [hit.source for hit in hits],
        "at": [hit.at for hit in hits],
    }
    if hits:
        assert [hit.image for hit in hits] == [where.name for where in catalogue.stored.locations(columns["ids"])]
    facts = {"unknown": result.unknown, "n_likely": result.n_likely, "untrained": list(result.untrained)}
    kept = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    return kept | {name: value for name, value in facts.items() if value} | {"n_found": result.n_found}


def short(number):
    return None if number is None else float(f"{number:.5g}") + 0.0


def as_expected(value):
    """Return an answer whose numbers may differ in the last digits."""
    if isinstance(value, dict):
        return {name: as_expected(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_expected(each) for each in value]
    return pytest.approx(value, rel=1e-4, abs=1e-5) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def libraries():
    """The catalogues of all cases, each made at its first use."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = library(name)
        return made[name]

    return get


@pytest.fixture(scope="module")
def answers():
    return json.loads(ANSWERS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", dict.fromkeys(name for _, name, *_ in cases()))
def test_searches_find_what_they_found_before(name, libraries, answers):
    catalogue = libraries(name)
    for text, of, *call in cases():
        if of == name:
            assert answer(catalogue, *call) == as_expected(answers[text]), text


def test_every_recorded_answer_is_that_of_a_case(answers):
    assert list(answers) == [text for text, *_ in cases()]
    assert sum(": browse" not in text for text in answers) > 40


def main():
    """Write the answers of today's code."""
    made = {name: library(name) for name in dict.fromkeys(name for _, name, *_ in cases())}
    lines = [f"{json.dumps(text)}: {json.dumps(answer(made[of], *call))}" for text, of, *call in cases()]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
