"""Convert an estimator, with the estimators inside it, to JSON and named arrays and back; hashes of both."""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import math
import os
import reprlib
import sys
from collections.abc import Iterator
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import checked_csr
from visterm.core.errors import DataError, UserError
from visterm.core.estimator import Estimator
from visterm.core.learned import check_learned, declared_name, learned_attributes, learned_kinds
from visterm.core.registry import Registry
from visterm.core.types import Arrays

CSR_PARTS = ("data", "indices", "indptr", "shape")

NAME_SEPARATOR = "."  # Between the parts of the name of an inner estimator's array: ``members_.0.tag_rows_``
MAX_NESTING = 8  # Maximum depth of estimators inside estimators
PARAM_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "None": (type(None),),
    "RandomState": (int, type(None)),
}
"""Annotation of a constructor parameter -> types of its values in JSON; a `RandomState` is saved if it is a number."""


SECONDS_KEY = "seconds"
Times: TypeAlias = dict[str, list[float | None]]
"""Learned attribute (``members_.0.history_`` for an inner estimator) -> the seconds of each of its records."""


def pack(estimator: Estimator, registry: Registry) -> tuple[dict[str, object], Arrays]:
    """Return an estimator as a description for JSON and the arrays that it learned.

    All attributes that end in ``_`` are saved: arrays, CSR matrices, (nested) lists of fitted estimators of the same
    registry, and other values that JSON supports. The description has ``name`` (as registered), ``params`` and
    ``values`` (learned values that are not arrays). The arrays are named by attribute; a CSR matrix becomes four
    arrays, and arrays of inner estimators have the attribute and index as a prefix. Raises UserError if a class is not
    registered, or JSON cannot store a parameter.
    """
    arrays: Arrays = {}
    return _describe(estimator, registry, "", arrays), arrays


def unpack(registry: Registry, description: object, arrays: Arrays) -> Estimator:
    """Rebuild an estimator from the output of `pack`, which may come from an untrusted source.

    Raises DataError if the input does not have the form of `pack`'s output, or a learned attribute is not as its class
    declares it (`check_learned`); UserError if a setting is invalid; UnknownNameError or MissingExtraError if the class
    or a setting is unknown, or needs a package that is not installed.
    """
    remaining = dict(arrays)
    estimator = _restore(registry, description, remaining, "")
    if remaining:
        raise DataError(f"There is an array {min(remaining)!r} that belongs to no learned attribute")
    check_learned(estimator)
    return estimator


def learned_hash(estimator: Estimator) -> str:
    """Return the SHA-256, in hex, of the learned arrays of an estimator and its inner estimators."""
    digest = hashlib.sha256()
    for name, part in learned_parts(estimator, ""):
        digest.update(f"{name} {part.dtype.str} {part.shape}".encode())
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def csr_parts(key: str, matrix: sp.csr_array) -> Arrays:
    """Return a sparse matrix as four named arrays."""
    csr = sp.csr_array(matrix)
    parts = (csr.data, csr.indices, csr.indptr, np.array(csr.shape, np.int64))
    return {f"{key}:{part}": np.ascontiguousarray(array) for part, array in zip(CSR_PARTS, parts, strict=True)}


def csr_of_parts(key: str, arrays: Arrays) -> sp.csr_array:
    """Rebuild a sparse matrix from the output of `csr_parts`, and remove its parts from `arrays`.

    Raises DataError if a part is missing, or an index is out of range: compiled loops do not check indices.
    """
    names = [f"{key}:{part}" for part in CSR_PARTS]
    if not all(name in arrays for name in names):
        raise DataError(f"{key} lacks a part of a sparse matrix; expected {', '.join(CSR_PARTS)}")
    data, indices, indptr, shape = (arrays.pop(name) for name in names)
    return checked_csr(data, indices, indptr, np.ravel(shape).tolist(), key, unique=False)


def json_params(estimator: Estimator, registry: Registry | None = None) -> dict[str, object]:
    """Return an estimator's parameters as values that JSON supports.

    Parameters in ``start_params`` of its class, such as word vectors, become None: only `fit` uses them, and their
    effect is in the learned arrays. With a registry, estimators among the parameters become ``[name, parameters]``.
    Raises UserError if JSON cannot store a parameter.
    """
    params = dict(estimator.get_params(deep=False))
    for key in getattr(estimator, "start_params", ()):
        params[key] = None
    for key, value in params.items():
        params[key] = _plain(value, registry)
        try:
            json.dumps(params[key])
        except TypeError as error:
            problem = f"{type(estimator).__name__}.{key} is {value!r}, which JSON cannot hold, so it cannot be saved."
            raise UserError(problem, setting=key, value=value, expected="numbers, texts and lists of them") from error
    return params


def _plain(value: object, registry: Registry | None) -> object:
    """Return a parameter as a value that JSON supports; values of other types are returned unchanged."""
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None  # its state has changed since the fit, and the learned arrays have its effect
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, dict):
        return {key: _plain(item, registry) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(item, registry) for item in value) if type(value) in (list, tuple) else value
    if registry is not None and _is_estimator(value):
        return [registry.saved_name(value), json_params(value, registry)]
    return value


def _describe(estimator: Estimator, registry: Registry, prefix: str, arrays: Arrays) -> dict[str, object]:
    """Return the description of an estimator for JSON, and add its arrays to `arrays`."""
    registered_name, values = registry.saved_name(estimator), dict[str, object]()
    kinds = learned_kinds(estimator)

    for key, value in learned_attributes(estimator).items():
        name = prefix + key
        if declared_name(key, kinds) is None:
            raise UserError(
                f"{type(estimator).__name__} does not declare {key} in `learned`, so it cannot be saved. Declare its "
                f'type and shape in the class, such as learned = {{"{key}": Array("float32", ("n_features",))}}.'
            )
        if sp.issparse(value):
            arrays.update(csr_parts(name, value))
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            arrays[name] = np.ascontiguousarray(value)
        elif isinstance(value, np.ndarray):
            values[key] = {"array": value.tolist()}
        elif _are_estimators(value):
            inner_estimators = [_describe(member, registry, f"{name}.{i}.", arrays) for i, member in enumerate(value)]
            values[key] = {"estimators": inner_estimators}
        else:
            values[key] = {"value": value}

    params = json_params(estimator, registry)
    if "n_jobs" in params:
        params["n_jobs"] = None  # not saved: learned values don't depend on the number of threads
    return {"name": registered_name, "params": params, "values": values}


def _restore(registry: Registry, description: object, arrays: Arrays, prefix: str) -> Estimator:
    """Rebuild an estimator from its description, and remove its arrays from `arrays`."""
    if prefix.count(NAME_SEPARATOR) > 2 * MAX_NESTING:
        raise DataError(f"{prefix} is an estimator inside more than {MAX_NESTING} others")
    expected = {"name": str, "params": dict, "values": dict}
    parts = description if isinstance(description, dict) else {}
    if parts.keys() != expected.keys() or not all(isinstance(parts[key], kind) for key, kind in expected.items()):
        raise DataError(f"{prefix or 'The file'} is not an estimator description; expected name, params and values")
    cls = registry.load(parts["name"])
    estimator: Estimator = registry.create(parts["name"], **checked_params(cls, parts["params"]))
    check_settings = getattr(estimator, "check_stored_settings", None)
    if check_settings is not None:
        check_settings()

    kinds = learned_kinds(estimator)
    local_names = (key.removeprefix(prefix).partition(":")[0] for key in arrays if key.startswith(prefix))
    array_names = sorted({key for key in local_names if NAME_SEPARATOR not in key})
    undeclared = [key for key in (*array_names, *parts["values"]) if declared_name(key, kinds) is None]
    if undeclared:
        raise DataError(f"{prefix}{undeclared[0]} is not an attribute that its class declares in `learned`")
    for key in array_names:
        name = prefix + key
        setattr(estimator, key, arrays.pop(name) if name in arrays else csr_of_parts(name, arrays))

    for key, box in parts["values"].items():
        kind, value = next(iter(box.items())) if isinstance(box, dict) and len(box) == 1 else ("", None)
        if kind == "estimators" and isinstance(value, list):
            value = [_restore(registry, member, arrays, f"{prefix}{key}.{i}.") for i, member in enumerate(value)]
        elif kind == "array" and isinstance(value, list):
            entries, value = value, np.empty(len(value), dtype=object)
            value[:] = entries
        elif kind != "value":
            raise DataError(f"{prefix}{key} is not a value, array or list of estimators")
        setattr(estimator, key, value)
    return estimator


def checked_params(cls: type, params: dict[str, object]) -> dict[str, object]:
    """Return `params` after checking their types against the annotations of a class's constructor.

    Only annotations in `PARAM_TYPES` are checked. The class itself checks ranges, and can rely on the types. Raises
    DataError if a value has another type, or is a number that does not fit into 64 bits.
    """
    signature = inspect.signature(cls).parameters
    for name, value in params.items():
        annotation = str(signature[name].annotation) if name in signature else "Any"
        type_names = {type_name.strip() for type_name in annotation.replace("os.PathLike[str]", "str").split("|")}
        types = {value_type for type_name in type_names for value_type in PARAM_TYPES.get(type_name, ())}
        if type_names <= PARAM_TYPES.keys() and type(value) not in types:
            raise DataError(f"{name} is {reprlib.repr(value)}; expected {annotation}")
        max_value = sys.float_info.max if isinstance(value, float) else 2**63 - 1
        if "RandomState" not in type_names and isinstance(value, int | float) and not abs(value) <= max_value:
            raise DataError(f"{name} is {reprlib.repr(value)}; expected a finite number of at most 64 bits")
    return params


def learned_parts(estimator: Estimator, prefix: str) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield (name, array) for each learned array of numbers of an estimator and its inner estimators."""
    for key, value in learned_attributes(estimator).items():
        if _are_estimators(value):
            for i, member in enumerate(value):
                yield from learned_parts(member, f"{prefix}{key}.{i}.")
            continue
        for part in (value.data, value.indices, value.indptr) if sp.issparse(value) else (value,):
            if isinstance(part, np.ndarray) and part.dtype != object:
                yield prefix + key, part


def _are_estimators(value: object) -> TypeGuard[list[Estimator]]:
    """Return whether a value is a list of estimators."""
    return isinstance(value, list) and bool(value) and all(_is_estimator(entry) for entry in value)


def _is_estimator(value: object) -> TypeGuard[Estimator]:
    """Return whether a value is an instance of an estimator; False for a class."""
    return hasattr(value, "get_params") and not isinstance(value, type)


def without_times(description: dict[str, object]) -> tuple[dict[str, object], Times]:
    """Split a description from `pack` into one with None for all training times, and the training times."""
    result, times = copy.deepcopy(description), {}
    for name, records in _records(result, ""):
        times[name] = [record.get(SECONDS_KEY) for record in records]
        for record in records:
            record[SECONDS_KEY] = None
    return result, times


def put_times(description: object, times: object) -> None:
    """Put the training times from `without_times` back into a description; both may come from a damaged file.

    Raises DataError if an attribute does not have one number (or None) per record.
    """
    records = dict(_records(description, ""))
    if not isinstance(times, dict):
        raise DataError("expected an object of lists of seconds")
    for name, seconds in times.items():
        is_list = isinstance(seconds, list) and len(seconds) == len(records.get(name, ()))
        if not is_list or not {type(value) for value in seconds} <= {int, float, type(None)}:
            raise DataError(f"{name!r} does not have one number of seconds for each record of the model")

    for name, seconds in times.items():
        for record, value in zip(records[name], seconds, strict=True):
            record[SECONDS_KEY] = value


def _records(part: object, prefix: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield (attribute, records) for each list of records in a description that has training times."""
    values = part.get("values") if isinstance(part, dict) else None
    for name, box in values.items() if isinstance(values, dict) else ():
        for kind, content in box.items() if isinstance(box, dict) else ():
            if kind == "estimators" and isinstance(content, list):
                for i, member in enumerate(content):
                    yield from _records(member, f"{prefix}{name}.{i}.")
            elif (
                isinstance(content, list)
                and all(isinstance(record, dict) for record in content)
                and any(SECONDS_KEY in record for record in content)
            ):
                yield prefix + name, content


def key_of(*parts: object) -> str:
    """Return 16 hexadecimal digits that identify the values on which a result depends."""
    return hashlib.sha256(json.dumps(jsonable(parts), sort_keys=True).encode()).hexdigest()[:16]


def digest_of(matrices: list[Any]) -> str:
    """Return 16 hexadecimal digits that identify the content of matrices, each dense, CSR or None."""
    digest = hashlib.sha256()
    for matrix in matrices:
        if matrix is None:
            digest.update(b"none")
            continue
        parts = (matrix.data, matrix.indices, matrix.indptr) if sp.issparse(matrix) else (matrix,)
        digest.update(str(matrix.shape).encode())
        for part in parts:
            array = np.ascontiguousarray(part)
            digest.update(str(array.dtype).encode())
            digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def jsonable(value: Any) -> Any:
    """Return a value for JSON: NumPy numbers as Python ones, tuples and arrays as lists, NaN and infinity as None."""
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
