"""The feature map that an output of an ONNX network is the average of, where it is one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.encoders.network_file import read_network
from visterm.encoders.onnx_graph import averaged_into, giving_out
from visterm.encoders.onnx_network import OnnxNetwork, open_session
from visterm.encoders.pooling import map_averaging_to


class OnnxMaps:
    """Gives the feature maps behind a network's rows.

    Parameters
    ----------
    network : OnnxNetwork
        Opened a second time, with the tensors behind its output given out too.
    """

    def __init__(self, network: OnnxNetwork) -> None:
        self._network = network
        model = read_network(network.path)
        behind = averaged_into(model, network.output)
        self._names = [network.output, *behind]
        new = [name for name in behind if name not in network.outputs]
        self._session = open_session(network.path, giving_out(model, new))

    def __call__(self, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the map of one picture.

        Parameters
        ----------
        picture : ndarray of uint8, shape (height, width, 3)
            Of the network's size.

        Returns
        -------
        ndarray of float32, shape (rows, columns, n_features)
            Its mean over rows and columns is the row of the picture.

        Raises
        ------
        UserError
            If the output is not the average of a map.
        """
        network = self._network
        fed = network.feed(picture)
        given = self._session.run(self._names, fed)
        what = f"The output '{network.output}' of {network.path}"
        row = network.pooled(np.asarray(given[0]))[0]
        for tensor in given:
            found = map_averaging_to(np.asarray(tensor)[0], row)
            if found is not None:
                return found
        raise UserError(
            f"{what} is not the average over places of a feature map, so its numbers come from no place of the "
            "picture. Fit with an output that is (--encoder-set output=NAME: one of maps, or one whose last step is "
            "average pooling), or with the encoder 'visterms'."
        )
