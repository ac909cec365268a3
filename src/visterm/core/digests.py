"""Names of what a result depends on: digests of settings and of matrices, the same in every process."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import numpy as np
import scipy.sparse as sp


def key_of(*parts: Any) -> str:
    """Return 16 hexadecimal digits that name a result by what it depends on."""
    return hashlib.sha256(json.dumps(jsonable(parts), sort_keys=True).encode()).hexdigest()[:16]


def digest_of(matrices: list[Any]) -> str:
    """Return 16 hexadecimal digits that name the content of matrices: dense, CSR or None."""
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
    """Return a value with NumPy's numbers, tuples and non-finite numbers in the forms that JSON has."""
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
