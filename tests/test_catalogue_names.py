"""What photos of a catalogue are called: their paths inside the indexed folder, however it was indexed."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from command_line import visterm
from tiny_catalogues import draw_photo, draw_photos, fit_run, write_tags
from visterm import Catalogue, Tagger
from visterm.features.job import encode_folder
from visterm.library.search.request import SearchRequest, search_run
from visterm.store.filters import Filter
from visterm.web.app import create_app

TINY = Path(__file__).parent / "data" / "tiny"
NAMES = ["Hunde/c.png", "Katzen/a.png", "b.png"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return fit_run(folder / "photos", draw_photos(folder / "photos", seed=7), folder / "run")


@pytest.fixture
def home(run, tmp_path):
    """A folder with a run, photos and a tag file that names one of them."""
    shutil.copytree(run, tmp_path / "run")
    for number, name in enumerate(NAMES):
        draw_photo(tmp_path / "Fotos" / name, ["red", "green", "blue"][number], number)
    write_tags(tmp_path / "tags.csv", {"a.png": ["cat"]})
    return tmp_path


def lines(command, home):
    code, out, err = visterm(command, home)
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()], err


def names(home):
    return sorted(hit["image"] for hit in lines("search catalogue red -k 0 --json", home)[0])


def in_folder(home, folder):
    """Return the names of photos in a folder, named from where the commands run."""
    with contextlib.chdir(home):
        request = SearchRequest(words="red", k=0, among=Filter(folder=str(folder)))
        hits = search_run(Path("catalogue"), request).found.hits
    return sorted(hit.image for hit in hits)


@pytest.mark.parametrize(
    "how", ["Fotos", "./Fotos/", "{home}/Fotos", "Fotos --tags tags.csv", "features", "features --tags tags.csv"]
)
def test_names_are_paths_inside_the_indexed_folder_however_it_is_indexed(home, how):
    encode_folder(home / "Fotos", home / "features", run=home / "run", n_jobs=1)
    _, err = lines(f"index run {how.format(home=home)} -o catalogue", home)
    assert names(home) == NAMES
    paths = {hit["image"]: hit["path"] for hit in lines("search catalogue red --json -k 0", home)[0]}
    assert paths["Katzen/a.png"] == str(home / "Fotos" / "Katzen" / "a.png")
    for folder in ("Katzen", home / "Fotos" / "Katzen", "Fotos/Katzen"):
        assert in_folder(home, folder) == [NAMES[1]]
    assert len(lines("search catalogue --like Katzen/a.png --json", home)[0]) == 2
    tags = {image.name: [tag.tag for tag in image_tags] for image, image_tags in given(home)}
    assert tags == {"Katzen/a.png": ["cat"] if "--tags" in how else [], "b.png": [], "Hunde/c.png": []}
    if "--tags" in how:
        assert "Without tags: 2 of 3 photos (such as 'Hunde/c.png'), not named by the tags." in err
        assert "Left out" not in err


def given(home):
    catalogue = Catalogue.load(home / "catalogue", n_jobs=1)
    return [(record, catalogue.image(record.id).given) for record in catalogue.records]


def test_exports_name_photos_as_searches_do(home):
    lines("index run Fotos -o catalogue", home)
    lines("export catalogue --to csv -o out.csv -k 1", home)
    assert sorted(line.split(",")[0] for line in (home / "out.csv").read_text().splitlines()[1:]) == NAMES
    written, _ = lines("export catalogue --to xmp -k 1 --json", home)
    undone, _ = lines("export catalogue --to xmp --undo --json", home)
    for changes in (written, undone):
        assert sorted(change["image"] for change in changes if "image" in change) == NAMES


def test_the_page_names_folders_as_photos_are_named(home):
    lines("index run Fotos -o catalogue", home)
    ids = {hit["image"]: hit["id"] for hit in lines("search catalogue red -k 0 --json", home)[0]}
    with TestClient(create_app(home / "catalogue"), base_url="http://127.0.0.1") as client:
        page = client.get("/").text
        folders = page.partition('<select name="folder">')[2].partition("</select>")[0]
        assert re.findall(r'<option value="(\w+)"', folders) == ["Hunde", "Katzen"]
        assert 'href="/?folder=Katzen"' in client.get(f"/image/{ids['Katzen/a.png']}").text
        found = set(re.findall(r'href="/image/(\d+)', client.get("/?folder=Katzen").text))
        assert found == {str(ids["Katzen/a.png"])}
        assert str(home / "Fotos") in client.get(f"/image/{ids['b.png']}").text


def test_photos_that_a_second_tag_file_does_not_name_keep_their_tags(home):
    lines("index run Fotos -o catalogue --tags tags.csv", home)
    write_tags(home / "more.csv", {"b.png": ["bird"]})
    lines("index catalogue Fotos --tags more.csv", home)
    assert {image.name: [tag.tag for tag in tags] for image, tags in given(home)} == {
        "Katzen/a.png": ["cat"], "b.png": ["bird"], "Hunde/c.png": []
    }  # fmt: skip


def test_hidden_and_thumbnail_folders_are_left_out_and_counted_in_one_line(home):
    for folder in ("@eaDir", "Katzen/@eaDir", ".thumbnails", "#recycle", ".git"):
        draw_photo(home / "Fotos" / folder / "x.png", "red", 9)
    for tags in ("", "--tags tags.csv"):
        _, err = lines(f"index run Fotos -o catalogue {tags}", home)
        assert err.count("Not searched: 5 hidden or thumbnail folders (such as '#recycle').") == 1
    assert names(home) == NAMES


def test_photos_of_a_second_folder_are_named_with_it_and_those_of_the_first_stay(home):
    draw_photo(home / "Urlaub" / "b.png", "red", 20)
    draw_photo(home / "mehr" / "Urlaub" / "b.png", "red", 21)
    for folder in ("Fotos", "Urlaub", "mehr/Urlaub", "Fotos/Katzen"):
        lines(f"index run {folder} -o catalogue", home)
    assert names(home) == [*NAMES[:2], "Urlaub/b.png", "b.png", "mehr/Urlaub/b.png"]
    assert in_folder(home, "mehr/Urlaub") == ["mehr/Urlaub/b.png"]


def test_a_folder_around_an_indexed_one_takes_over_its_photos(home):
    lines("index run Fotos/Katzen -o catalogue", home)
    assert names(home) == ["a.png"]
    lines("index catalogue Fotos", home)
    assert names(home) == NAMES


def test_a_library_that_was_moved_keeps_its_names(home):
    lines("index run Fotos -o catalogue", home)
    (home / "Fotos").rename(home / "Bilder")
    lines("index catalogue Bilder", home)
    assert names(home) == NAMES


def test_a_catalogue_written_before_finds_folders_and_is_named_anew_when_its_folder_is_indexed(tmp_path):
    shutil.copytree(TINY, tmp_path / "before")
    catalogue = Catalogue.load(tmp_path / "before" / "catalogue", n_jobs=1)
    stored = catalogue.stored
    for record in catalogue.records:  # as an index without tags named them
        path = str(tmp_path / "before" / "images" / Path(record.path).name)
        stored.images.move(record.id, path, f"images/{record.name}", record.mtime_ns)
    assert len(in_folder(tmp_path / "before", "images")) == len(catalogue)
    catalogue.index(tmp_path / "before" / "images")
    assert {record.name for record in catalogue.records} == {path.name for path in (TINY / "images").iterdir()}


def test_single_photos_outside_of_all_folders_keep_the_names_they_were_given(run, home):
    catalogue = Catalogue.create(home / "catalogue", Tagger.load(run, n_jobs=1))
    catalogue.index([home / "Fotos" / "b.png"])
    assert [record.name for record in catalogue.records] == [str(home / "Fotos" / "b.png")]
    catalogue.index(home / "Fotos" / "Katzen")
    catalogue.index([home / "Fotos" / "Katzen" / "a.png"])
    assert [record.name for record in catalogue.records] == [str(home / "Fotos" / "b.png"), "a.png"]
