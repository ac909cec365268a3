"""Pooled features of any network of timm, by name, with weights from a file on this machine."""

from __future__ import annotations

import os

from visterm.core.errors import UserError
from visterm.core.types import RandomState
from visterm.encoders.network import NetworkEncoder
from visterm.encoders.preparation import as_size
from visterm.encoders.timm_model import HUB_FILES, cached_weights, open_timm, timm_config, timm_preparation
from visterm.encoders.torch_network import TorchNetwork


class Timm(NetworkEncoder):
    """Feature rows from a network of timm, as it pools them before its classes.

    What the network wants to see (size, colours, filter, crop) is what timm says of it. Rows are made as by `Onnx`.
    Nothing is downloaded: without `weights`, the file is taken from the hub's cache on this machine if it is there,
    and else the error says what to get.

    Parameters
    ----------
    network : str
        As timm lists it: ``"resnet18"``, or with the name of its weights, ``"resnet18.a1_in1k"``.
    weights : path-like, optional
        The file of the network's weights, ``.safetensors`` or of torch. Of torch's only weights are read: a file that
        holds anything else is refused, not run.
    views : {"three", "whole", "centre", "trained"}
        What of a photo is shown, as by `Onnx`; "trained" is what timm shows when it evaluates the network.
    root, centre, normalise : bool
        As of `Onnx`.
    size : int or tuple of int, optional
        Side of the pictures, or height and width. None: what timm says. Larger pictures take longer.
    device : str
        "auto": a GPU if there is one; "cpu", "cuda", "cuda:1", "mps". It does not change rows beyond rounding.
    random_state : int, RandomState, Generator or None
        Draws the training photos from which the mean is learned, if there are more than `fit_images`.
    batch_size : int
        Photos held in memory at a time, and on a GPU shown at once.
    n_jobs : int, optional
        Threads; None is all cores. The same bytes for any number.

    Attributes
    ----------
    centre_, rooted_, network_sha256_, network_path_
        As of `Onnx`; the file is that of the weights.
    """

    argument = "network"
    file_parameter = "weights"
    speed_params = ("n_jobs", "batch_size", "device")

    def __init__(
        self,
        *,
        network: str | None = None,
        weights: str | os.PathLike[str] | None = None,
        views: str = "three",
        root: bool = True,
        centre: bool = True,
        normalise: bool = True,
        size: int | tuple[int, int] | None = None,
        device: str = "auto",
        random_state: RandomState = 0,
        batch_size: int = 32,
        n_jobs: int | None = None,
    ) -> None:
        self.network = network
        self.weights = weights
        self.views = views
        self.root = root
        self.centre = centre
        self.normalise = normalise
        self.size = size
        self.device = device
        self.random_state = random_state
        self.batch_size = batch_size
        self.n_jobs = n_jobs

    def _place(self) -> str | None:
        if self.weights is not None:
            return os.fspath(self.weights)
        return None if self.network is None else cached_weights(timm_config(self.network))

    def _no_place(self) -> UserError:
        repo = timm_config(self._network_name()).hf_hub_id
        get = f"hf download {repo} {HUB_FILES[0]}" if repo else "timm names none for it, so give your own"
        return UserError(
            f"The timm network '{self.network}' needs its weights, and visterm downloads nothing: {get}. On this "
            "machine that puts them where they are found; a file from elsewhere is given by --encoder-set weights=PATH."
        )

    def _network_name(self) -> str:
        if self.network is None:
            raise UserError("The timm encoder needs the name of a network: --encoder timm:resnet18, or network=...")
        return self.network

    def _open_file(self, path: str) -> TorchNetwork:
        name = self._network_name()
        size = None if self.size is None else as_size(self.size)
        preparation = timm_preparation(timm_config(name), size)
        what = f"The output of timm's '{name}'"
        return TorchNetwork(open_timm(name, path, size), preparation, device=self.device, what=what)
