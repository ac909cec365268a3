"""Long lists of images: by their names, in an eighth of the memory that paths take, and learned from in samples."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
from PIL import Image

from visterm.data.image_folders import ListedImages, find_images, image_names, images_in
from visterm.encoders.named import make_encoder


def test_names_are_those_of_the_images_found_sorted_and_nothing_hidden(tmp_path, monkeypatch):
    for name in ("b.jpg", "a-b/c.PNG", "a/d.jpg", "a/.hidden.jpg", ".h/e.jpg", "a/notes.txt", "a/b/f.webp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    expected = ["a-b/c.PNG", "a/b/f.webp", "a/d.jpg", "b.jpg"]
    assert image_names(tmp_path) == expected
    assert images_in(tmp_path) == find_images(tmp_path) == [tmp_path / name for name in expected]
    monkeypatch.chdir(tmp_path)
    assert images_in(".") == [Path(name) for name in expected]


def test_a_listed_image_is_a_path_when_it_is_requested(tmp_path):
    listed = ListedImages(tmp_path, ["a.jpg", "b/c.jpg", "d.jpg"])
    assert len(listed) == 3
    assert listed[np.int64(1)] == tmp_path / "b/c.jpg"
    assert listed[1:] == [tmp_path / "b/c.jpg", tmp_path / "d.jpg"]
    assert list(listed) == [tmp_path / name for name in ("a.jpg", "b/c.jpg", "d.jpg")]


def test_a_list_of_images_takes_little_more_than_their_names(tmp_path):
    for number in range(2000):
        (tmp_path / f"{number:05}.jpg").touch()
    image_names(tmp_path)
    tracemalloc.start()
    try:
        listed = ListedImages(tmp_path, image_names(tmp_path))
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(listed) == 2000
    assert held < 2000 * 100
    assert peak < 2000 * 300


def test_a_codebook_opens_a_sample_of_the_images_alone(tmp_path, monkeypatch):
    """Of 200,000 images, of which most are not even there, only those drawn are opened."""
    n, drawn = 200_000, 6
    params = {"codebook": 8, "colours": 4, "sample_blocks": 200}
    encoder = make_encoder("visterms", params, {"random_state": 3, "n_jobs": 1})
    monkeypatch.setattr(type(encoder), "max_fit_images", drawn)
    listed = ListedImages(tmp_path, [f"{i}.png" for i in range(n)])
    rng = np.random.default_rng(0)
    for i in np.random.default_rng(3).permutation(n)[:drawn].tolist():
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)).save(tmp_path / f"{i}.png")
    encoder.fit(listed)  # one that is not there would be an error
