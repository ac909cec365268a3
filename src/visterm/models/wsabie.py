"""WSABIE: a joint embedding of images and tags, trained so that the right tags come out on top."""

from __future__ import annotations

from typing import Any

from visterm.models.embedding_ranking import EmbeddingRanker


class Wsabie(EmbeddingRanker):
    """Joint embedding of images and tags that puts the right tags on top (WARP loss).

    Training visits pairs (image, true tag y) in random order, and draws other tags until one, ȳ, violates the margin:
    ``f_ȳ(x) > f_y(x) - 1``. If that took N draws of the M tags that the image does not have, the rank of y is about
    ``k = floor(M / N)``, and a gradient step lowers ``(1 + 1/2 + ... + 1/k) · |1 - f_y(x) + f_ȳ(x)|₊``: the sooner a
    violator turns up, the worse the rank and the larger the step. Then the vectors of the features and of the tags are
    brought back to a length of at most `max_norm`.

    This is Algorithm 1 of the paper, with steps in blocks. An image with several tags is as many pairs, and its own
    tags are never drawn; explicit negatives are tags like any other that it does not have. With a single tag there is
    nothing to rank, and nothing is learned.

    The default settings were chosen on held-out training images of Corel5k, with visterms and with features of a
    network alike; a library of another kind may want its own. `EmbeddingRanker` describes them.

    References
    ----------
    Weston, Bengio, Usunier: Large scale image annotation: learning to rank with joint word-image embeddings. Machine
    Learning 81, 2010; sections 2 and 3, Algorithm 1.
    """

    def _recipe(self) -> dict[str, Any]:
        return {"weight": "harmonic"}
