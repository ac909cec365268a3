"""What a person tags is found from the next request on, before anything is learned: everywhere, and first."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from command_line import visterm
from tiny_catalogues import draw_photos, fit_run
from visterm import Catalogue, Tagger
from visterm.core.errors import UnknownNameError
from visterm.core.vocabulary import Vocabulary
from visterm.models.confidence.calibration import Calibration
from visterm.store import tags as stored_tags
from visterm.store.database import Database
from visterm.store.filters import Filter, conditions_of
from visterm.store.tags import OF_FILES, WITHOUT_TREE, active_tags, judged_sql
from visterm.tagging.tag_map import Completions

N = 12


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A catalogue whose run has confidences, of which each test takes a copy."""
    folder = tmp_path_factory.mktemp("hand")
    run = fit_run(folder / "learned", draw_photos(folder / "learned", seed=7), folder / "run")
    tagger = Tagger.load(run, n_jobs=1)
    n_tags = len(tagger.vocabulary)
    tagger.parts = tagger.parts.changed(calibration=Calibration(np.ones(n_tags), np.full(n_tags, -1.0), 0.5, 100))
    draw_photos(folder / "photos", N)
    Catalogue.create(folder / "catalogue", tagger).index(folder / "photos")
    return folder


@pytest.fixture
def catalogue(made, tmp_path):
    return Catalogue.load(shutil.copytree(made / "catalogue", tmp_path / "catalogue"), n_jobs=1)


def found(catalogue, words, k=0, **limits):
    return [hit.id for hit in catalogue.search(words, k, **limits).hits]


def test_given_photos_come_first_then_accepted_ones_then_the_others_by_score(catalogue):
    before = found(catalogue, "red")
    *_, third, second, accepted, given = before
    catalogue.give(given, ["Red"])
    catalogue.judge(accepted, "red", 1)
    catalogue.judge(second, "red", -1)
    expected = [given, accepted, *[i for i in before if i not in (given, accepted, second)]]
    assert found(catalogue, "red") == expected
    for k in (1, 2, 3, 5):
        assert found(catalogue, "red", k) == expected[:k]
    hits = catalogue.search("red", 3).hits
    assert [hit.source for hit in hits] == ["person", "accepted", None]
    assert [hit.confidence for hit in hits[:2]] == [1.0, 1.0]
    assert third in expected


def test_a_photo_tagged_by_hand_is_above_every_cut_off(catalogue):
    worst = found(catalogue, "red")[-1]
    sure = catalogue.search("red", 0, min_confidence=0.9).n_likely
    assert worst not in found(catalogue, "red", cutoff=True)
    catalogue.give(worst, ["red"])
    for limits in ({"cutoff": True}, {"min_confidence": 0.9}):
        assert found(catalogue, "red", 1, **limits) == [worst]
    assert catalogue.search("red", 1, min_confidence=0.9).n_likely == sure + 1


def test_a_tag_of_a_file_is_as_certain_as_a_yes_and_a_no_on_the_page_wins(catalogue):
    worst, *_ = before = found(catalogue, "red")[::-1]
    there = Catalogue.load(catalogue.stored.folder, n_jobs=1)  # as another process
    assert found(there, "red")[::-1] == before

    def places():
        """Return whether the photo is first, last or left out, which every way to search has to agree on."""
        ways = [(one, {"combine": how}) for one in (catalogue, there) for how in (None, "sum", "confidence")]
        orders = [(found(one, "red", **how), found(one, "blue -red", **how)) for one, how in ways]
        hits = [one.search("red", 1, **how).hits[0] for one, how in ways]
        assert len({hit.id for hit in hits}) == len({order[0] for order, _ in orders}) == 1
        [place] = {(order.index(worst) if worst in order else None, worst in minus) for order, minus in orders}
        if place[0] == 0:
            assert [(hit.source, hit.confidence) for hit in hits] == [("person", 1.0)] * len(hits)
            assert found(there, "red", cutoff=True)[0] == found(there, "red", min_confidence=0.99)[0] == worst
        return place

    tags = catalogue.stored.tags
    assert places() == (N - 1, True)
    tags.set_from_file(worst, ["RED", "okapi"])
    assert places() == (0, False)
    catalogue.judge(worst, "red", -1)
    assert places() == (None, True)
    catalogue.judge(worst, "red", 0)
    assert places() == (0, False)
    catalogue.give(worst, ["red"])
    tags.set_from_file(worst, ["okapi"])
    assert places() == (0, False)
    catalogue.take(worst, ["red"])
    assert places() == (N - 1, True)
    tags.set_from_file(worst, ["red"])
    assert places() == (0, False)
    tags.set_from_file(worst, [])
    assert places() == (N - 1, True)


def test_what_was_said_of_a_tag_is_read_again_only_after_it_changed_and_is_kept_up_to_a_limit(catalogue, monkeypatch):
    reads, value = [], Database.value
    monkeypatch.setattr(
        Database, "value", lambda self, sql, *of: reads.append(sql == OF_FILES) or value(self, sql, *of)
    )
    catalogue.stored.tags.set_from_file(3, ["red"])
    assert found(catalogue, "red", 1) == [3]
    n_read = sum(reads)
    catalogue.give(5, ["red", "blue"])
    assert set(found(catalogue, "red", 2)) == {3, 5}
    assert sum(reads) == n_read
    rows = Database.rows
    monkeypatch.setattr(
        Database, "rows", lambda self, sql, *of: reads.append("verdicts" in sql) or rows(self, sql, *of)
    )
    n_read = sum(reads)
    catalogue.stored.tags.set_from_file(4, ["blue"])
    catalogue.judge(4, "blue", 1)
    assert set(found(catalogue, "red", 2)) == {3, 5}
    assert sum(reads) == n_read
    catalogue.stored.tags.set_from_file(4, ["red"])
    assert set(found(catalogue, "red", 3)) == {3, 4, 5}
    assert sum(reads) == n_read + 2
    monkeypatch.setattr(stored_tags, "MAX_CACHED_BYTES", 8)
    for tag in ("blue", "cool", "green", "red"):
        catalogue.give(6, [tag])
        assert 6 in found(catalogue, tag, 3)
    assert len(catalogue.stored.judgements._cache) <= 1


def test_a_word_with_a_minus_leaves_out_what_has_it_by_hand(catalogue):
    best = found(catalogue, "red -blue", 1)[0]
    catalogue.judge(best, "blue", 1)
    for how in (None, "sum", "confidence"):
        assert best not in found(catalogue, "red -blue", combine=how)
    catalogue.judge(best, "blue", -1)
    assert best in found(catalogue, "red -blue")


def test_of_several_words_photos_with_all_by_hand_come_first_and_one_by_hand_counts_as_certain(catalogue):
    before = found(catalogue, "red cool", combine="sum")
    one, both, accepted = before[-3:]
    catalogue.give(both, ["red", "cool"])
    catalogue.give(accepted, ["cool"])
    catalogue.judge(accepted, "red", 1)
    catalogue.give(one, ["cool"])
    for limits in ({}, {"combine": "sum"}, {"combine": "confidence"}, {"cutoff": True}):
        assert found(catalogue, "red cool", **limits)[:2] == [both, accepted]
    hits = catalogue.search("red cool", 0, combine="sum").hits
    assert [hit.source for hit in hits] == ["person", "accepted", *[None] * (N - 2)]
    scores = {hit.id: hit.score for hit in hits[2:]}
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    rows, query = catalogue.stored.current_rows(), catalogue.query_weights("red cool")
    parts = rows.products(catalogue.tagger.tag_rows(query.weights.indices)) * query.weights.data
    cool = [catalogue.tagger.vocabulary.tags[tag] for tag in query.weights.indices].index("cool")
    assert scores[one] == pytest.approx(parts[one, 1 - cool] + parts[:, cool].max(), abs=1e-5)
    others = [i for i in before if i not in (one, both, accepted)]
    assert [i for i in scores if i != one] == others


def test_a_tag_that_no_run_knows_is_found_as_soon_as_it_is_given(catalogue):
    with pytest.raises(UnknownNameError):
        catalogue.search("okapi")
    catalogue.give(3, ["Okapi"])
    catalogue.give(5, ["okapi"])
    assert catalogue.image(5).tags == ["Okapi"]
    for words in ("okapi", "OKAPI", ["Okapi"]):
        assert found(catalogue, words) == [3, 5]
    for limits in ({"cutoff": True}, {"min_confidence": 0.9}):
        assert found(catalogue, "okapi", **limits) == [3, 5]
    everything = catalogue.search("red", 0).hits
    assert found(catalogue, "red okapi")[:2] == [hit.id for hit in everything if hit.id in (3, 5)]
    assert found(catalogue, "red -okapi") == [hit.id for hit in everything if hit.id not in (3, 5)]
    assert found(catalogue, "-okapi") == [i for i in range(N) if i not in (3, 5)]
    assert found(catalogue, "okapi", among=Filter(tags=("OKAPI",), without=("red",))) == [3, 5]
    assert catalogue.shares("okapi", [3]) == [[]]
    assert {tag.tag: tag.given for tag in catalogue.tags()}["Okapi"] == 2
    complete = Completions(catalogue.tagger.vocabulary)
    assert complete.find("oka", 3, catalogue.new_tags()) == [("Okapi", 2, "tag")]
    catalogue.give(4, ["animals/AC/DC cat"])
    for typed in ("animals/a", "ac/", "DC", "cat"):
        assert complete.find(typed, 3, catalogue.new_tags()) == [("animals/AC/DC cat", 1, "tag")]
    catalogue.take(4, ["animals/AC/DC cat"])
    for image_id in (3, 5):
        catalogue.take(image_id, ["okapi"])
    with pytest.raises(UnknownNameError):
        catalogue.search("okapi")


def test_a_new_tag_of_two_words_is_searched_whole(catalogue):
    catalogue.give(1, ["Sibirischer red"])
    assert found(catalogue, "sibirischer red") == [1]
    assert found(catalogue, '"Sibirischer Red"') == [1]
    assert found(catalogue, "red") != [1]


def test_filters_fold_case_and_aliases(catalogue):
    vocabulary = catalogue.tagger.vocabulary
    catalogue.tagger.parts = catalogue.tagger.parts.changed(
        vocabulary=Vocabulary(vocabulary.tags, vocabulary.counts, {"crimson": "red"})
    )
    catalogue.give(2, ["Crimson"])
    catalogue.give(4, ["red"])
    for tag in ("red", "RED", "crimson", "CRIMSON"):
        assert [hit.id for hit in catalogue.browse(Filter(tags=(tag,)), 0).hits] == [2, 4]
        assert [hit.id for hit in catalogue.browse(Filter(without=(tag,)), 0).hits] == [0, 1, 3, *range(5, N)]
    assert set(found(catalogue, "crimson", 2)) == {2, 4}
    catalogue.judge(2, "Crimson", -1)
    assert [hit.id for hit in catalogue.browse(Filter(tags=("red",)), 0).hits] == [4]
    catalogue.give(2, ["red"])  # the same tag, spelled otherwise: that one was rejected, and this one is there
    assert set(found(catalogue, "red", 2)) == {2, 4}


def test_what_people_said_counts_among_filtered_photos_and_where_pages_end(catalogue):
    for image_id in (0, 1, 2, 3):
        catalogue.give(image_id, ["blue"])
    some = Filter(folder=None, tags=("blue",))
    assert set(found(catalogue, "blue", among=some)) == {0, 1, 2, 3}
    for k in range(1, N):
        assert found(catalogue, "blue", k) == found(catalogue, "blue")[:k]
        assert found(catalogue, "blue -red", k) == found(catalogue, "blue -red")[:k]


def test_the_command_line_finds_what_was_tagged_by_hand_and_exports_it(catalogue, tmp_path):
    last = catalogue.search("red", 0).hits[-1].id
    catalogue.give(last, ["red", "Okapi"])
    code, out, _ = visterm("search catalogue red -k 1", tmp_path)
    assert (code, out.endswith("(tagged by hand)\n")) == (0, True)
    for words in ("red", "okapi --cutoff", "--tag OKAPI", "red --tag okapi"):
        code, out, err = visterm(f"search catalogue {words} -k 1 --json", tmp_path)
        assert json.loads(out.splitlines()[0])["id"] == last, err
    assert json.loads(visterm("search catalogue okapi --json", tmp_path)[1])["source"] == "person"
    code, _, err = visterm("export catalogue --to jsonl -o tags.jsonl", tmp_path)
    assert code == 0, err
    assert "Okapi" in (tmp_path / "tags.jsonl").read_text()


TREE = active_tags("[[1, 2]]")  # of a tag under a rejected one


def plan_of(statement, values, tmp_path):
    database = Database(tmp_path / "tables.sqlite", new=True)
    return [row[3] for row in database.rows(f"EXPLAIN QUERY PLAN {statement}", values)]


@pytest.mark.parametrize(
    ("statement", "active"),
    [(OF_FILES, WITHOUT_TREE), (judged_sql(WITHOUT_TREE), WITHOUT_TREE), (judged_sql(TREE), TREE)],
    ids=["files", "people", "by a tree"],
)
def test_a_search_reads_what_people_said_through_indexes_only(statement, active, tmp_path):
    plan = plan_of(statement, ('["red"]', *active.values * 2), tmp_path)
    tables = {"g", "v", "r", "o", "given", "verdicts", "tags"}
    assert any(step.split()[1] in tables for step in plan), plan
    assert not [step for step in plan if step.startswith("SCAN") and step.split()[1] in tables], plan


@pytest.mark.parametrize("active", [active_tags(), TREE], ids=["flat", "by a tree"])
@pytest.mark.parametrize("what", ["tags", "without", "predicted"])
def test_a_filter_reads_tags_through_indexes_only(what, active, tmp_path):
    conditions, values = conditions_of(Filter(**{what: ("red",)}), active)
    plan = plan_of(f"SELECT id FROM images WHERE {' AND '.join(conditions)}", values, tmp_path)
    tables = {"g", "v", "r", "o", "p", "given", "verdicts", "tags", "predictions"}
    assert any(step.split()[1] in tables for step in plan), plan
    assert not [step for step in plan if step.startswith("SCAN") and step.split()[1] in tables], plan
