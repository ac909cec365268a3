"""Products of an image's vector with its drawn words, and of these with each other, with a gradient in few steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class DrawnProducts(torch.autograd.Function):  # type: ignore[misc]
    """Scores of drawn words, and the products of the first P of them with all.

    The same as ``rows @ f`` and ``rows[:, :P] @ rows.mT``; torch's own gradient of these copies the rows a dozen times,
    which takes three times as long as the products.
    """

    @staticmethod
    def forward(ctx: Any, f: Tensor, rows: Tensor, n_positives: int) -> tuple[Tensor, Tensor]:
        """Return scores (n_images, n_drawn) and products (n_images, P, n_drawn).

        Parameters
        ----------
        ctx : object
            Torch's.
        f : Tensor, shape (n_images, dim)
        rows : Tensor, shape (n_images, n_drawn, dim)
        n_positives : int
            P.
        """
        ctx.save_for_backward(f, rows)
        ctx.n_positives = n_positives
        return drawn_scores(f, rows), torch.bmm(rows[:, :n_positives], rows.mT)

    @staticmethod
    def backward(ctx: Any, of_scores: Tensor, of_products: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients of f and the rows."""
        f, rows = ctx.saved_tensors
        of_f = torch.bmm(of_scores[:, None], rows)[:, 0]
        n_images, n_drawn, _ = rows.shape
        of_pairs = rows.new_zeros(n_images, n_drawn, n_drawn)  # a word's gradient, in terms of the other words
        of_pairs[:, : ctx.n_positives] = of_products
        of_pairs[:, :, : ctx.n_positives] += of_products.mT
        of_rows = torch.bmm(of_pairs, rows)
        of_rows.baddbmm_(of_scores[:, :, None], f[:, None])
        return of_f, of_rows, None


def drawn_scores(f: Tensor, rows: Tensor) -> Tensor:
    """Return the scores of each image's own drawn words, shape (n_images, n_drawn)."""
    return torch.bmm(f[:, None], rows.mT)[:, 0]
