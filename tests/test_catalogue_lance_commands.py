"""`visterm index --store lance`: all that works on a catalogue works on one whose rows lie in Lance tables."""

from __future__ import annotations

import json
import os
import shutil
from importlib.util import find_spec

import pytest

from command_line import visterm
from tiny_catalogues import draw_photo, draw_photos, fit_run, write_tags
from visterm import Catalogue, Tagger
from visterm.store.filters import Filter

if find_spec("lancedb") is None:
    pytest.skip("the extra lance is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lance")
    tags = draw_photos(folder / "photos")
    write_tags(folder / "tags.csv", tags)
    fit_run(folder / "photos", tags, folder / "run")
    fit_run(folder / "photos", tags, folder / "better", seed=1)
    for name, store in (("files", ""), ("tables", "--store lance")):
        code, _, told = visterm(f"index run photos -o {name} --tags tags.csv {store}", folder)
        assert code == 0, told
    return folder


@pytest.fixture
def both(folder, tmp_path):
    """Copies of the two catalogues, to change."""
    for name in ("files", "tables"):
        shutil.copytree(folder / name, tmp_path / name)
    return Catalogue.load(tmp_path / "files", n_jobs=1), Catalogue.load(tmp_path / "tables", n_jobs=1)


@pytest.mark.parametrize(
    "asked",
    ["red", "'cool -blue' -k 0", "red --tag warm", "--like photos/003.png -k 4", "--like 003.png", "--tag blue"],
)
def test_searches_give_the_same_lines(folder, asked):
    found = [visterm(f"search {name} {asked} --json", folder) for name in ("files", "tables")]
    assert [code for code, _, _ in found] == [0, 0]
    hits = [[json.loads(line) for line in out.splitlines()] for _, out, _ in found]
    scores = [[hit.pop("score", 0.0) for hit in of_one] for of_one in hits]
    assert hits[0] == hits[1]
    assert hits[1]
    assert scores[0] == pytest.approx(scores[1], rel=1e-5)  # products of the same rows, in parts of other sizes
    assert found[0][2] == found[1][2]


def test_info_says_where_the_rows_are(folder):
    code, out, _ = visterm("info tables --json", folder)
    assert code == 0
    assert json.loads(out)["rows in"] == f"Lance tables at {folder / 'tables' / 'lance'}"
    assert json.loads(visterm("info files --json", folder)[1])["rows in"] == "files"


def test_learning_feedback_filters_and_another_run_work_as_with_files(both, folder):
    found = []
    for catalogue in both:
        catalogue.judge(1, "green", -1)
        catalogue.give(2, ["green"])
        first = catalogue.search("green", 0).hits
        catalogue.learn()
        learned = catalogue.search("green", 0, among=Filter(tags=("cool",))).hits
        catalogue.learn(full=True)
        catalogue.use(Tagger.load(folder / "better", n_jobs=1))
        found.append([first, learned, catalogue.search("green", 5).hits, catalogue.stored.compact(least=0.0)])
    assert found[0] == found[1]
    assert 1 not in {hit.id for hit in found[1][0]}


def test_new_changed_and_gone_photos_are_seen(both, folder, tmp_path):
    photos = tmp_path / "photos"
    shutil.copytree(folder / "photos", photos)
    for catalogue in both:
        catalogue.index(photos)
    (photos / "000.png").unlink()
    draw_photo(photos / "001.png", "red", 99)
    draw_photo(photos / "new.png", "red", 98)
    for catalogue in both:
        done = catalogue.index(photos)
        assert (done.new, done.changed, done.gone) == (1, 1, 1)
    found = [catalogue.search("red", 0, among=Filter(folder=str(photos))).hits for catalogue in both]
    assert found[0] == found[1]
    assert {"new.png", "001.png"} < {os.path.basename(hit.image) for hit in found[1][:8]}


def test_a_store_is_chosen_once(folder):
    code, _, told = visterm("index files photos --store lance", folder)
    assert code == 2
    assert "--store lance is for new catalogues, and this one keeps its rows in files" in told
    code, _, told = visterm("index run photos -o tables --store lance:elsewhere", folder)
    assert code == 2
    assert "keeps its rows in Lance tables at" in told
    assert visterm("index run photos -o tables --store lance", folder)[0] == 0
    code, _, told = visterm("index run photos -o new --store lanse", folder)
    assert code == 2
    assert "store is 'lanse'; expected files, lance or lance:URI" in told
    assert not (folder / "new").exists()


def test_tables_may_lie_elsewhere(folder):
    assert visterm("index run photos -o away --store lance:shelf/rows", folder)[0] == 0
    assert not (folder / "away" / "lance").exists()
    assert len(list((folder / "shelf" / "rows").iterdir())) == 1
    away, files = (visterm(f"search {name} red --json", folder)[1].splitlines() for name in ("away", "files"))
    assert [json.loads(line)["path"] for line in away] == [json.loads(line)["path"] for line in files]


def test_a_run_with_sparse_rows_is_refused_and_leaves_no_catalogue(folder):
    fit_run(folder / "photos", draw_photos(folder / "photos"), folder / "sparse", model="pamir")
    code, _, told = visterm("index sparse photos -o new --store lance", folder)
    assert code == 2
    assert "The rows are sparse, and a Lance table holds dense ones" in told
    assert not (folder / "new").exists()


def test_the_service_answers_from_tables_as_from_files(folder):
    testclient = pytest.importorskip("starlette.testclient", reason="the extra web is not installed")
    from visterm.web.app import create_app

    picture = (folder / "photos" / "004.png").read_bytes()
    found = []
    for name in ("files", "tables"):
        with testclient.TestClient(create_app(folder / name), base_url="http://127.0.0.1:8080") as client:
            found.append(
                [
                    client.get("/api/v1/search", params={"q": "red"}).json()["hits"],
                    client.get("/api/v1/search", params={"like": 3}).json()["hits"],
                    client.post("/api/v1/similar", content=picture, headers={"content-type": "image/png"}).json()[
                        "hits"
                    ],
                ]
            )
    assert found[0] == found[1]
    assert all(found[1])
