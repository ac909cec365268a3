"""An hour of a photographer in real Chromium, with fewer photos than `benchmarks/photographers_hour.py` has."""

from __future__ import annotations

from photographers_hour import Hour, make_library
from served_library import served
from test_pages import Window

FIT = "--encoder visterms --encoder-set max_side=64 --encoder-set codebook=60 --model ridge"
N_PHOTOS, N_COPIES, N_CHOSEN, N_ANSWERS = 150, 8, 12, 10


def test_find_correct_resolve_review_learn_compare_and_go_back(browser, artefacts, tmp_path):
    catalogue, truth = make_library(tmp_path, N_PHOTOS, N_COPIES, FIT)
    with served(catalogue) as address:
        context = browser.new_context(viewport={"width": 1400, "height": 860})
        window = Window(context, address, artefacts)
        hour = Hour(window, truth)
        hour.play(N_CHOSEN, N_ANSWERS)
        context.close()
    assert window.complaints == []
    assert hour.stumbles == []
    assert hour.said["photos with the new tag"] == N_CHOSEN
    assert hour.said["groups of duplicates"] >= N_COPIES
    assert hour.said["groups left"] == 0
    assert hour.said["run in use"].startswith("Run 1 ")
