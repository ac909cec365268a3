"""A union searched through Ray: catalogues are opened by actors, and what is found is what one process finds."""

from __future__ import annotations

import shutil

import pytest

from command_line import visterm
from tiny_catalogues import draw_photos, fit_run
from visterm import Catalogue, Tagger
from visterm.cluster import RayExecutor
from visterm.core.errors import DataError, EncoderMismatchError, StorageError
from visterm.library.union import CatalogueUnion
from visterm.store.filters import Filter

ray = pytest.importorskip("ray", reason="wants the extra ray")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two catalogues of twelve photos each, and a union of them."""
    folder = tmp_path_factory.mktemp("union")
    tags = draw_photos(folder / "photos")
    tagger = Tagger.load(fit_run(folder / "photos", tags, folder / "run"), n_jobs=1)
    paths = sorted((folder / "photos").iterdir())
    for name, part in (("one", paths[:12]), ("two", paths[12:])):
        Catalogue.create(folder / name, tagger).add(part, [tags[path.name] for path in part])
    with CatalogueUnion([folder / "one", folder / "two"]) as union:
        union.save(folder / "both")
    return folder


@pytest.fixture(scope="module")
def there(ray_engine, folder):
    with CatalogueUnion.load(folder / "both", executor=RayExecutor("local")) as there:
        yield there


def test_answers_are_those_of_one_process(there, folder):
    with CatalogueUnion.load(folder / "both") as here:
        assert (len(there), there.counts()) == (24, [12, 12])
        for words, how in [("red", {}), ("cool -blue", {"k": 0}), ("warm", {"among": Filter(tags=("red",))})]:
            assert there.search(words, **how) == here.search(words, **how)
        assert there.like("013.png", 5) == here.like("013.png", 5)
        assert there.browse(Filter(tags=("red",)), 0) == here.browse(Filter(tags=("red",)), 0)


@pytest.mark.slow
def test_errors_are_those_of_one_process(there, folder, tmp_path):
    with pytest.raises(DataError, match="is called so"):
        there.like("nowhere.png")
    shutil.copytree(folder / "one", tmp_path / "other")
    other = Catalogue.load(tmp_path / "other", n_jobs=1)
    other.give(1, ["red"])
    other.learn(full=True)
    with pytest.raises(EncoderMismatchError, match="other has another run"):
        CatalogueUnion([folder / "one", tmp_path / "other"], executor=RayExecutor("local"))
    with pytest.raises(StorageError, match="finds nothing at"):
        CatalogueUnion([folder / "one", tmp_path / "none"], executor=RayExecutor("local"))


def test_an_actor_that_dies_is_started_again_and_its_question_asked_anew(there):
    before = there.search("red", 0)
    ray.kill(there._shards._actors[1], no_restart=False)
    assert there.search("red", 0) == before


@pytest.mark.usefixtures("ray_engine")
def test_the_command_prints_what_it_prints_without_ray(folder):
    assert visterm("search both 'red -blue' --json --ray local", folder) == visterm(
        "search both 'red -blue' --json", folder
    )


def test_a_single_catalogue_starts_no_engine(folder, monkeypatch):
    monkeypatch.setattr("visterm.cluster.engine.load_ray", lambda: pytest.fail("Ray was loaded"))
    code, out, told = visterm("search one red --ray local", folder)
    assert (code, out.count("\n")) == (0, 10)
    assert "--ray ignored: one catalogue is searched in this process." in told
    CatalogueUnion([folder / "one"]).save(folder / "single")
    code, _, told = visterm("search single red --ray local", folder)
    assert code == 0
    assert "--ray ignored: one catalogue is searched in this process." in told
