"""Searches of a catalogue among filtered images, by another picture, and what people said: equal to brute force."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image
from typer.testing import CliRunner

from command_line import run_command
from refusals import refused
from tiny_catalogue import make_tiny_catalogue
from tiny_catalogues import draw_photo, draw_photos, fit_run, save_unchecked
from visterm import Catalogue, Tagger
from visterm.cli.command_line import app
from visterm.core.errors import CorruptFileError, DataError, EncoderMismatchError, UserError
from visterm.library.search.request import SearchRequest, search_run
from visterm.store.catalogue import Origin
from visterm.store.filters import Filter, name_key
from visterm.store.images import NewImage


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return fit_run(folder / "photos", draw_photos(folder / "photos", seed=7), folder / "run")


@pytest.fixture
def catalogue(run, tmp_path):
    draw_photos(tmp_path / "photos", 12)
    made = Catalogue.create(tmp_path / "catalogue", Tagger.load(run, n_jobs=1))
    made.index(tmp_path / "photos")
    return made


def visterm(*arguments):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_a_search_by_words_reads_neither_the_encoder_nor_the_model(catalogue, tmp_path, monkeypatch):
    expected = catalogue.search("red", 3).hits
    monkeypatch.setattr("visterm.core.persist.load_estimator", None)
    assert Catalogue.load(tmp_path / "catalogue").search("red", 3).hits == expected


@pytest.mark.parametrize("model", ["wsabie", "ensemble", "knn", "ridge"])  # dense, dense or sparse, identity, dense
def test_words_have_the_same_rows_before_and_after_the_model_is_read(model, tmp_path):
    run = fit_run(tmp_path / "photos", draw_photos(tmp_path / "photos"), tmp_path / "run", model=model)
    tagger = Tagger.open(run, 1)
    tags = np.array([3, 0, 3], np.int32)
    before = tagger.tag_rows(tags)
    assert "model" not in vars(tagger.parts)
    Q = sp.csr_array(np.eye(len(tagger.vocabulary), dtype=np.float32)[tags])
    expected = Tagger.load(run).model.query_rows(Q)
    assert tagger.model.n_tags_ == Q.shape[1]
    for rows in (before, tagger.tag_rows(tags)):
        assert type(rows) is type(expected)
        np.testing.assert_array_equal(sp.csr_array(rows).toarray(), sp.csr_array(expected).toarray())


@pytest.mark.parametrize(
    ("damaged", "match"),
    [
        (lambda V: V.astype(np.float64), r"model.safetensors: \['tag_rows_'\] is an array of float64"),
        (lambda V: V[1:], r"model.safetensors: \['tag_rows_'\] is .*expected an array .*n_tags_ = 6"),
        (lambda V: np.where(V > 0, np.float32("nan"), V), r"\['tag_rows_'\] has infinity or NaN"),
    ],
)
def test_tag_rows_that_are_none_are_refused_though_their_checksum_is_right(damaged, match, catalogue, tmp_path):
    other = Tagger.load(catalogue.stored.run_folder)
    other.model.tag_rows_ = damaged(other.model.tag_rows_)
    save_unchecked(other, catalogue.stored.run_folder)
    with pytest.raises(CorruptFileError, match=match):
        Catalogue.load(tmp_path / "catalogue")


def test_another_run_in_the_place_of_the_catalogues_own_is_refused(catalogue, tmp_path):
    other = Tagger.load(catalogue.stored.run_folder)
    other.model.tag_rows_ = -other.model.tag_rows_
    other.save(catalogue.stored.run_folder, overwrite=True)
    with pytest.raises(EncoderMismatchError, match="their rows cannot be compared"):
        Catalogue.load(tmp_path / "catalogue")


@pytest.mark.parametrize("words", [None, 5, ["red", None]])
def test_words_that_are_no_texts_are_refused(words, catalogue):
    with pytest.raises(UserError, match=r"None|5"):
        catalogue.search(words)


@pytest.mark.parametrize("share", [0.5, 0.01, 0.001])
def test_a_search_among_filtered_images_is_that_of_brute_force(run, share):
    tagger = Tagger.load(run, n_jobs=1)
    rng = np.random.default_rng(3)
    n = 6000
    catalogue = Catalogue(tagger)
    U = rng.normal(size=(n, tagger.model.tag_rows_.shape[1])).astype(np.float32)
    chosen = rng.permutation(n) < share * n
    records = [NewImage(str(i), None, 10 + int(chosen[i]), 1, 1, str(i)) for i in range(n)]
    catalogue.stored.add(records, U)
    gone, rejected = np.flatnonzero(chosen)[:2]
    catalogue.stored.mark([int(gone)], "gone")
    catalogue.judge(int(rejected), "red", -1)
    scores = U.astype(np.float64) @ tagger.model.query_rows(tagger.query_weights("red").weights)[0]
    left = np.setdiff1d(np.flatnonzero(chosen), [gone, rejected])
    expected = left[np.lexsort((left, -scores[left]))][:10]
    found = catalogue.search("red", 10, among=Filter(min_bytes=11)).hits
    assert [hit.id for hit in found] == expected.tolist()
    np.testing.assert_allclose([hit.score for hit in found], scores[expected], atol=1e-4)


def test_a_rejected_tag_never_comes_back_for_that_image(catalogue, tmp_path):
    best = catalogue.search("red", 0).hits
    first = best[0].id
    assert catalogue.image(first).predicted[0].tag in ("red", "warm")
    catalogue.judge(first, "RED", -1)
    for opened in (catalogue, Catalogue.load(tmp_path / "catalogue")):
        assert "red" not in [tag.tag for tag in opened.image(first).predicted]
        assert [hit.id for hit in opened.search("red", 0).hits] == [hit.id for hit in best[1:]]
        assert [hit.id for hit in opened.search("red", 1).hits] == [best[1].id]
        assert first not in [hit.id for hit in opened.browse(Filter(predicted=("red",)), 0).hits]
        assert len(opened.annotate([first], 0)[first]) == len(opened.tagger.vocabulary) - 1
        assert "red" not in [tag.tag for tag in opened.annotate([first])[first]]
    path = catalogue.image(first).record.path
    draw_photo(Path(path), "red", 66)
    assert catalogue.index(tmp_path / "photos").changed == 1
    assert "warm" in [tag.tag for tag in catalogue.image(first).predicted]
    assert "red" not in [tag.tag for tag in catalogue.image(first).predicted]
    catalogue.judge(first, "red", 0)
    assert first in [hit.id for hit in catalogue.search("red", 0).hits]


def test_images_are_annotated_by_id_from_features_or_files(catalogue):
    record = catalogue.image(6).record
    [expected] = catalogue.tagger.annotate([record.path], 3).images
    in_memory = Catalogue(catalogue.tagger).add([record.path])
    for found in (catalogue.annotate([6, 99], 3)[6], in_memory.annotate([0], 3)[0]):
        assert [tag.tag for tag in found] == [tag.tag for tag in expected.tags]
        np.testing.assert_allclose([tag.score for tag in found], [tag.score for tag in expected.tags], rtol=1e-5)


def test_tags_are_given_taken_and_judged_and_the_image_is_reviewed(catalogue):
    catalogue.give(2, ["  Snow ", "Red"])
    catalogue.judge(2, "blue", 1)
    view = catalogue.image(2)
    assert view.tags == ["Snow", "blue", "red"]
    assert view.record.reviewed is not None
    assert {hit.id for hit in catalogue.browse(Filter(unreviewed=True), 0).hits} == set(range(12)) - {2}
    assert [hit.id for hit in catalogue.browse(Filter(tags=("BLUE",)), 0).hits] == [2]
    catalogue.take(2, ["red", "blue"])
    assert catalogue.image(2).tags == ["Snow"]
    catalogue.judge(2, "Snow", -1)
    assert catalogue.image(2).tags == []
    catalogue.give(2, ["Snow"])
    assert catalogue.image(2).tags == ["Snow"]
    for method, tag in ((catalogue.give, "red"), (catalogue.take, "red")):
        with refused("tags", value="red"):
            method(2, tag)
    with refused("tag", value=" "):
        catalogue.judge(2, " ", 1)
    with pytest.raises(UserError, match="control character"):
        catalogue.judge(2, "a\0b", 1)
    with refused("verdict", value=2):
        catalogue.judge(2, "red", 2)
    with refused("image_id", value=99, error=DataError):
        catalogue.judge(99, "red", 1)
    assert catalogue.stored.database.check() == []


def test_a_tag_of_a_file_that_is_taken_away_stays_away(catalogue, tmp_path):
    photos = sorted((tmp_path / "photos").iterdir())
    catalogue.index(photos, tags=[["red"] for _ in photos])
    catalogue.take(0, ["red"])
    catalogue.index(photos, tags=[["red"] for _ in photos])
    assert catalogue.image(0).tags == []
    assert catalogue.image(1).tags == ["red"]


def test_counts_of_tags_tell_how_often_people_said_yes(catalogue):
    for image_id, verdict in ((0, 1), (1, 1), (2, -1)):
        catalogue.judge(image_id, "red", verdict)
    catalogue.give(3, ["unheard of"])
    counts = {count.tag: count for count in catalogue.tags()}
    red, other = counts["red"], counts["unheard of"]
    assert (red.accepted, red.rejected, red.precision, red.learned) == (2, 1, pytest.approx(2 / 3), True)
    assert red.predicted == len(catalogue.browse(Filter(predicted=("red",)), 0).hits)
    assert (other.given, other.precision, other.learned) == (1, None, False)


def test_pictures_like_one_are_by_cosine_without_itself(catalogue, tmp_path):
    U = catalogue.stored.current_rows().rows(np.arange(12))
    unit = U / np.linalg.norm(U, axis=1, keepdims=True)
    cosines = unit @ unit[4]
    order = [i for i in np.argsort(-cosines, kind="stable") if i != 4]
    path = catalogue.image(4).record.path
    for image in (4, path, os.path.basename(path)):
        found = catalogue.like(image, 3).hits
        assert [hit.id for hit in found] == order[:3]
        np.testing.assert_allclose([hit.score for hit in found], cosines[order[:3]], atol=1e-5)
    pixels = np.asarray(Image.open(path).convert("RGB"))
    assert catalogue.like(pixels, 1).hits[0].id == 4
    elsewhere = tmp_path / "elsewhere.png"
    elsewhere.write_bytes(Path(path).read_bytes())
    assert [hit.id for hit in catalogue.like(elsewhere, 2).hits] == [4, order[0]]
    catalogue.give(order[5], ["this one"])
    assert [hit.id for hit in catalogue.like(4, 0, among=Filter(tags=("this one",))).hits] == [order[5]]
    for unknown in (99, "nowhere.png"):
        with pytest.raises(DataError):
            catalogue.like(unknown)


def test_filters_by_file_folder_and_date(catalogue, tmp_path):
    exif = Image.Exif()
    exif[306] = "2024:05:31 10:20:30"
    (tmp_path / "photos" / "sub").mkdir()
    Image.new("RGB", (64, 64)).save(tmp_path / "photos" / "sub" / "dated.JPG", exif=exif)
    catalogue.index(tmp_path / "photos")
    new = 12
    size = os.path.getsize(tmp_path / "photos" / "sub" / "dated.JPG")
    for wanted in (
        Filter(folder=str(tmp_path / "photos" / "sub")), Filter(file_type="jpeg"), Filter(taken_from="2024-05-31"),
        Filter(taken_to="2024-05"), Filter(max_bytes=size), Filter(taken_from="2024", taken_to="2024"),
    ):  # fmt: skip
        assert [hit.id for hit in catalogue.browse(wanted, 0).hits] == [new], wanted
        assert [hit.id for hit in catalogue.search("red -blue", 0, among=wanted).hits] == [new]
    assert len(catalogue.search("red", 0, among=Filter(min_bytes=size + 1)).hits) == 12
    assert catalogue.search("red", 0, among=Filter(taken_from="2025")).hits == []
    assert [hit.id for hit in catalogue.browse(None, 3, after=4).hits] == [5, 6, 7]


DATES = ["2024-05-31T10:00:00", None, "2023-01-02", "2024-05-31T09:00:00", None, "2019-07-01T00:00:00"]


@pytest.mark.parametrize(
    ("sort", "first"),
    [("taken", [0, 3, 2, 5, 1, 4]), ("oldest", [5, 2, 3, 0, 1, 4]), ("name", [*range(12)]), ("added", [*range(12)])],
)
def test_photos_are_sorted_by_date_name_or_entry_and_those_without_a_date_come_last(sort, first, catalogue):
    catalogue.stored.database.write_many("UPDATE images SET taken = ? WHERE id = ?", zip(DATES, range(6), strict=True))
    found = catalogue.browse(k=0, sort=sort)
    assert [hit.id for hit in found.hits][: len(first)] == first
    assert found.n_found == 12
    assert catalogue.browse(k=3, start=2, sort=sort).hits == found.hits[2:5]
    assert [hit.id for hit in catalogue.browse(Filter(taken_from="2024"), 0, sort=sort).hits] == [
        i for i in (hit.id for hit in found.hits) if i in (0, 3)
    ]


def test_what_came_in_last_is_first_by_entry(catalogue, tmp_path):
    draw_photo(tmp_path / "photos" / "late.png", "red", 99)
    catalogue.index(tmp_path / "photos")
    assert [hit.id for hit in catalogue.browse(k=0, sort="added").hits] == [12, *range(12)]


def test_names_are_sorted_as_people_do():
    names = ["Äpfel", "b/2", "b/10", "B/1", "apfel", "b 1", "東京", "Zoo"]
    assert sorted(names, key=name_key) == ["Äpfel", "apfel", "B/1", "b/2", "b/10", "b 1", "Zoo", "東京"]


def test_a_sorted_search_lists_the_photos_that_are_likely_to_be_meant(catalogue):
    ranked = catalogue.search("red", 0)
    assert ranked.n_found == len(ranked.hits) == 12
    assert ranked.hits[0].confidence is None  # too few photos for confidences: the best are listed
    assert {hit.id for hit in catalogue.search("red", 0, sort="name").hits} == {hit.id for hit in ranked.hits}
    catalogue.judge(4, "red", -1)
    assert catalogue.search("red", 3).n_found == 11
    assert [hit.id for hit in catalogue.search("red", 4, sort="name").hits] == [0, 1, 2, 3]
    assert [hit.id for hit in catalogue.like(3, 4, sort="name").hits] == [0, 1, 2, 4]
    assert catalogue.like(3, 4).n_found == 12


@pytest.mark.parametrize("search", [lambda c: c.browse(sort="size"), lambda c: c.search("red", sort="size")])
def test_an_unknown_order_is_refused(search, catalogue):
    with refused("sort", value="size"):
        search(catalogue)


def test_the_command_sorts(catalogue, tmp_path):
    path = tmp_path / "catalogue"
    catalogue.stored.database.write("UPDATE images SET taken = printf('2024-01-%02d', 28 - id)")
    assert [
        hit["id"] for hit in visterm("search", path, "--from", "2024", "--sort", "oldest", "-k", 2, "--json")[1]
    ] == [11, 10]
    assert [hit["id"] for hit in visterm("search", path, "red", "--sort", "taken", "-k", 2, "--json")[1]] == [0, 1]
    assert visterm("search", path, "red", "--sort", "size")[0] != 0
    assert visterm("search", path, "--from", "2024", "--sort", "chance")[0] != 0


def test_the_command_filters_lists_and_finds_alike(catalogue, tmp_path):
    catalogue.give(3, ["mine"])
    path = tmp_path / "catalogue"
    assert [hit["id"] for hit in visterm("search", path, "red", "--tag", "mine", "--json")[1]] == [3]
    [listed] = visterm("search", path, "--tag", "mine", "--json")[1]
    assert listed == {"image": catalogue.image(3).record.name, "id": 3, "path": catalogue.image(3).record.path}
    alike = visterm("search", path, "--like", "003.png", "-k", 2, "--json")[1]
    assert [hit["id"] for hit in alike] == [hit.id for hit in catalogue.like(3, 2).hits]
    nothing = CliRunner().invoke(app, ["search", str(path), "--tag", "nobody gave this"])
    said = "No photo has the tag 'nobody gave this'.\n"
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", said)
    for arguments in (
        [], ["red", "--like", "003.png"], ["--tag", "mine", "--cutoff"], ["red", "--from", "2024-13"],
        ["red", "--to", "may"],
    ):  # fmt: skip
        assert visterm("search", path, *arguments)[0] != 0, arguments


@pytest.mark.parametrize(
    ("options", "wording"),
    [
        ({}, "Missing argument WORDS. Pass WORDS, a photo as --like, or a filter."),
        ({"words": "red", "like": "003.png"}, "WORDS and --like do not go together. Leave one of the two out."),
        ({"words": "red", "expand": ["odd"]}, "--expand is 'odd'; expected one of: parts, siblings."),
        ({"words": "red", "min-confidence": 2}, "--min-confidence is 2; expected a number of 0 or more and below 1."),
    ],
    ids=["nothing", "two", "a choice", "a number"],
)
def test_the_command_and_python_say_what_cannot_be_searched_with_their_own_names(options, wording, catalogue, tmp_path):
    words = [options["words"]] if "words" in options else []
    typed = [text for name, value in options.items() if name != "words" for text in (f"--{name}", value)]
    typed = [text[0] if isinstance(text, list) else text for text in typed]
    assert run_command(["search", tmp_path / "catalogue", *words, *typed]).stderr == f"visterm: {wording}\n"
    with pytest.raises(UserError) as info:
        search_run(
            tmp_path / "catalogue", SearchRequest(**{name.replace("-", "_"): value for name, value in options.items()})
        )
    in_python = wording.replace("--min-confidence", "min_confidence").replace("--expand", "expand")
    assert str(info.value).replace("`", "") == in_python.replace("--like", "like").replace("WORDS", "words")


def test_a_search_sees_a_run_that_another_process_made_current(catalogue, tmp_path):
    opened = Catalogue.load(tmp_path / "catalogue")
    tags = {f"{i:03d}.png": [["even", "odd"][i % 2]] for i in range(12)}
    other = fit_run(tmp_path / "photos", tags, tmp_path / "other")
    catalogue.use(Tagger.load(other, n_jobs=1))
    assert len(opened.search("even", 0).hits) == 12
    assert opened.tagger.fingerprint == catalogue.tagger.fingerprint
    assert Origin(str(other), opened.tagger.fingerprint, opened.tagger.encoder.fingerprint) == opened.stored.origin


def test_a_search_reads_no_more_of_the_run_than_it_needs(tmp_path):
    tiny = make_tiny_catalogue(tmp_path)
    opened = Catalogue.load(tiny.folder)
    assert opened.search("dots").hits
    assert not {"learned_images", "relations", "skipped"} & vars(opened.tagger).keys()
    opened.tagger.save(tmp_path / "copy")
    copy = Tagger.load(tmp_path / "copy")
    assert copy.learned_images.count([str(path) for path in tiny.photos.iterdir()]) == 24
    shutil.rmtree(tmp_path / "copy")
    copy.save(tmp_path / "again")  # a run that was opened by itself needs its folder no more
    assert Tagger.load(tmp_path / "again").fingerprint == opened.tagger.fingerprint
