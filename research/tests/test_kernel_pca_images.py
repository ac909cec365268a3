"""Kernel PCA opens a sample of the images and no others."""

from __future__ import annotations

import numpy as np
from PIL import Image

from visterm.data.image_folders import ListedImages
from visterm.encoders import make_encoder


def test_kernel_pca_opens_a_sample_of_the_images_alone(tmp_path, monkeypatch):
    """Of 200,000 images, of which most are not even there, only those drawn are opened."""
    n, drawn = 200_000, 6
    inner = ["histograms", {"textons": 4, "sample_pixels": 300}]
    encoder = make_encoder("kernel_pca", {"encoder": inner, "dim": 3, "landmarks": 4}, {"random_state": 3, "n_jobs": 1})
    monkeypatch.setattr(type(encoder), "max_fit_images", drawn)
    monkeypatch.setattr("visterm_research.encoders.histograms.Histograms.max_fit_images", drawn)
    rng = np.random.default_rng(0)
    for i in np.random.default_rng(3).permutation(n)[:drawn].tolist():
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)).save(tmp_path / f"{i}.png")
    encoder.fit(ListedImages(tmp_path, [f"{i}.png" for i in range(n)]))  # one that is not there would be an error
