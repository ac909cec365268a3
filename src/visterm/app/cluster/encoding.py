"""The shards of a features folder, made by Ray's workers: they write, and what is done comes back to be committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from visterm.app.cluster.engine import engine
from visterm.app.cluster.pipeline import must_see, shared_out
from visterm.app.features.folder import FeatureFolder
from visterm.app.features.shard_work import KnownRows, ShardDone, ShardWork
from visterm.core.progress import SILENT
from visterm.core.threads import Team


class EncodeJob(NamedTuple):
    """What a worker has to know.

    Attributes
    ----------
    folder : FeatureFolder
        Has the fitted encoder, and takes the shards; the driver holds its lock.
    settings : dict
        Of the encoder: those of its speed, and where a network lies, may be others than when it was saved.
    images : Path
        The image folder.
    known : KnownRows
        The rows that were there before.
    """

    folder: FeatureFolder
    settings: dict[str, Any]
    images: Path
    known: KnownRows

    def begin(self) -> Callable[[list[str]], ShardDone]:
        """Load the encoder, to use it with one thread."""
        must_see(self.folder.path)
        must_see(self.images)
        encoder, _ = self.folder.load_encoder(None)
        encoder.set_params(**self.settings)
        if "n_jobs" in self.settings:
            encoder.set_params(n_jobs=1)
        work = ShardWork(self.folder, encoder, self.images, self.known, Team(1))
        return lambda names: work.do(names, SILENT)

    def called(self, names: list[str]) -> str:
        """Name a shard by its images."""
        return f"the images from '{names[0]}' to '{names[-1]}'"


def encoded_shards(
    folder: FeatureFolder,
    encoder: Any,
    images: Path,
    known: KnownRows,
    parts: Sequence[list[str]],
    address: str,
    n_jobs: int | None,
) -> Iterator[ShardDone]:
    """Make shards on the workers of a Ray engine, and yield what was done, in order.

    Parameters
    ----------
    folder, images, known
        As in `EncodeJob`.
    encoder : AnyEncoder
        Fitted, and saved in the folder.
    parts : sequence of list of str
        The names of each shard's images.
    address : str
        Of the engine.
    n_jobs : int, optional
        Workers, at most.

    Raises
    ------
    UserError
        If there is no engine at the address.
    StorageError
        If a worker does not find the folders.
    """
    job = EncodeJob(folder, encoder.get_params(deep=False), images, known)
    with engine(address, n_jobs) as reached:
        yield from shared_out(job, parts, reached)
