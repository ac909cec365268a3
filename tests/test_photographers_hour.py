"""An hour of a photographer in real Chromium, with fewer photos than `benchmarks/photographers_hour.py` has."""

from __future__ import annotations

import pytest

from photographers_hour import Hour, make_library, served_folder
from served_library import served
from test_pages import Window

FIT = "--encoder visterms --encoder-set max_side=64 --encoder-set codebook=60 --model ridge"
N_PHOTOS, N_COPIES, N_CHOSEN, N_ANSWERS, N_IN_GRIDS = 150, 8, 12, 10, 30


def test_find_correct_resolve_review_learn_compare_go_back_write_and_undo(browser, artefacts, tmp_path):
    catalogue, truth = make_library(tmp_path, N_PHOTOS, N_COPIES, FIT)
    with served(catalogue) as address:
        context = browser.new_context(viewport={"width": 1400, "height": 860})
        window = Window(context, address, artefacts)
        hour = Hour(window, truth)
        hour.play(N_CHOSEN, N_ANSWERS, N_IN_GRIDS)
        context.close()
    assert window.complaints == []
    assert hour.stumbles == []
    assert hour.said["photos with the new tag"] == N_CHOSEN
    assert hour.said["groups of duplicates"] >= N_COPIES
    assert hour.said["groups left"] == 0
    assert hour.said["run in use"].startswith("Run 1 ")
    assert hour.said["judgements in grids"] > 0
    assert hour.said["show what would be written"].startswith("Would add ")
    assert hour.said["write it"].startswith("Added ")
    assert not [*(tmp_path / "Meine Fotos").rglob("*.xmp")]
    figures = hour.figures()
    assert {"start to learn", "start to look for duplicates", "start to write it"} <= figures["steps"].keys()
    assert {"GET /", "POST /review", "POST /review/grid", "POST /write", "POST /write/N"} <= figures["answers"].keys()
    assert all(found["p95 ms"] <= found["longest ms"] for found in figures["answers"].values())


@pytest.mark.slow
def test_the_hour_begins_with_a_folder_of_photos(browser, artefacts, tmp_path):
    with served_folder(tmp_path, 60, 2) as (address, truth, began):
        context = browser.new_context(viewport={"width": 1400, "height": 860})
        hour = Hour(Window(context, address, artefacts), {})
        hour.begin(tmp_path / "catalogue", truth, began)
        context.close()
    assert len(hour.truth) == len(truth) == 62
    assert hour.said["seconds from the folder to the first search"] > 0
    assert hour.window.complaints == hour.stumbles == []
