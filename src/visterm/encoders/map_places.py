"""Which places of a photo a network's row comes from: each cell of the feature maps that were averaged into it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.encoders.network import NetworkEncoder
from visterm.encoders.network_file import read_network
from visterm.encoders.onnx_graph import averaged_into, giving_out
from visterm.encoders.onnx_network import OnnxNetwork, open_session, run_session
from visterm.encoders.places import Places
from visterm.encoders.pooling import map_averaging_to
from visterm.encoders.preparation import Preparation, boxes_of, views_of


def map_places(
    encoder: NetworkEncoder,
    photo: NDArray[np.uint8],
    preparation: Preparation,
    map_of: Callable[[NDArray[np.uint8]], NDArray[np.float32]],
) -> Places:
    """Return the row of a photo by the cells of its feature maps: rectangles, though what they saw reaches further.

    Without the root the row is ``(Σ m_p / P - c) / L`` over the P cells of all views: ``m_p / (P L)`` is what a cell
    gave, and ``-c / L`` comes from no place. The length L is one number of the photo. With the root, each feature ``√f
    / L`` is shared out among the cells in proportion to what they gave to ``f``. `map_of` returns the map of a picture,
    (rows, columns, n_features). Raises UserError if roots are taken and a map is negative somewhere: then it has no
    parts that are shares.
    """
    height, width = photo.shape[:2]
    maps = [map_of(picture).astype(np.float64) for picture in views_of(photo, preparation, encoder.views)]
    boxes = [
        _cells((0, 0, width, height) if box is None else box, found.shape[:2]) / [width, height, width, height]
        for box, found in zip(boxes_of((width, height), preparation, encoder.views), maps, strict=True)
    ]
    cells = np.concatenate([found.reshape(-1, found.shape[2]) / found[..., 0].size for found in maps]) / len(maps)
    mean = cells.sum(axis=0)
    row = mean.copy()
    if encoder.rooted_:
        if cells.min() < 0:
            raise UserError(
                f"The network's feature map has values below 0 (down to {cells.min() * len(cells):.3g}), and this run "
                "takes square roots of their averages, which have no parts then. Fit with --encoder-set root=False."
            )
        row = np.sqrt(mean)
        cells *= np.divide(row, mean, out=np.zeros_like(mean), where=mean > 0)
    centre = encoder.centre_.astype(np.float64)
    length = float(np.linalg.norm(row - centre)) if encoder.normalise else 1.0
    length = length or 1.0
    source = "the mean of the training photos, subtracted" if encoder.centre else ""
    return Places(np.concatenate(boxes), cells / length, -centre / length, "cell", "feature", source)


def onnx_maps(network: OnnxNetwork) -> Callable[[NDArray[np.uint8]], NDArray[np.float32]]:
    """Return the function from a picture to the feature map whose mean over places is the picture's row.

    `network` is opened a second time, with the tensors behind its output given out too. The function raises UserError
    if the output is not the average of a map.
    """
    model = read_network(network.path)
    behind = averaged_into(model, network.output)
    given_out = [name for name in (network.output, *behind) if name not in network.outputs]
    session = open_session(network.path, giving_out(model, given_out))

    def map_of(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        given = run_session(session, network.path, [network.output, *behind], network.feed(picture))
        row = network.pooled(given[0])[0]
        for tensor in given:
            found = map_averaging_to(tensor[0], row)
            if found is not None:
                return found
        raise UserError(
            f"The output '{network.output}' of {network.path} is not the average over places of a feature map, so its "
            "numbers come from no place of the picture. Fit with an output that is (--encoder-set output=NAME: one of "
            "maps, or one whose last step is average pooling), or with the encoder 'visterms'."
        )

    return map_of


def _cells(box: tuple[float, float, float, float], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Cut a rectangle into rows × columns, shape (rows · columns, 4)."""
    left, top, right, bottom = box
    rows, columns = np.linspace(top, bottom, shape[0] + 1), np.linspace(left, right, shape[1] + 1)
    sides = (columns[None, :-1], rows[:-1, None], columns[None, 1:], rows[1:, None])
    return np.stack([np.broadcast_to(side, (shape[0], shape[1])).ravel() for side in sides], axis=1)
