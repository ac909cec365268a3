"""Processes that train together through torch.distributed: whoever starts them sets up torch's default group."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from visterm.models.deep.data_parallel import DataParallel, part_of


class TorchDataParallel(DataParallel):
    """The processes of torch's default group, which talk by gloo.

    The gradients of the network are averaged by `DistributedDataParallel`, while the backward pass goes on. Its buckets
    stay as they are first laid out: after a restart sums are then taken in the same order, to the same bytes. Raises
    RuntimeError if there is no such group (`torch.distributed.init_process_group`).
    """

    def __init__(self) -> None:
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()

    def averaging(self, network: Any) -> Any:
        """Return the network with gradients averaged over the processes; all begin with the weights of the first."""
        # Buckets are laid out anew after the first step unless parameters may be without a gradient (torch's reducer).
        return DistributedDataParallel(
            network, forward_sync_buffers=False, gradient_as_bucket_view=True, find_unused_parameters=True
        )

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum over the processes; gradients go back through it."""
        return _Total.apply(values)

    def gathered(self, rows: torch.Tensor, n: int) -> torch.Tensor:
        """Return the rows of all parts of a batch of n, in the processor's memory."""
        lengths = [len(part_of(n, rank, self.size)) for rank in range(self.size)]
        sent = rows.new_zeros((max(lengths), *rows.shape[1:]), device="cpu")  # parts differ by an image, messages not
        sent[: len(rows)] = rows.detach()
        found = [torch.empty_like(sent) for _ in lengths]
        dist.all_gather(found, sent)
        return torch.cat([part[:length] for part, length in zip(found, lengths, strict=True)])

    def agreed(self, number: int) -> int:
        """Return the number that the first process has, of up to 63 bits."""
        agreed = torch.tensor([number], dtype=torch.int64)
        dist.broadcast(agreed, 0)
        return int(agreed)


class _Total(torch.autograd.Function):  # type: ignore[misc]
    """The sum over the processes, of which each one's cost depends on all."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        summed = values.detach().clone()
        dist.all_reduce(summed)
        return summed

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        summed = gradient.clone()
        dist.all_reduce(summed)
        return summed
