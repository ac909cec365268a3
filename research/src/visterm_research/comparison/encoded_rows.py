"""Features of photos, encoded once and kept by what they depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.digests import key_of
from visterm.core.progress import Progress
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.encoders.named import make_encoder
from visterm.features.training_rows import encode_corpus
from visterm_research.comparison.problem import Rows


def encoded_rows(
    parts: Sequence[Corpus],
    vocabulary: Vocabulary,
    cache: Path,
    spec: str,
    params: Mapping[str, Any],
    seed: int,
    n_jobs: int | None,
    before_work: Callable[[], None],
    progress: Progress,
) -> list[Rows]:
    """Encode training, validation and test photos, or read what was encoded of the same photos before.

    Parameters
    ----------
    before_work : callable
        Called where there is something to encode; what it raises ends the work.
    """
    made = make_encoder(spec, params, {"random_state": seed, "n_jobs": n_jobs})
    names = [[str(image) for image in part.images] for part in parts]
    key = key_of(version("visterm"), made.fingerprint, seed, names, [part.tags for part in parts])
    path = cache / f"features-{key}.npz"
    if path.is_file():
        with np.load(path, allow_pickle=False) as stored:
            return [Rows(_unpacked(stored, f"X{i}"), _unpacked(stored, f"Y{i}")) for i in range(len(parts))]
    before_work()
    made.fit(parts[0].images, skip_unreadable=True, progress=progress)
    rows = [Rows(*encode_corpus(made, part, vocabulary, progress)[:2]) for part in parts]
    cache.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    packed: dict[str, Any] = {}
    for i, part in enumerate(rows):
        packed |= _packed(part.X, f"X{i}") | _packed(part.Y, f"Y{i}")
    np.savez(temporary, **packed)
    temporary.replace(path)
    return rows


def _packed(matrix: Any, name: str) -> dict[str, Any]:
    if not sp.issparse(matrix):
        return {name: matrix}
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
    return {f"{name}_{part}": np.asarray(value) for part, value in parts.items()}


def _unpacked(stored: Any, name: str) -> Any:
    if name in stored:
        return stored[name]
    parts = tuple(stored[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
    return sp.csr_array(parts, shape=tuple(stored[f"{name}_shape"]))
