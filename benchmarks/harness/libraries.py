"""Visterms from parts of well-known libraries: scikit-image's LBP and scikit-learn's MiniBatchKMeans."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from skimage.color import rgb2lab
from skimage.feature import local_binary_pattern
from sklearn.cluster import MiniBatchKMeans

from visterm.encoders.blocks import pixel_codes
from visterm.kernels.nearest import nearest_words
from visterm.kernels.pixels import block_edges, colour_codes, gray_levels, lbp_codes
from visterm_research.scenes import draw_library

PHOTOS = Path(__file__).resolve().parents[3] / "shared" / "data" / "corel5k"


def photos(n, folder):
    """List photos of the training split, or draw scenes where the data are absent."""
    if PHOTOS.is_dir():
        rows = [line.split("\t") for line in (PHOTOS / "labels.tsv").read_text().splitlines()[1:]]
        return [PHOTOS / "images" / name for name, split, _ in rows if split == "train"][:n], "corel5k"
    return sorted(draw_library(folder, n_scenes=n).images.glob("*.jpg")), "drawn"


class Libraries:
    """The same features from parts of well-known libraries: one word a block."""

    def __init__(self, encoder):
        self.encoder = encoder
        self.words = []
        ends = np.cumsum(encoder.scale_words_)
        for end, n in zip(ends, encoder.scale_words_, strict=True):
            words = MiniBatchKMeans(int(n), n_init=1, init=encoder.codebook_[end - n : end], max_iter=1)
            words.fit(encoder.codebook_[end - n : end])
            self.words.append(words)

    def encode(self, photos):
        """Return the rows of photos, files or arrays."""
        counts = np.zeros((len(photos), len(self.encoder.codebook_)), np.float32)
        points = [[] for _ in self.words]
        owners = [[] for _ in self.words]
        for i, given in enumerate(photos):
            photo = Image.fromarray(given) if isinstance(given, np.ndarray) else Image.open(given).convert("RGB")
            texture = self.texture(photo)
            nearest = self.nearest_colours(photo)
            for number, scale in enumerate(self.encoder.scales):
                blocks = self.histograms(texture, nearest, self.encoder.block * scale)
                points[number].append(blocks)
                owners[number].append(np.full(len(blocks), i))
        first = 0
        for words, of_scale, owner in zip(self.words, points, owners, strict=True):
            found = words.predict(np.concatenate(of_scale))
            np.add.at(counts, (np.concatenate(owner), found + first), 1)
            first += words.n_clusters
        rows = np.sqrt(counts) * self.encoder.idf_
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)

    def texture(self, photo):
        return local_binary_pattern(np.array(photo.convert("L")), 8, 2, method="nri_uniform").astype(int)

    def nearest_colours(self, photo):
        colours = self.encoder.colours_
        lab = rgb2lab(np.array(photo)).reshape(-1, 3).astype(np.float32)
        nearest = (lab @ colours.T - np.square(colours).sum(axis=1) / 2).argmax(axis=1)
        return nearest.reshape(photo.height, photo.width)

    def histograms(self, texture, colour, side):
        stride = max(texture.shape) * side / 2
        rows, cols = (block_edges(length, stride) for length in texture.shape)
        n_colours = len(self.encoder.colours_)
        blocks = []
        for top, bottom in zip(rows, rows[2:], strict=False):
            for left, right in zip(cols, cols[2:], strict=False):
                block = (slice(top, bottom), slice(left, right))
                of_texture = np.bincount(texture[block].ravel(), minlength=59)
                of_colour = np.bincount(colour[block].ravel(), minlength=n_colours)
                blocks.append(np.concatenate([of_texture * self.encoder.texture_weight**2, of_colour]))
        blocks = np.array(blocks, np.float32)
        return np.sqrt(blocks / blocks[:, 59:].sum(axis=1, keepdims=True))


def parts(encoder, libraries, arrays):
    """Return, for each step from pixels to words, what ours and theirs call for all photos."""
    pictures = [Image.fromarray(pixels) for pixels in arrays]
    table, finder = encoder._table(), encoder._finder_and_pyramid()[0]
    codes = [pixel_codes(pixels, table) for pixels in arrays]
    scales = range(len(encoder.scales))
    prepared = [find.keywords["prepared"] for find in finder._find_nearest]
    blocks = [[finder.cutter.points(code, scale) for scale in scales] for code in codes]
    together = [np.concatenate([of_photo[scale] for of_photo in blocks]) for scale in scales]
    return {
        "texture": (
            lambda: [lbp_codes(gray_levels(pixels)) for pixels in arrays],
            lambda: [libraries.texture(picture) for picture in pictures],
        ),
        "colours": (
            lambda: [colour_codes(pixels, table) for pixels in arrays],
            lambda: [libraries.nearest_colours(picture) for picture in pictures],
        ),
        "assignment": (
            lambda: [nearest_words(p, prepared[s], 1) for of_photo in blocks for s, p in enumerate(of_photo)],
            lambda: [words.predict(points) for words, points in zip(libraries.words, together, strict=True)],
        ),
    }
