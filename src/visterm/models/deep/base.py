"""Base class of the deep taggers: a network from image features into the words' space, and a vector per tag."""

from __future__ import annotations

import hashlib
import math
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from visterm.core.checks import check_count, check_number, check_size
from visterm.core.errors import DataError, MissingExtraError, ShapeError, UserError
from visterm.core.estimator import check_fitted
from visterm.core.learned import Array, Kind, Number, Whole
from visterm.core.packing import json_params
from visterm.core.types import Floats, Matrix
from visterm.encoders.onnx_graph import GraphSteps
from visterm.models.base import Limit
from visterm.models.deep.moved_words import move_words
from visterm.models.epochs import EpochAnnotator, mean_length
from visterm.models.stopping import Judged, Watch

Layer: TypeAlias = tuple[Floats, Floats]  # Weights, (n_inputs, n_outputs), and offsets, (n_outputs,)

BLOCK_ROWS = 1024  # Number of images that go through the layers at a time, to limit the memory
MOVE_PENALTY = 1.0  # Penalty of `move_words` when words follow the tags
MAX_LAYERS = 1000

MAX_TRAINED_BYTES = 2**34  # Weights and vectors with their gradients and the state of the optimisers
SAMPLED_ROWS = 1000  # Number of rows in the fingerprint of a dense matrix: all rows of a large library take minutes
NOT_IN_CHECKPOINT = ("checkpoint", "checkpoint_batches", "device", "n_jobs", "random_state", "word_vectors")
"""Settings that may change when a training resumes from a checkpoint, or that are compared in another way."""


@dataclass(kw_only=True, eq=False, repr=False)
class DeepTagger(EpochAnnotator):
    """Scores a tag by ``h(x) · v_t``: a network's output for the image, and the vector of a word.

    Adam trains the network and row-wise Adagrad trains the vectors; both minimise the model's cost. A new model
    implements `_objective`. Training needs the extra ``torch``; a trained model only needs NumPy.

    Parameters
    ----------
    hidden : sequence of int
        Sizes of the layers between the features and the words' space. The paper's network, [4096, 8192, 2048], takes
        hours on a CPU.
    dim : int, optional
        Size of the words' space. None: the width of `word_vectors`, or 300 without word vectors.
    word_vectors : array-like, shape (n_tags, dim), optional
        Start vectors of the tags (may be a memory map). A row of zeros is a tag without a vector, which starts at
        random, like all tags if this is None. One factor scales them to length 1 (root mean square). Saved models
        contain the learned vectors, but not this setting.
    dropout : float
        Probability of dropping a hidden unit in a training step. A higher value helps if there are few images.
    batch_norm : bool
        Whether to normalize hidden units to mean 0 and deviation 1 over each batch.
    epochs : int
        Maximum number of passes over all images with tags.
    batch_size : int
        Number of images per step.
    learning_rate : float
        Learning rate of the network.
    tag_learning_rate : float
        Learning rate of the vectors.
    l2 : float
        Weight decay: the cost has this factor times half the sum of the network's squared weights.
    max_gradient : float
        Maximum norm of the gradient of the network and the drawn vectors together; longer gradients are scaled down. On
        a CPU, if few tags are drawn often, a tag's draws in a batch count as their sum.
    schedule : str
        How the learning rates change over the epochs: "constant", "inverse" or "cosine".
    patience : int
        Training stops after this many epochs without a better validation MAP; the best weights are kept.
    valid_share : float
        Without validation rows, `fit` holds out this share of the images to find the best number of epochs, then trains
        on all images for that number. With 0, or if fewer than 50 images would be held out, it runs all `epochs`.
    half : bool
        Mixed precision: the network computes in bfloat16, weights and costs are float32. Faster on a GPU, slower on a
        CPU.
    checkpoint : path-like, optional
        A folder for the state of the training. A `fit` with the same data and settings resumes from it, on a CPU to the
        same bytes; at the end, the folder is removed.
    checkpoint_batches : int
        Number of batches between checkpoints.
    device : str
        Device of the network: "auto" (a GPU if there is one), "cpu", "cuda". The vectors stay in the CPU's memory.
    n_jobs : int, optional
        Number of threads; None or -1 for all cores. The same number gives the same bytes; small networks use one
        thread, and any number gives the same bytes.
    random_state : int, RandomState, Generator or None
        Start values, order of the images, draws, and held-out images.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, dim)
        The vectors of the tags.
    weights_0_, offsets_0_, weights_1_, ... : ndarray of float32, shape (n_inputs, n_outputs) and (n_outputs,)
        The layers.
    n_layers_ : int
    scale_ : float
        Factor that scales the features' mean square to 1.
    vector_scale_ : float or None
        Factor that scales `word_vectors`; None without word vectors.
    word_vectors_ : ndarray of float32, shape (n_tags, dim)
        `word_vectors`; only set if the tags moved away from them.
    n_epochs_, n_held_out_ : int
        As in `PairRanker`.
    history_ : list of dict
        For each epoch: ``epoch``, ``loss`` (mean over the batches), ``map`` (over the validation images, None without)
        and ``seconds``.

    References
    ----------
    Ni et al.: Sampled image tagging and retrieval methods on user generated content; sections 2 and 3.
    """

    hidden: Sequence[int] = (512,)
    dim: int | None = None
    word_vectors: ArrayLike | None = None
    dropout: float = 0.5
    batch_norm: bool = False
    epochs: int = 40
    batch_size: int = 256
    learning_rate: float = 0.001
    tag_learning_rate: float = 0.01
    l2: float = 0.0
    max_gradient: float = 10.0
    schedule: str = "cosine"
    patience: int = 5
    half: bool = False
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_batches: int = 1000
    device: str = "auto"

    n_layers_: int = field(init=False)
    vector_scale_: float | None = field(init=False)

    learned: ClassVar[dict[str, Kind]] = {
        "tag_rows_": Array("float32", ("n_tags_", "dim")),
        "weights_*_": Array("float32", (None, None)),
        "offsets_*_": Array("float32", (None,)),
        "n_layers_": Whole(least=1, most=MAX_LAYERS),
        "scale_": Number(above=0),
        "vector_scale_": Number(above=0, or_none=True),
        "word_vectors_": Array("float32", ("n_tags_", "dim"), required=False),
        "n_held_out_": Whole(),
    }

    test_params: ClassVar[Mapping[str, object]] = {
        "hidden": [32],
        "dim": 16,
        "epochs": 30,
        "batch_size": 40,
        "learning_rate": 0.005,
        "dropout": 0.0,
        "device": "cpu",
    }
    limits: ClassVar[dict[str, Limit]] = {
        "dim": partial(check_count, otherwise="or None for that of the word vectors (300 without any)"),
        "batch_size": check_count,
        "checkpoint_batches": check_count,
        "learning_rate": partial(check_number, above=0),
        "tag_learning_rate": partial(check_number, above=0),
        "max_gradient": partial(check_number, above=0),
        "l2": partial(check_number, least=0),
        "dropout": partial(check_number, least=0, below=1),
    }
    takes: ClassVar[tuple[str, ...]] = ("word_vectors",)
    start_params: ClassVar[tuple[str, ...]] = ("word_vectors",)  # Settings that only `fit` needs, which are not saved

    def tag_rows_from(self, vectors: ArrayLike) -> Floats:
        """Return rows, (n_words, dim), for words that are not tags; search with them as with tag rows.

        `vectors`, (n_words, dim), are from the same source as `word_vectors`. If the tags' vectors moved in training,
        words follow them (`move_words`, about the means). Raises UserError if the model was fitted without
        `word_vectors`; ShapeError if the vectors have another width.
        """
        check_fitted(self)
        if self.vector_scale_ is None:
            raise UserError(
                f"This {type(self).__name__} was fitted without `word_vectors`, so it cannot score words that are not "
                "tags.",
                advice="Fit it with vectors of the tags, and pass vectors of the same kind.",
            )
        words = np.atleast_2d(np.asarray(vectors, np.float32))
        if words.ndim != 2 or words.shape[1] != self.tag_rows_.shape[1]:
            raise ShapeError(
                f"The words' vectors have the shape {words.shape}; expected {self.tag_rows_.shape[1]} numbers per word."
            )
        if not np.isfinite(words).all():
            raise DataError("The words' vectors have infinite numbers or NaN.")

        factor = np.float32(self.vector_scale_)
        if not hasattr(self, "word_vectors_") or not self.word_vectors_.any():
            return words * factor
        has_vector = np.flatnonzero(self.word_vectors_.any(axis=1))
        old_tags = self.word_vectors_[has_vector] * factor
        new_tags = self.tag_rows_[has_vector]
        return move_words(words * factor, old_tags, new_tags, about_means=True, penalty=MOVE_PENALTY)

    @abstractmethod
    def _objective(self, Y: sp.csr_array) -> Any:
        """Return the training objective for the tags `Y`, (n_images, n_tags), such as a `SampledObjective`."""

    def _start_score(self, Y: sp.csr_array) -> float:
        """Return the score of all tags of all images at the start of training."""
        return 0.0

    def _starts_low(self) -> bool:
        """Return whether scores start low: by the setting `start_low`, or else without word vectors."""
        start_low = getattr(self, "start_low", False)
        return self.known("word_vectors") is None if start_low is None else bool(start_low)

    def _words_move(self) -> bool:
        """Return whether training changes the tags' vectors; a setting `fixed_vectors` decides, False without it."""
        return not getattr(self, "fixed_vectors", True)

    def _work_per_tag(self, n_tags: int) -> int:
        """Return the number of tag vectors that training multiplies each image with."""
        return n_tags

    def _image_rows(self, X: Matrix) -> Matrix:
        return through_layers(X, self.scale_, self._layers())

    def write_steps(self, steps: GraphSteps, x: str) -> str:
        """Add the steps from features to scores, see `WritesSteps`."""
        (weights, offsets), *others = self._layers()
        hidden = steps.affine(x, weights * np.float32(self.scale_), offsets)
        for weights, offsets in others:
            hidden = steps.affine(steps.add("Relu", hidden), weights, offsets)
        return str(steps.affine(hidden, self.tag_rows_.T))

    def _layers(self) -> list[Layer]:
        return [(getattr(self, f"weights_{i}_"), getattr(self, f"offsets_{i}_")) for i in range(self.n_layers_)]

    def _check_learned(self) -> None:
        super()._check_learned()
        names = {f"{kind}_{i}_" for kind in ("weights", "offsets") for i in range(self.n_layers_)}
        existing = {name for name in vars(self) if name.startswith(("weights_", "offsets_"))}
        if existing != names:
            raise DataError(f"There are {sorted(existing)}; expected weights and offsets of {self.n_layers_} layers")
        width = self.n_features_in_
        for i, (weights, offsets) in enumerate(self._layers()):
            if weights.shape != (width, len(offsets)):
                raise DataError(f"weights_{i}_ are {weights.shape}; expected {(width, len(offsets))}")
            width = len(offsets)
        if width != self.tag_rows_.shape[1]:
            raise DataError(f"The last layer has {width} numbers, and tag_rows_ {self.tag_rows_.shape[1]}")

    def _fit_monitored(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator, valid: Judged, watch: Watch) -> None:
        self.check_settings()
        if not (Y.data > 0).any():
            raise DataError("No image has a tag (Y has no value above 0), so there is nothing to learn.")
        from visterm.models.deep.fitting import DeepFit, TrainingCheckpoint  # torch
        from visterm.models.deep.word_table import check_vectors

        vectors = self.known("word_vectors")
        if vectors is not None:
            check_vectors(vectors, Y.shape[1], self.dim)
        sizes = self._sizes(X.shape[1])
        n_bytes = 16 * sum(a * b for a, b in pairwise(sizes)) + 4 * Y.shape[1] * self._dim()
        layer_sizes = " → ".join(f"{size:,}" for size in sizes)
        description = f"A network of {layer_sizes} numbers and {Y.shape[1]:,} vectors"
        check_size(n_bytes, MAX_TRAINED_BYTES, description, "Use smaller layers (`hidden`, `dim`).")
        self.scale_ = math.sqrt(X.shape[1]) / (mean_length(X) or 1.0)
        checkpoint = TrainingCheckpoint(self.checkpoint, self._checkpoint_key(X, Y, valid) if self.checkpoint else {})
        fit = DeepFit(self, X, Y, int(rng.integers(2**63)), checkpoint, watch)
        fit.run(valid)
        if vectors is not None and self._words_move():  # at the end, as the check after an epoch reads all arrays
            self.word_vectors_ = np.asarray(vectors, np.float32)

    def _publish(self, *weights: Floats) -> None:
        """Set the weights and offsets of each layer, then the tag rows."""
        *layers, self.tag_rows_ = weights
        self.n_layers_ = len(layers) // 2
        for layer in range(self.n_layers_):
            setattr(self, f"weights_{layer}_", layers[2 * layer])
            setattr(self, f"offsets_{layer}_", layers[2 * layer + 1])

    def _work(self, n_features: int, n_tags: int) -> int:
        """Return the number of multiplications per batch, in the network and with the tag vectors."""
        network_work = sum(a * b for a, b in pairwise(self._sizes(n_features)))
        return self.batch_size * (network_work + self._dim() * self._work_per_tag(n_tags))

    def _sizes(self, n_features: int) -> list[int]:
        return [n_features, *self.hidden, self._dim()]

    def _dim(self) -> int:
        if (vectors := self.known("word_vectors")) is not None:
            return int(np.shape(vectors)[1])
        return self.dim or 300

    def _checkpoint_key(self, X: Matrix, Y: sp.csr_array, valid: Judged) -> dict[str, Any]:
        params = {key: value for key, value in json_params(self).items() if key not in NOT_IN_CHECKPOINT}
        matrices = {"X": X, "Y": Y}
        if valid is not None:
            matrices |= {"validation X": valid[0], "validation Y": valid[1]}
        if (vectors := self.known("word_vectors")) is not None:
            matrices["word_vectors"] = vectors
        if isinstance(self.random_state, int):
            params["random_state"] = self.random_state
        return {"model": type(self).__name__, **params} | {
            name: matrix_fingerprint(matrix) for name, matrix in matrices.items()
        }

    def _check_settings(self) -> None:
        if not isinstance(self.hidden, list | tuple):
            raise UserError(setting="hidden", value=self.hidden, expected="sizes such as [1024, 512], or [] for none")
        for size in self.hidden:
            check_count(size, "hidden")

    def check_settings(self) -> None:
        """Check the settings, the package torch and the device before any long work; `fit` does so, too."""
        super().check_settings()
        if find_spec("torch") is None:
            raise MissingExtraError(
                f"Training {type(self).__name__} needs the package 'torch'. "
                "Install it with: pip install 'visterm[torch]'"
            )
        if self.device not in ("auto", "cpu"):
            from visterm.encoders.torch_loading import torch_device

            torch_device(self.device)


def through_layers(X: Matrix, scale: float, layers: list[Layer]) -> Floats:
    """Return the output of the last layer, with ReLU between layers, shape (n_images, n_outputs).

    The input is `scale` times `X`, (n_images, n_features).
    """
    (weights, offsets), *others = layers
    out: Floats = np.empty((X.shape[0], len(layers[-1][1])), np.float32)
    for start in range(0, X.shape[0], BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        hidden = np.asarray(X[rows] @ weights, np.float32) * np.float32(scale) + offsets
        for next_weights, next_offsets in others:
            hidden = np.maximum(hidden, 0, out=hidden) @ next_weights + next_offsets
        out[rows] = hidden
    return out


def matrix_fingerprint(matrix: Matrix) -> str:
    """Return a hash of a matrix, which includes all values of CSR, but at most 1,000 rows of a dense matrix."""
    digest = hashlib.sha256(str(matrix.shape).encode())
    if isinstance(matrix, sp.csr_array):
        parts = [matrix.indptr, matrix.indices, matrix.data]
    else:
        sampled_rows = np.linspace(0, len(matrix) - 1, min(len(matrix), SAMPLED_ROWS)).astype(np.int64)
        parts = [np.asarray(matrix[sampled_rows])]
    for part in parts:
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]
