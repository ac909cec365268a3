"""The settings that all deep taggers share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from visterm.models.epochs import EpochSettings

HIDDEN = (4096, 8192, 2048)  # Hidden layers of the paper (section 2)


@dataclass(kw_only=True, eq=False, repr=False)
class DeepSettings(EpochSettings):
    """The settings of all deep taggers.

    Parameters
    ----------
    hidden : sequence of int
        Sizes of the layers between the features and the words' space. Smaller ones train faster.
    dim : int, optional
        Size of the words' space. None: that of `word_vectors`, and without any 300.
    word_vectors : array-like, shape (n_tags, dim), optional
        Vectors that the tags start with (a memory map will do); a row of zeros is a tag that has none, and starts at
        random, as all do without. They are taken times one factor that brings them to length 1 (in the mean square).
        They are not saved as a setting: what was made of them is.
    dropout : float
        Chance of a hidden number to be left out in a step of training. More helps where there are few images.
    batch_norm : bool
        Whether hidden numbers are brought to mean 0 and deviation 1 over each batch.
    epochs : int
        Rounds over all images with tags, at most.
    batch_size : int
        Images a step.
    learning_rate : float
        Size of the network's steps.
    tag_learning_rate : float
        Size of the steps of the vectors.
    l2 : float
        Factor of half the network's squared weights in the cost.
    max_gradient : float
        A gradient longer than this, of the network and the drawn vectors together, is scaled down to it. A tag that is
        drawn several times counts once, with the sum of its draws, where few tags are drawn often (on a processor).
    schedule : str
        How the learning rates change over the epochs: "constant", "inverse" or "cosine".
    patience : int
        Epochs without a better MAP over the validation images after which training stops; the best weights are kept.
    valid_share : float
        Without validation rows, `fit` holds out this share of the images to find the best number of epochs, then trains
        on all images for that number. With 0, or if fewer than 50 images would be held out, it runs all `epochs`.
    half : bool
        Mixed precision: the network computes in bfloat16, weights and costs stay float32. Faster on a GPU, slower on a
        processor.
    checkpoint : path-like, optional
        A folder to keep the state of the training in. A `fit` of the same data and settings goes on from there, to the
        same bytes on the processor; when it ends, the folder is removed.
    checkpoint_batches : int
        Batches from one checkpoint to the next.
    device : str
        Of the network: "auto" (a GPU if there is one), "cpu", "cuda". The vectors stay in the processor's memory.
    n_jobs : int, optional
        Threads; None or -1 for all cores. The same bytes for the same number; for small networks, which use one
        thread, for any.
    random_state : int, RandomState, Generator or None
        Start values, order of the images, draws, and held-out images.
    """

    hidden: Sequence[int] = HIDDEN
    dim: int | None = None
    word_vectors: Any = None
    dropout: float = 0.5
    batch_norm: bool = False
    epochs: int = 40
    batch_size: int = 256
    learning_rate: float = 0.0003
    tag_learning_rate: float = 0.1
    l2: float = 0.0
    max_gradient: float = 10.0
    schedule: str = "cosine"
    patience: int = 5
    half: bool = False
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_batches: int = 1000
    device: str = "auto"
