"""Several catalogues searched as one: what is found is what one catalogue of all their photos finds."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from command_line import visterm
from tiny_catalogues import draw_photo, draw_photos
from visterm import Catalogue, Tagger
from visterm.core.errors import DataError, EncoderMismatchError, StorageError, UserError
from visterm.core.executor import LocalShards
from visterm.library.union import CatalogueUnion
from visterm.store.current_rows import ArrayPart, CurrentRows
from visterm.store.filters import Filter
from visterm.store.searched import ShardedRows

N = 28
CUTS = (0, 11, 11, N)
"""The photos of three catalogues; the middle one is empty."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photos in one catalogue, and the same ones in three; their run has a calibration."""
    folder = tmp_path_factory.mktemp("union")
    tags = draw_photos(folder / "learned", 120, seed=7)
    encoder = {"codebook": 12, "scales": [1.0], "sample_blocks": 2000, "max_side": 32, "colours": 8}
    tagger = Tagger(
        model="wsabie",
        encoder="visterms",
        encoder_params=encoder,
        model_params={"dim": 4, "epochs": 10},
        seed=0,
        n_jobs=1,
    )
    tagger.fit([folder / "learned" / name for name in sorted(tags)], [tags[name] for name in sorted(tags)])
    assert tagger.calibration is not None
    tagger.save(folder / "run")
    draw_photos(folder / "photos", N)
    paths = sorted((folder / "photos").iterdir())
    whole = Catalogue.create(folder / "whole", tagger)
    for number, (first, stop) in enumerate(itertools.pairwise(CUTS)):
        part = Catalogue.create(folder / f"part{number}", tagger)
        for catalogue in (whole, part) if stop > first else ():
            catalogue.add(paths[first:stop])
            for i in range(first, stop, 5):
                image_id = i if catalogue is whole else i - first
                catalogue.judge(image_id, "green", -1)
                catalogue.give(image_id, ["chosen"])
    assert visterm("union part0 part1 part2 -o all", folder)[0] == 0
    return folder


@pytest.fixture
def whole(folder):
    return Catalogue.load(folder / "whole", n_jobs=1)


@pytest.fixture
def union(folder):
    with CatalogueUnion.load(folder / "all", n_jobs=1) as union:
        yield union


def same_hits(found, expected):
    """Paths in order, and scores to rounding, where a matrix product of other rows beside them decides it."""
    assert [hit.path for hit in found.hits] == [hit.path for hit in expected.hits]
    for name in ("score", "confidence"):
        ours, theirs = ([getattr(hit, name) for hit in hits] for hits in (found.hits, expected.hits))
        assert ours == (theirs if None in theirs else pytest.approx(theirs, abs=1e-6))


@pytest.mark.parametrize("n_shards", [1, 2, 5])
@pytest.mark.parametrize("k", [1, 7, 100, 0])
def test_shards_give_the_ranking_of_one_store_ties_and_all(n_shards, k):
    rng = np.random.default_rng(n_shards)
    U, Q = (rng.integers(-2, 3, (n, 4)).astype(np.float32) for n in (60, 5))
    whole = CurrentRows("", [ArrayPart(np.arange(60), U)], 4)
    bases = [0, *np.sort(rng.integers(0, 60, n_shards - 1)).tolist()]
    pieces = [U[first:stop] for first, stop in zip(bases, [*bases[1:], 60], strict=True)]
    shards = [CurrentRows("", [ArrayPart(np.arange(len(piece)), piece)], 4) for piece in pieces]
    sharded = ShardedRows(LocalShards(shards), bases)
    for among in (None, [3, 59, 0, 7, 31, 1000], []):
        for one, other in zip(sharded.search(Q, k, among=among), whole.search(Q, k, among=among), strict=True):
            assert one.tobytes() == other.tobytes()
            assert one.shape == other.shape


@pytest.mark.parametrize(
    ("words", "how"),
    [
        ("red", {}),
        ("cool blue", {"k": 0}),
        ("green", {"k": 0}),
        ("warm -red", {}),
        ("red", {"combine": "sum", "k": 100}),
        ("blue", {"k": 0, "cutoff": True}),
        ("blue cool", {"k": 3, "min_confidence": 0.3}),
        ("cool", {"k": 0, "among": Filter(tags=("chosen",))}),
        ("cool", {"among": Filter(without=("chosen",))}),
        ("red", {"among": Filter(tags=("never given",))}),
    ],
    ids=str,
)
def test_searches_find_what_one_catalogue_finds(union, whole, words, how):
    found, expected = union.search(words, **how), whole.search(words, **how)
    same_hits(found, expected)
    assert (found.n_likely, found.unknown) == (expected.n_likely, expected.unknown)


def test_hits_say_which_image_of_which_catalogue_they_are(union, folder):
    for hit in union.search("red", 0).hits:
        there = Catalogue.load(hit.catalogue).image(hit.id).record
        assert (there.path, there.name) == (hit.path, hit.image)
    assert {Path(hit.catalogue).name for hit in union.search("red", 0).hits} == {"part0", "part2"}


def test_pictures_like_another_are_found_in_all_catalogues(union, whole, folder, tmp_path):
    new = draw_photo(tmp_path / "new.png", "red", 4711)
    for image in (folder / "photos" / "013.png", "013.png", new):
        same_hits(union.like(image, 0), whole.like(image, 0))
    same_hits(
        union.like("013.png", 5, among=Filter(tags=("chosen",))),
        whole.like("013.png", 5, among=Filter(tags=("chosen",))),
    )
    with pytest.raises(DataError, match="no image of the catalogue is called so"):
        union.like("nowhere.png")


def test_a_name_in_two_catalogues_is_not_guessed(folder, tmp_path, whole):
    shutil.copytree(folder / "part0", tmp_path / "copy")
    with CatalogueUnion([folder / "part0", tmp_path / "copy"]) as both:
        with pytest.raises(DataError, match=r"2 images of the catalogue are called 003\.png"):
            both.like("003.png")
        red = both.search("red", 0).hits
        assert len(red) == 2 * CUTS[1]
        assert [hit.catalogue for hit in red[:2]] == [str(folder / "part0"), str(tmp_path / "copy")]  # equal scores
        assert red[0].id == red[1].id


def test_filters_alone_list_catalogue_by_catalogue(union, whole):
    for k in (0, 4):
        same_hits(union.browse(Filter(tags=("chosen",)), k), whole.browse(Filter(tags=("chosen",)), k))


@pytest.mark.parametrize("sort", ["taken", "oldest", "name"])
def test_photos_of_all_catalogues_are_sorted_together(sort, union, whole):
    for k in (0, 4):
        same_hits(union.browse(k=k, sort=sort), whole.browse(k=k, sort=sort))
        same_hits(union.search("red", k, sort=sort), whole.search("red", k, sort=sort))


def test_what_a_catalogue_takes_in_is_found_from_then_on(folder, tmp_path):
    for part in ("part0", "part2"):
        shutil.copytree(folder / part, tmp_path / part)
    with CatalogueUnion([tmp_path / "part0", tmp_path / "part2"]) as both:
        n = len(both)
        draw_photo(tmp_path / "late.png", "red", 99)
        Catalogue.load(tmp_path / "part0").add([tmp_path / "late.png"])
        assert len(both) == n + 1
        assert str(tmp_path / "late.png") in {hit.path for hit in both.search("red", 0).hits}


def test_catalogues_of_other_runs_are_refused_when_they_are_opened_and_when_they_have_learned(folder, tmp_path):
    shutil.copytree(folder / "part0", tmp_path / "part0")
    with CatalogueUnion([folder / "part2", tmp_path / "part0"]) as both:
        learned = Catalogue.load(tmp_path / "part0", n_jobs=1)
        learned.give(0, ["red", "warm"])
        learned.learn(full=True)
        with pytest.raises(EncoderMismatchError, match=r"part0 has another run .* visterm index RUN"):
            both.search("red")
    with pytest.raises(EncoderMismatchError, match="has another run"):
        CatalogueUnion([folder / "part2", tmp_path / "part0"])


def test_what_is_no_catalogue_and_what_is_given_twice_are_refused(folder, tmp_path):
    with pytest.raises(UserError, match="is given twice"):
        CatalogueUnion([folder / "part0", folder / "photos" / ".." / "part0"])
    with pytest.raises(UserError, match="Name one or more"):
        CatalogueUnion([])
    with pytest.raises(StorageError, match="There is no catalogue at"):
        CatalogueUnion([folder / "part0", tmp_path / "none"])
    with pytest.raises(StorageError, match="is a catalogue; expected a union"):
        CatalogueUnion.load(folder / "part0")
    with pytest.raises(StorageError, match="is a union; expected a catalogue"):
        Catalogue.load(folder / "all")


def test_the_commands_search_a_union_as_they_do_a_catalogue(folder):
    ours = [json.loads(line) for line in visterm("search all 'red -blue' -k 0 --json", folder)[1].splitlines()]
    theirs = [json.loads(line) for line in visterm("search whole 'red -blue' -k 0 --json", folder)[1].splitlines()]
    assert [hit["path"] for hit in ours] == [hit["path"] for hit in theirs]
    assert {hit["catalogue"] for hit in ours} == {str(folder / "part0"), str(folder / "part2")}
    code, out, _ = visterm("search all red -k 2", folder)
    assert code == 0
    assert all(line.endswith(("(part0)", "(part2)")) for line in out.splitlines())
    listed = json.loads(visterm("search all --tag chosen -k 1 --json", folder)[1])
    assert (listed["id"], listed["catalogue"]) == (0, str(folder / "part0"))
    facts = json.loads(visterm("info all --json", folder)[1])
    assert facts["catalogues"] == {str(folder / "part0"): 11, str(folder / "part1"): 0, str(folder / "part2"): 17}
    assert (facts["kind"], facts["images"]) == ("union", N)


def test_the_command_says_how_many_and_replaces_nothing_else(folder, tmp_path):
    code, out, told = visterm(f"union part0 part2 -o {tmp_path / 'both'} --json", folder)
    assert (code, json.loads(out)["images"]) == (0, N)
    assert "2 catalogues with 28 photos can be searched as one" in told
    code, _, told = visterm("union part0 part2 -o run", folder)
    assert code == 2
    assert "is not a union of visterm" in told


def test_a_catalogue_with_lance_tables_may_be_one_of_them(folder, tmp_path, whole):
    pytest.importorskip("lancedb", reason="the extra lance is not installed")
    made = Catalogue.create(tmp_path / "lance", Tagger.load(folder / "run", n_jobs=1), store="lance")
    made.add(sorted((folder / "photos").iterdir())[11:])
    with CatalogueUnion([folder / "part0", tmp_path / "lance"]) as both:
        same_hits(both.search("cool -blue", 0, combine="sum"), whole.search("cool -blue", 0, combine="sum"))


def test_messages_and_searches_name_catalogues_as_they_were_typed(folder, tmp_path):
    with pytest.raises(UserError, match=r"^The catalogue photos/\.\./part0 is given twice"), contextlib.chdir(folder):
        CatalogueUnion(["photos/../part0", "part0"])
    code, out, err = visterm("search all red -k 3", folder)
    assert code == 0, err
    assert all(line.endswith(("(part0)", "(part2)", "(part1)")) for line in out.splitlines())
    _, elsewhere, _ = visterm(f"search {folder / 'all'} red -k 3", tmp_path)
    assert str(folder / "part") in elsewhere
