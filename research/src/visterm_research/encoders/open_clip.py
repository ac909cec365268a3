"""Image towers of open_clip by name, with weights from a file, and the word vectors of their text towers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError, UserError
from visterm.core.threads import Team, resolve_jobs
from visterm.core.types import RandomState
from visterm.encoders import check_prompts, unit_rows
from visterm_research.encoders.open_clip_model import (
    OpenClipNetwork,
    cached_weights,
    hub_file,
    known_weights,
    open_clip_name,
    weights_config,
)
from visterm_research.encoders.torch_network import TorchEncoder

TEMPLATES = ("a photo of a {}.",)  # What is said of a word to the text tower, as open_clip does


@dataclass(kw_only=True, eq=False, repr=False)
class OpenClip(TorchEncoder):
    """Feature rows from an image tower of open_clip, in the space in which its text tower has words.

    Photos are prepared as open_clip says for the weights. Unlike other networks' rows these are by default neither
    rooted nor centred: rows are the tower's vectors divided by their length, and their products with `word_vectors`
    are the cosines that the towers were trained for.

    Nothing is downloaded: without `weights`, the file of `pretrained` is taken from the hub's cache on this machine if
    it is there, and else the error says what to get.

    Parameters
    ----------
    network : str
        As open_clip lists it: ``"ViT-B-32"``.
    weights : path-like, optional
        The file of both towers' weights, as of `Timm`.
    pretrained : str, optional
        The name of the weights, as open_clip lists it: ``"laion2b_s34b_b79k"``. Says how photos are prepared, where
        weights of one network differ in that, and what to look for in the hub's cache.
    views : {"trained", "three", "whole", "centre"}
        What of a photo is shown, as by `Onnx`; "trained" is what open_clip shows.
    centre : bool
        Subtract the mean over the training photos. Rows are then no longer those that words are compared with.
    normalise, device, random_state, batch_size, n_jobs
        As of `Timm`.

    Attributes
    ----------
    centre_, rooted_, network_sha256_, network_path_
        As of `Onnx`; `rooted_` is False, and the file is that of the weights.

    References
    ----------
    Radford et al.: Learning transferable visual models from natural language supervision. ICML 2021.
    """

    argument = "network"
    file_parameter = "weights"
    speed_params = ("n_jobs", "batch_size", "device")
    test_params: ClassVar[dict[str, Any]] = {"centre": True}
    root = False

    network: str | None = None
    weights: str | os.PathLike[str] | None = None
    pretrained: str | None = None
    views: str = "trained"
    centre: bool = False
    normalise: bool = True
    device: str = "auto"
    random_state: RandomState = 0
    batch_size: int = 32
    n_jobs: int | None = None

    def word_vectors(self, words: Sequence[str], *, templates: Sequence[str] = TEMPLATES) -> NDArray[np.float32]:
        """Return the text tower's vector of each word: for models that score tags by vectors of their words.

        Words are tags, too, as people write them; ``{}`` stands for the word in the `templates`. No `fit` is needed. A
        word's vector is the mean over what the templates make of it, each of length 1, and does not depend on the other
        words. The result is float32 of shape (n_words, width), rows of length 1 as wide as those of images. Raises
        DataError if there is no word; UserError if there is no template, or one has no ``{}``; StorageError if the
        weights, or the tokenizer that some towers take from the hub, are not on this machine.
        """
        if isinstance(words, str) or len(words) == 0:
            raise DataError(f"words is {words!r}; expected a list of at least one word.")
        check_prompts(templates, "templates")
        rows = self.text_rows([template.replace("{}", word) for word in words for template in templates])
        return unit_rows(rows.reshape(len(words), len(templates), -1).mean(axis=1))

    @property
    def reads_texts(self) -> bool:
        """Each network of open_clip has a text tower, in the same file."""
        return True

    def text_rows(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, of length 1, shape (n_texts, width), as `AnyEncoder.text_rows` says."""
        towers = cast(OpenClipNetwork, self._open())
        if not len(texts):
            return np.zeros((0, 0), np.float32)
        n_threads = resolve_jobs(self.n_jobs) if towers.is_batch_independent else 1
        with towers.running():
            first = towers.text_rows([texts[0]])  # opens the tokenizer, in one thread
            with Team(min(n_threads, len(texts))) as team:
                others = team.run(lambda i: towers.text_rows([texts[i + 1]]), len(texts) - 1)
        return unit_rows(np.concatenate([first, *others]))

    @property
    def text_fingerprint(self) -> str:
        """Return a hash of the network's name and its file."""
        network = f"{self._network_name()} {self._hash(self._network_file())}"
        return hashlib.sha256(f"open_clip {network}".encode()).hexdigest()

    def _configured_path(self) -> str | None:
        if self.weights is not None:
            return os.path.abspath(self.weights)
        if self.network is None or self.pretrained is None:
            return None
        return cached_weights(weights_config(open_clip_name(self.network), self.pretrained))

    def _path_error(self) -> UserError:
        name = self._network_name()
        needs = f"The open_clip network '{name}' needs its weights, and visterm downloads nothing: "
        if self.pretrained is None:
            return UserError(
                f"{needs}give their file, --encoder-set weights=PATH, or the name of weights that are in the hub's "
                f"cache, --encoder-set pretrained=NAME ({', '.join(known_weights(name)) or 'open_clip knows none'})."
            )
        place = hub_file(weights_config(name, self.pretrained))
        get = f"hf download {place.repo} {place.names[0]}" if place else "open_clip names no place on the hub for them"
        return UserError(
            f"{needs}{get}. On this machine visterm then finds them; for a file from elsewhere pass "
            "--encoder-set weights=PATH."
        )

    def _network_name(self) -> str:
        if self.network is None:
            raise UserError(
                "The open_clip encoder needs the name of a network: --encoder open_clip:ViT-B-32, or network=..."
            )
        return open_clip_name(self.network)

    def _open_file(self, path: str) -> OpenClipNetwork:
        name = self._network_name()
        if self.pretrained is not None:
            weights_config(name, self.pretrained)
        return OpenClipNetwork(name, os.path.abspath(path), trained=self.pretrained, device=self.device)
