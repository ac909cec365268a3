"""One torch network, ready to run: on the processor one picture a call, on a GPU as many as there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from visterm.encoders import NetworkEncoder, Pixels, Preparation, pooled, torch_device

_TURN = RLock()


class TorchEncoder(NetworkEncoder):
    """An encoder whose network is a `TorchNetwork`: torch is held to its settings while photos are shown."""

    def _open(self) -> TorchNetwork:
        return cast(TorchNetwork, super()._open())

    def _outputs(self, batch: list[Pixels]) -> NDArray[np.float32]:
        with self._open().running():
            return super()._outputs(batch)


class TorchNetwork:
    """A network's image tower, put on the device ("auto", "cpu" or another that torch knows) and into evaluation.

    On the processor each picture goes through alone, on the caller's thread: the same bytes for any number of threads
    and any company. A GPU takes all pictures at once; its rows differ from those by rounding alone, as nothing is
    computed in fewer bits than float32. `tower` returns the output for pictures (n, 3, height, width), as tensors; by
    default it is `module`. Messages call its output `what`. Raises UserError if torch has no such device here.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        preparation: Preparation,
        *,
        device: str,
        what: str,
        tower: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self.preparation = preparation
        self.device = torch_device(device)
        self.module = module.eval().requires_grad_(False).to(self.device)
        self._tower = tower or self.module
        self._what = what

    @property
    def is_batch_independent(self) -> bool:
        """Return whether a row has the same bytes beside any others: pictures go through one at a time there."""
        return str(self.device.type) == "cpu"

    @property
    def runs_on(self) -> str:
        """Return the name of the device."""
        return str(self.device)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold torch to one thread a caller, to full float32 and to repeatable kernels; all is put back.

        These settings are of the whole process, so that networks in several threads take turns.
        """
        with _TURN:
            threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
            cudnn = torch.backends.cudnn
            torch.set_num_threads(1)
            torch.set_float32_matmul_precision("highest")
            try:
                with cudnn.flags(enabled=cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=False):
                    yield
            finally:
                torch.set_float32_matmul_precision(precision)
                torch.set_num_threads(threads)

    def rows(self, pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the rows of pictures, shape (n, height, width, 3): (n, n_features).

        Raises DataError if the output is not finite, or is not rows, tokens or maps.
        """
        if self.is_batch_independent and len(pictures) > 1:
            return np.concatenate([self.rows(picture[None]) for picture in pictures])
        numbers = np.stack([self.preparation.numbers(picture) for picture in pictures]).transpose(0, 3, 1, 2)
        return pooled(self.run(self._tower, np.ascontiguousarray(numbers)), len(pictures), self._what)

    def run(self, tower: Callable[[torch.Tensor], torch.Tensor], inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return what a part of the network makes of an array, computed on its device, as float32."""
        with torch.inference_mode():
            out: NDArray[np.float32] = tower(torch.from_numpy(inputs).to(self.device)).float().cpu().numpy()
        return out
