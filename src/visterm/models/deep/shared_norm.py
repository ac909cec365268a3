"""Batch normalisation over a batch of which each process has a part."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from visterm.models.deep.data_parallel import DataParallel


def shared_norm(norm: nn.BatchNorm1d, x: Tensor, n: int, together: DataParallel) -> Tensor:
    """Bring numbers to mean 0 and deviation 1 over the whole batch, as `norm` does where one process has it all.

    (Torch's own way for several processes, `SyncBatchNorm`, is for GPUs alone.)

    Parameters
    ----------
    norm : BatchNorm1d
        In training its running means move, in every process alike.
    x : Tensor, shape (n_part, width)
    n : int
        Images of the whole batch.
    together : DataParallel
    """
    if together.size == 1 or not norm.training:
        return norm(x)
    mean = together.total(x.sum(0)) / n
    variance = together.total((x - mean).square().sum(0)) / n
    with torch.no_grad():
        norm.num_batches_tracked += 1
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (n / (n - 1)), norm.momentum)  # as torch keeps it: unbiased
    return (x - mean) * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias
