"""What a tagger does with the Hugging Face hub: runs pushed there and opened from there."""

from __future__ import annotations

import os
from typing import Any, Self


class OnHub:
    """Pushes itself to the hub, and is opened from there; `load` opens a folder."""

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, n_jobs: int | None = None, device: str | None = None) -> Any:
        """Open the run in a folder."""
        raise NotImplementedError(f"{cls.__name__} has no load.")

    @classmethod
    def from_pretrained(
        cls, repository: str, *, revision: str | None = None, n_jobs: int | None = None, device: str | None = None
    ) -> Self:
        """Fetch a run that `push_to_hub` wrote, and open it.

        Parameters
        ----------
        repository : str
            ``OWNER/NAME`` on the Hugging Face hub.
        revision : str, optional
            A branch, tag or commit. None: the newest.
        n_jobs, device
            As in `load`.

        Raises
        ------
        StorageError
            If there is no such repository, it holds no run, or the hub cannot be reached.
        MissingExtraError
            If huggingface_hub is not installed.
        """
        from visterm.tagging.hub_runs import fetch_run, network_in

        folder = fetch_run(repository, revision)
        tagger: Any = cls.load(folder, n_jobs=n_jobs, device=device)
        if network := network_in(folder):
            tagger.encoder.network_path_ = os.fspath(network)
        found: Self = tagger
        return found

    def push_to_hub(
        self,
        repository: str,
        *,
        public: bool = False,
        with_photos: bool = False,
        with_network: bool = False,
        licence: str | None = None,
        message: str | None = None,
    ) -> str:
        """Write this run into a repository of the Hugging Face hub, with a model card, and return the address.

        The files are JSON and safetensors. Names of photos, which photo has which tags, and where files are on this
        machine stay here.

        Parameters
        ----------
        repository : str
            ``OWNER/NAME``. It is made if it isn't there.
        public : bool
            Whether everybody may read a repository that is made.
        with_photos : bool
            Also push the names of photos that were left out, hashes of those that were learned from and, of models and
            encoders that hold them, names and tags of photos.
        with_network : bool
            Also push the encoder's network: look at its licence first.
        licence : str, optional
            Of the run, for its card: ``"cc0-1.0"``, say.
        message : str, optional
            Of the commit.

        Raises
        ------
        UserError
            If the run cannot do without the names or the tags of photos, and `with_photos` is False.
        StorageError
            If the hub cannot be reached, or refuses.
        """
        from visterm.tagging.hub_runs import push_run

        return push_run(
            self, repository, public=public, with_photos=with_photos, with_network=with_network, licence=licence,
            message=message,
        ).page  # fmt: skip
