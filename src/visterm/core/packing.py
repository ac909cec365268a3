"""An estimator as JSON and named arrays, the estimators inside it too: what is saved, hashed and loaded."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.registry import Registry

CSR_PARTS = ("data", "indices", "indptr", "shape")

INSIDE = "."
"""Parts the names on the way to an array of an inner estimator: ``members_.0.tag_rows_``."""


def pack(estimator: Any, registry: Registry) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Give all that an estimator is: what JSON can hold, and the arrays that it learned.

    All attributes that end in ``_`` are kept: arrays, CSR matrices, lists of fitted estimators (of the same registry,
    and those may hold others), and whatever JSON can hold.

    Returns
    -------
    description : dict
        ``name`` (as registered), ``params`` and ``values`` (what was learned and is no array).
    arrays : dict of str to ndarray
        By attribute; a CSR matrix is four arrays, those of inner estimators have the attribute and place before them.

    Raises
    ------
    UserError
        If a class is not registered, or JSON cannot hold a parameter.
    """
    arrays: dict[str, NDArray[Any]] = {}
    return _describe(estimator, registry, "", arrays), arrays


def unpack(registry: Registry, description: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Any:
    """Make the estimator that `pack` described."""
    return _restore(registry, description, arrays, "")


def learned_hash(estimator: Any) -> str:
    """Give the SHA-256, in hex, of the arrays that an estimator and those inside it have learned."""
    digest = hashlib.sha256()
    for name, part in _learned_parts(estimator, ""):
        digest.update(f"{name} {part.dtype.str} {part.shape}".encode())
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def learned_bytes(estimator: Any) -> int:
    """Count the bytes of the arrays that an estimator and those inside it have learned, sparse ones with indices."""
    return sum(part.nbytes for _, part in _learned_parts(estimator, ""))


def csr_parts(key: str, matrix: Any) -> dict[str, NDArray[Any]]:
    """Give a sparse matrix as named arrays."""
    csr = sp.csr_array(matrix)
    parts = (csr.data, csr.indices, csr.indptr, np.array(csr.shape, np.int64))
    return {f"{key}:{part}": np.ascontiguousarray(array) for part, array in zip(CSR_PARTS, parts, strict=True)}


def csr_of_parts(key: str, arrays: dict[str, NDArray[Any]]) -> sp.csr_array:
    """Make the sparse matrix that `csr_parts` took apart."""
    data, indices, indptr, shape = (arrays[f"{key}:{part}"] for part in CSR_PARTS)
    return sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))


def json_params(estimator: Any, registry: Registry | None = None) -> dict[str, Any]:
    """Give an estimator's parameters as JSON holds them.

    Those that only a fit starts from (named in ``start_params`` of its class, such as word vectors) are None: what was
    made of them is in the arrays.

    Parameters
    ----------
    estimator : object
        With ``get_params``.
    registry : Registry, optional
        Where estimators among the parameters are found: they become ``[name, parameters]``.

    Raises
    ------
    UserError
        If JSON cannot hold one.
    """
    params = dict(estimator.get_params(deep=False))
    for key in getattr(estimator, "start_params", ()):
        params[key] = None
    for key, value in params.items():
        params[key] = _plain(value, registry)
        try:
            json.dumps(params[key])
        except TypeError as error:
            raise UserError(
                f"{type(estimator).__name__}.{key} is {value!r}, which JSON cannot hold, so it cannot be saved."
            ) from error
    return params


def _plain(value: Any, registry: Registry | None) -> Any:
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None  # the stream has moved on; what it gave is in the arrays
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, dict):
        return {key: _plain(inner, registry) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(inner, registry) for inner in value) if type(value) in (list, tuple) else value
    if registry is not None and _is_estimator(value):
        return [registry.name_of(value), json_params(value, registry)]
    return value


def _describe(estimator: Any, registry: Registry, prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in _learned(estimator):
        name = prefix + key
        if sp.issparse(value):
            arrays.update(csr_parts(name, value))
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            arrays[name] = np.ascontiguousarray(value)
        elif isinstance(value, np.ndarray):
            values[key] = {"array": value.tolist()}
        elif _are_estimators(value):
            inner = [_describe(one, registry, _within(name, i), arrays) for i, one in enumerate(value)]
            values[key] = {"estimators": inner}
        else:
            values[key] = {"value": value}
    return {"name": registry.name_of(estimator), "params": json_params(estimator, registry), "values": values}


def _restore(registry: Registry, description: dict[str, Any], arrays: dict[str, NDArray[Any]], prefix: str) -> Any:
    estimator = registry.create(description["name"], **description["params"])
    for key in sorted({name.removeprefix(prefix).partition(":")[0] for name in arrays if name.startswith(prefix)}):
        if INSIDE not in key:
            name = prefix + key
            setattr(estimator, key, arrays[name] if name in arrays else csr_of_parts(name, arrays))
    for key, box in description["values"].items():
        if "estimators" in box:
            inner = [
                _restore(registry, one, arrays, _within(prefix + key, i)) for i, one in enumerate(box["estimators"])
            ]
            setattr(estimator, key, inner)
        else:
            setattr(estimator, key, np.array(box["array"], dtype=object) if "array" in box else box["value"])
    return estimator


def _learned_parts(estimator: Any, prefix: str) -> Iterator[tuple[str, NDArray[Any]]]:
    for key, value in _learned(estimator):
        if _are_estimators(value):
            for i, one in enumerate(value):
                yield from _learned_parts(one, _within(prefix + key, i))
            continue
        for part in (value.data, value.indices, value.indptr) if sp.issparse(value) else (value,):
            if isinstance(part, np.ndarray) and part.dtype != object:
                yield prefix + key, part


def _learned(estimator: Any) -> list[tuple[str, Any]]:
    return sorted(
        (key, value) for key, value in vars(estimator).items() if key.endswith("_") and not key.startswith("_")
    )


def _within(name: str, place: int) -> str:
    return f"{name}{INSIDE}{place}{INSIDE}"


def _are_estimators(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_estimator(one) for one in value)


def _is_estimator(value: Any) -> bool:
    return hasattr(value, "get_params") and not isinstance(value, type)
