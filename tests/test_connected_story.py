"""The story of docs/connect.md, on photos that are drawn: what a person did stays, what visterm wrote is taken back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from connected_story import drawn_pictures, tell
from fakes.immich import FakeImmich
from fakes.photoprism import FakePhotoPrism
from visterm.connectors import keys

FAKES = {"immich": FakeImmich, "photoprism": FakePhotoPrism}
DOCS = Path(__file__).parents[1] / "docs"
WROTE = ("synced", "synced again")
N_PHOTOS, N_TAGGED, N_CORRECTED = 160, 110, 20
QUICK = "--encoder visterms --encoder-set max_side=64 --encoder-set codebook=100 --model ridge"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return drawn_pictures(tmp_path_factory.mktemp("drawn"), N_PHOTOS)


@pytest.mark.parametrize("name", FAKES)
def test_the_whole_story_leaves_what_people_did_and_nothing_else(name, pictures, tmp_path, monkeypatch):
    monkeypatch.setenv(keys.ALLOWED_VARIABLE, str(tmp_path / "connected.json"))
    with FAKES[name]() as fake:
        told = tell(fake, tmp_path, pictures, n_tagged=N_TAGGED, n_corrected=N_CORRECTED, options=QUICK, precision=0.7)
    assert len(told.removed) == len(told.added) == N_CORRECTED // 2
    first, again = told.written("synced"), told.written("synced again")
    assert len(first) > N_CORRECTED
    assert sum(map(told.is_right, first)) > len(first) / 4

    people = {photo: set(tags) for photo, tags in told.states["tagged"].items()}
    for part in ("synced", "corrected", "synced again", "nothing new", "undone"):  # no person's tag is ever taken
        assert all(people[photo] <= tags for photo, tags in told.states[part].items()), part
    for photo, tag in told.added:
        people[photo].add(tag)
        assert f"visterm/{tag}" not in told.states["synced again"][photo]
    assert again.isdisjoint(told.removed)
    assert again
    assert told.states["nothing new"] == told.states["synced again"]
    assert told.states["undone"] == people
    adds = [(photo, tag.casefold()) for what, photo, tag in fake.writes if what == "add"]
    ours = [pair for pair in adds if pair not in told.added]
    assert len(set(ours)) == len(ours) >= len(first)  # none was written twice


def test_the_page_has_the_figures_of_the_program():
    found = json.loads((DOCS / "figures" / "connected_story.json").read_text(encoding="utf-8"))
    page = (DOCS / "connect.md").read_text(encoding="utf-8")
    for name, title in (("immich", "Immich"), ("photoprism", "PhotoPrism")):
        figures = found[name]
        assert figures["taken off by the person"] == figures["given by the person"] == 10
        assert figures["of these written again"] == figures["differences after undo"] == 0
        wrote = [f"{figures[part]['tags of visterm']:,}, {figures[part]['right']:,} right" for part in WROTE]
        requests = [f"{figures['requests'][part]:,}" for part in ("connected", "synced", "synced again", "undone")]
        assert f"| {title} | {' | '.join(wrote)} | none | none | {', '.join(requests)} |" in page
