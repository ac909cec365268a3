"""Searches by a real approximate index honour what people said as exact ones do, whichever process they said it in."""

from __future__ import annotations

import json
import operator
import subprocess
import sys

import numpy as np
import pytest

from visterm import Catalogue, Tagger
from visterm.library.search.ranking import MAX_DROPPED, best_by
from visterm.models.confidence.calibration import Calibration
from visterm.store import row_index, stored_rows
from visterm.store.current_rows import ArrayPart, CurrentRows
from visterm.store.filters import Filter
from visterm.store.images import NewImage

N, WIDTH, N_TAGS = 3000, 13, 8


@pytest.fixture(scope="module")
def rows():
    """Rows around 60 scenes."""
    rng = np.random.default_rng(0)
    scenes = rng.standard_normal((60, WIDTH), np.float32)
    return scenes[rng.integers(0, 60, N)] + np.float32(0.3) * rng.standard_normal((N, WIDTH), np.float32)


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory):
    """A catalogue whose rows have an index by faiss; its run has tags "tag0" to "tag7" and no confidences."""
    pytest.importorskip("faiss")
    folder = tmp_path_factory.mktemp("said") / "catalogue"
    names = [f"tag{number}" for number in range(N_TAGS)]
    params = {"dim": WIDTH, "epochs": 1, "valid_share": 0.0, "bias": 0, "standardize": False}
    tagger = Tagger(model="wsabie", encoder="ids", model_params=params, seed=0, n_jobs=1)
    tagger.fit(list(range(N_TAGS)), [[name] for name in names], calibrate=False)
    tagger.model.tag_rows_ = np.random.default_rng(1).standard_normal((N_TAGS, WIDTH), np.float32)
    catalogue = Catalogue.create(folder, tagger)
    catalogue.stored.add([NewImage(f"{i}.jpg", f"/library/{i}.jpg", 1, 2, 3, "0") for i in range(N)], rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_rows, "MIN_ROWS_FOR_INDEX", 1000)
        patch.setattr(row_index, "MIN_SPEED_UP", 0.0)
        assert catalogue.stored.build_index(tagger.model.tag_rows_)
    catalogue.stored.close()
    return folder


@pytest.fixture
def both(folder, monkeypatch):
    """The catalogue searched by its index, and exactly; nothing that a test says in it stays."""
    monkeypatch.setattr(row_index, "MIN_SPEED_UP", 0.0)  # an index of few rows is used, too
    by_index, exact = (Catalogue.load(folder, n_jobs=1) for _ in range(2))
    current = exact.stored.current_rows()
    exact.stored._current = CurrentRows(
        current.version, [ArrayPart(part.ids, part.rows, part.hidden) for part in current.parts], current.width
    )
    yield by_index, exact
    for table in ("given", "feedback", "verdicts"):
        by_index.stored.database.write(f"DELETE FROM {table}")


@pytest.fixture
def asked(monkeypatch):
    """How often an index is asked for candidates."""
    calls = []
    named = row_index.RowIndex.search_lists
    monkeypatch.setattr(row_index.RowIndex, "search_lists", lambda self, *how: calls.append(how) or named(self, *how))
    return calls


def with_confidences(catalogue):
    catalogue.tagger.parts = catalogue.tagger.parts.changed(
        calibration=Calibration(np.full(N_TAGS, 0.5), np.full(N_TAGS, -2.0), 0.5, 1000)
    )


def ids(catalogue, words, k=10, **how):
    return [hit.id for hit in catalogue.search(words, k, **how).hits]


def say(catalogue, rng):
    """Say something of 60 photos, many of them among the best; return which were given, accepted and rejected tag1."""
    best = rng.permutation(ids(catalogue, "tag1", 100)).tolist()
    far = [int(i) for i in rng.permutation(N)[:40] if i not in best]
    given, accepted, rejected = [*best[:5], *far[:5]], [*best[5:8], *far[5:8]], [*best[8:20], *far[8:20]]
    stored = catalogue.stored
    with stored.database.transaction():
        stored.tags.give_many(((i, ["TAG1"]) for i in given), "person")
        for photos, tag, verdict in ((accepted, "tag1", 1), (rejected, "tag1", -1), (far[20:30], "tag2", 1)):
            for photo in photos:
                stored.tags.judge(photo, tag, verdict)
        for photo in ids(catalogue, "tag2", 5):
            stored.tags.judge(photo, "tag2", -1)
    return given, accepted, rejected


@pytest.mark.parametrize("words", ["tag1", "tag1 tag2", "tag1 -tag2", "tag2 -tag1", "tag3 tag1"])
def test_an_index_finds_what_exact_search_does(both, asked, words):
    by_index, exact = both
    given, accepted, rejected = say(exact, np.random.default_rng(3))
    for k in (1, 5, 10, 30):
        found, expected = by_index.search(words, k).hits, exact.search(words, k).hits
        there, wanted = [hit.id for hit in found], [hit.id for hit in expected]
        assert len(np.intersect1d(there, wanted)) >= 0.8 * k
        assert not set(there) & set(given + accepted if "-tag1" in words else rejected)
        scores = {hit.id: hit.score for hit in exact.search(words, 0).hits}
        assert [hit.score for hit in found] == pytest.approx([scores[i] for i in there], rel=1e-5)
        assert [hit.source for hit in found] == [hit.source for hit in expected]
        by_hand = {*given, *accepted, *exact.stored.find(Filter(tags=("tag2",))).tolist()}
        assert [i for i in wanted if i in by_hand] == [i for i in there if i in by_hand]
    assert asked


def test_given_photos_come_before_accepted_ones_and_these_before_all_that_an_index_names(both, asked):
    by_index, exact = both
    given, accepted, _ = say(exact, np.random.default_rng(3))
    found = by_index.search("tag1", 30).hits
    assert {hit.id for hit in found[:10]} == set(given)
    assert {hit.id for hit in found[10:16]} == set(accepted)
    assert [hit.source for hit in found] == ["person"] * 10 + ["accepted"] * 6 + [None] * 14
    for part in (found[:10], found[10:16], found[16:]):
        assert [hit.score for hit in part] == sorted((hit.score for hit in part), reverse=True)
    assert asked
    n_asked = len(asked)
    assert ids(by_index, "tag1") == [hit.id for hit in found[:10]]
    assert len(asked) == n_asked  # nothing is looked for where people said enough


def test_a_word_with_a_minus_excludes_by_hand_first_and_then_by_chance(both):
    by_index, exact = both
    given, accepted, rejected = say(exact, np.random.default_rng(3))
    for catalogue in both:
        with_confidences(catalogue)
    found = ids(by_index, "tag2 -tag1", 0)
    assert found == ids(exact, "tag2 -tag1", 0)
    assert not set(found) & {*given, *accepted}
    least = ids(exact, "tag1 tag2", 0)[-1]
    before = found.index(least)
    exact.judge(least, "tag1", -1)
    assert ids(by_index, "tag2 -tag1", 0).index(least) < before
    assert ids(by_index, "-tag1", len(rejected) + 1)[0] in {least, *rejected}
    for k in (1, 10, 50):
        assert ids(by_index, "tag2 -tag1", k) == ids(exact, "tag2 -tag1", 0)[:k]


@pytest.mark.parametrize("words", ["tag1", "tag1 tag2", "tag1 -tag2", "tag1 tag3", "tag3 tag2 tag1"])
def test_tags_of_files_of_most_photos_count_by_an_index_and_exactly(words, both, asked, rows):
    by_index, exact = both
    rng, names = np.random.default_rng(5), words.replace("-", "").split()
    of_files = {"tag1": np.sort(rng.permutation(N)[:2000]), "tag2": np.sort(rng.permutation(N)[:1000])}
    for tag, photos in of_files.items():
        exact.stored.tags.give_many(((i, [tag]) for i in photos.tolist()), "file")
    for catalogue in both:
        with_confidences(catalogue)
    weights = exact.query_weights(words).weights
    signs = weights.toarray()[0][[int(name[-1]) for name in names]]
    scores = rows @ exact.tagger.tag_rows(np.array([int(name[-1]) for name in names])).T
    has_tag = np.array([np.isin(np.arange(N), of_files.get(name, [])) for name in names]).T
    each = np.log(1 / (1 + np.exp(-np.where(signs > 0, 1, -1) * (0.5 * scores - 2.0))))
    each[has_tag & (signs > 0)] = 0.0
    logs = 0.5 * each[:, signs > 0].sum(axis=1) + 0.5 * each[:, signs > 0].min(axis=1) + each[:, signs < 0].sum(axis=1)
    has_all = has_tag[:, signs > 0].all(axis=1)
    order = np.lexsort([np.arange(N), -scores @ signs, -logs.astype(np.float32), ~has_all])
    expected = order[~(has_tag & (signs < 0)).any(axis=1)[order]]
    for k in (1, 10, 30):
        assert ids(exact, words, k) == expected[:k].tolist()
        assert len(np.intersect1d(ids(by_index, words, k), expected[:k])) >= 0.8 * k
        for found in (by_index.search(words, k).hits, exact.search(words, k).hits):
            assert [hit.source for hit in found] == ["person" if has_all[hit.id] else None for hit in found]
    assert asked or "-" in words


@pytest.mark.parametrize("words", ["tag1 tag2", "tag3 tag2 tag1"])
def test_an_index_proposes_the_likeliest_photos_also_where_one_word_outweighs_the_others(words, both, asked):
    by_index, exact = both
    for catalogue in both:
        catalogue.tagger.model.tag_rows_ = catalogue.tagger.model.tag_rows_ * np.array([[1, 8] * 4], np.float32).T
        catalogue.tagger.parts = catalogue.tagger.parts.changed(
            calibration=Calibration(np.full(N_TAGS, 1.0), np.full(N_TAGS, -2.0), 0.5, 1000)
        )
    best = ids(exact, words, combine="confidence")
    assert len(np.intersect1d(ids(exact, words, 400, combine="sum"), best)) < 8  # the sum would not do
    assert len(np.intersect1d(ids(by_index, words), best)) >= 8
    assert asked


def test_many_rejected_photos_among_the_best_leave_as_many_hits_as_are_asked_for(both, asked):
    by_index, exact = both
    best = ids(exact, "tag4", 300)
    with exact.stored.database.transaction():
        for photo in best[: MAX_DROPPED + 20]:
            exact.stored.tags.judge(photo, "tag4", -1)
    found = ids(by_index, "tag4", 10)
    assert len(found) == 10
    assert set(found) <= set(best[MAX_DROPPED + 20 :])


OTHER = """
import json, sys
from visterm import Catalogue
catalogue = Catalogue.load(sys.argv[1], n_jobs=1)
for line in sys.stdin:
    what, *given = json.loads(line)
    if what == "search":
        found = [hit.id for hit in catalogue.search(*given).hits]
    else:
        found = getattr(catalogue, what)(*given)
    print(json.dumps(found), flush=True)
"""


def test_what_another_process_says_counts_in_the_very_next_search_here_and_what_is_said_here_there(both):
    here = both[0]
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, here.stored.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:

        def there(*what):
            other.stdin.write(json.dumps(what) + "\n")
            other.stdin.flush()
            return json.loads(other.stdout.readline())

        best = ids(here, "tag5", 3)
        assert there("search", "tag5", 3) == best
        [last] = ids(here, "-tag5", 1)
        for turn in range(5):  # again and again, as all that is remembered has to be forgotten each time
            there("give", last, ["Tag5"])
            assert ids(here, "tag5", 3) == [last, *best[:2]]
            assert last not in ids(here, "tag1 -tag5", 0)
            there("take", last, ["tag5"])
            assert ids(here, "tag5", 3) == best
            number = there("judge", best[0], "tag5", -1)
            assert best[0] not in ids(here, "tag5", 0)
            here.judge(best[0], "tag5", 0)
            assert there("search", "tag5", 3) == best
            here.give(last, [f"new {turn}"])
            assert there("search", f"new {turn}") == [last]
            there("judge", last, f"New {turn}", -1)
            assert f"new {turn}" not in here.new_tags()
        assert number > 0
        other.stdin.close()
        assert other.wait() == 0


@pytest.mark.parametrize("n", [1, 7, 40])
def test_the_best_by_several_keys_are_the_first_of_all_in_order(n):
    rng = np.random.default_rng(n)
    keys = (rng.integers(0, 2, n), rng.integers(0, 3, n).astype(np.float32), -rng.permutation(n))
    whole = sorted(range(n), key=lambda i: [-key[i] for key in keys])
    for k in range(1, n + 3):
        assert best_by(keys, k).tolist() == whole[:k]
    assert best_by(keys, 0).tolist() == whole


def test_a_repeated_search_finds_what_was_said_and_learned_meanwhile(folder, both):
    by_index, exact = both
    say(exact, np.random.default_rng(3))
    words = "tag1 tag2"
    before = by_index.search(words, 30)
    assert [hit.id for hit in by_index.search(words, 30).hits] == [hit.id for hit in before.hits]
    last = before.hits[-1].id
    for tag in ("tag1", "tag2"):
        exact.stored.tags.give(last, [tag], "person")
    assert by_index.search(words, 30).hits[0].id == last
    again = Catalogue.load(folder, n_jobs=1)
    for one in (by_index, again):  # as a run that was learned meanwhile, with the same rows of photos
        one.tagger.model.tag_rows_ = -one.tagger.model.tag_rows_
    found, expected = (one.search(words, 30).hits for one in (by_index, again))
    assert [(hit.id, hit.score) for hit in found] == [(hit.id, hit.score) for hit in expected]


def test_what_people_said_of_a_tag_is_the_same_array_until_they_say_more(both):
    by_index, exact = both
    say(exact, np.random.default_rng(3))
    said = by_index.stored.judgements.of_tag
    before = [said(["tag1"]), said(["tag2"])]
    exact.stored.tags.give(7, ["another"], "person")
    assert all(map(operator.is_, [said(["tag1"]), said(["tag2"])], before))
    free = next(i for i in range(1, N) if all(i not in part for tag in before for part in tag))
    exact.stored.tags.give(free, ["tag2"], "person")
    first, second = said(["tag1"]), said(["tag2"])
    assert first is before[0]
    assert free in second.tagged
    assert free not in before[1].tagged
