"""How long things took, kept apart from what was learned: the same run has the same bytes whatever the clock said.

Models note seconds in their records (an epoch of a training, a candidate of a blend). On disk these are null in the
model's description, and stand in a file beside it that no checksum covers. Runs of earlier versions have them inside.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from typing import Any, TypeAlias

from visterm.core.errors import DataError

SECONDS = "seconds"
"""The key of a record that holds them."""

Times: TypeAlias = dict[str, list[float | None]]
"""By learned attribute (``members_.0.history_`` of an inner estimator): the seconds of each of its records."""


def without_times(description: dict[str, Any]) -> tuple[dict[str, Any], Times]:
    """Return a description of an estimator (`visterm.core.packing.pack`) without seconds, and the seconds."""
    times: Times = {}

    def strip(part: dict[str, Any], prefix: str) -> dict[str, Any]:
        values = dict(part["values"])
        for name, box in values.items():
            if "estimators" in box:
                inner = [strip(one, f"{prefix}{name}.{i}.") for i, one in enumerate(box["estimators"])]
                values[name] = {"estimators": inner}
            elif _has_times(box.get("value")):
                times[prefix + name] = [record.get(SECONDS) for record in box["value"]]
                values[name] = {"value": [{**record, SECONDS: None} for record in box["value"]]}
        return {**part, "values": values}

    return strip(description, ""), times


def put_times(description: Any, times: Any) -> None:
    """Put the seconds that `without_times` took out back into the description, which may come from a damaged file.

    Raises
    ------
    DataError
        If the seconds are no list of numbers for each of its attributes, as long as its records.
    """
    records = dict(_records(description, ""))
    if not isinstance(times, dict):
        raise DataError("expected an object of lists of seconds")
    for name, seconds in times.items():
        if not isinstance(seconds, list) or len(seconds) != len(records.get(name, ())):
            raise DataError(f"{name!r} has no list of seconds as long as the records of the model")
        for record, value in zip(records[name], seconds, strict=True):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise DataError(f"{name!r} has {reprlib.repr(value)} among its seconds; expected numbers")
            record[SECONDS] = value


def _records(part: Any, prefix: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    values = part.get("values") if isinstance(part, dict) else None
    for name, box in values.items() if isinstance(values, dict) else ():
        for kind, found in box.items() if isinstance(box, dict) else ():
            if kind == "estimators" and isinstance(found, list):
                for i, one in enumerate(found):
                    yield from _records(one, f"{prefix}{name}.{i}.")
            elif _has_times(found):
                yield prefix + name, found


def _has_times(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(record, dict) for record in value)
        and any(SECONDS in record for record in value)
    )
