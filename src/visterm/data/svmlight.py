"""Feature rows in the form of svmlight and libsvm: a line a row, the numbers that are not 0 by their index."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import checked_csr
from visterm.core.errors import DataError
from visterm.data.array_files import MOST_FEATURES, open_unpacked

LONGEST_SHOWN = 40


def read_svmlight(path: Path) -> sp.csr_array:
    """Read the rows of a file, which may be gzipped; the targets are not looked at.

    Returns
    -------
    csr_array of float32
        From index 0 or 1 on, whichever the file begins with.

    Raises
    ------
    DataError
        If a line cannot be understood: the message names it, and what is wrong with it.
    TooLargeError
        If it would unpack to far more than such a file does.
    ValueError, OverflowError, OSError
        If it is no such file.
    """
    from sklearn.datasets import load_svmlight_file

    try:
        with open_unpacked(path) as file:
            rows = load_svmlight_file(file, dtype=np.float32, multilabel=True)[0]
    except (ValueError, OverflowError):
        _refuse_first_wrong_line(path)
        raise
    if not np.isfinite(rows.data).all() or rows.indices.min(initial=0) < 0 or rows.shape[1] > MOST_FEATURES:
        _refuse_first_wrong_line(path)
    return checked_csr(rows.data, rows.indices, rows.indptr, rows.shape, str(path))


def _refuse_first_wrong_line(path: Path) -> None:
    with open_unpacked(path) as file:
        for number, line in enumerate(file, start=1):
            cells = line.partition(b"#")[0].split()
            last = -1
            for pair in cells if cells and b":" in cells[0] else cells[1:]:
                index, _, value = pair.partition(b":")
                if index == b"qid":
                    continue
                wrong = _wrong(index, value, last)
                if wrong:
                    shown = pair[:LONGEST_SHOWN].decode("utf-8", "replace")
                    raise DataError(f"{path}, line {number}: '{shown}' {wrong}. Correct the line, or leave it out.")
                last = int(index)


def _wrong(index: bytes, value: bytes, last: int) -> str:
    """Say what is wrong with a pair; nothing where it is in order."""
    if not index.isdigit():
        return "does not begin with an index; expected INDEX:NUMBER, with a whole number of 0 or more"
    if len(index) > len(str(MOST_FEATURES)) or int(index) >= MOST_FEATURES:
        return f"has too large an index; expected at most {MOST_FEATURES - 1:,}"
    if int(index) <= last:
        return f"comes after the index {last}; expected indices in ascending order, each once"
    try:
        number = float(value)
    except ValueError:
        return "does not end with a number; expected INDEX:NUMBER"
    return "" if math.isfinite(number) else "has a number that is not finite"
