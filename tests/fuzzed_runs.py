"""Damaged runs by number: sound runs changed in values, arrays and bytes, with a manifest that fits.

``python fuzzed_models.py FOLDER NAME FIRST END`` opens cases FIRST .. END - 1 of runs that `make_runs` put into a
folder, of those with NAME in their name ("all": of all in turn), and prints what became of each; ``fuzzed_encoders.py``
likewise.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file, save

from visterm.core.errors import VistermError
from visterm.core.persist import MANIFEST, file_hash

SEED = 20_261_122
MEMORY = 2**30
"""Bytes that a case may take beyond what the sound runs take."""

VALUES: tuple[Any, ...] = (
    0, -1, 1, 2, 255, 2**31 - 1, 2**31, 2**53, 2**63, 10**30, 0.5, -0.0, 1e-320, 1e308, -1e308, float("nan"),
    float("inf"), True, False, None, "", "text", "../../x", "\ud800", [], {}, [0], [[0]], [[[]]], {"a": 0},
    {"value": 1}, {"estimators": []}, {"array": [1]}, [1] * 50,
)  # fmt: skip
NUMBERS = (
    0,
    -1,
    1,
    2,
    5,
    7,
    100,
    2**31 - 1,
    2**31,
    -(2**31),
    10**8,
    -(10**8),
    2**62,
    1e-30,
    1e30,
    1e308,
    np.nan,
    np.inf,
)
TYPES = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "uint64", "bool")


class Files(NamedTuple):
    """What is written of an estimator: its description, and its arrays by name."""

    description: dict[str, Any]
    arrays: dict[str, np.ndarray]


Damage = Callable[[Files, np.random.Generator], None]


def places(node: Any) -> list[tuple[Any, Any]]:
    """List all entries of a JSON value: the dict or list, and the key in it; long lists by their ends only."""
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))[:3] if isinstance(node, list) else []
    return [place for key in keys for place in ((node, key), *places(node[key]))]


def value_changed(files: Files, rng: np.random.Generator) -> None:
    node, key = _drawn(places(files.description), rng)
    node[key] = VALUES[rng.integers(len(VALUES))]


def entry_dropped(files: Files, rng: np.random.Generator) -> None:
    node, key = _drawn(places(files.description), rng)
    del node[key]


def entry_renamed(files: Files, rng: np.random.Generator) -> None:
    node, key = _drawn([place for place in places(files.description) if isinstance(place[0], dict)], rng)
    node[str(rng.choice([key + "_", "_" + key, "fit", "__class__", "tag_rows_"]))] = node.pop(key)


def entry_added(files: Files, rng: np.random.Generator) -> None:
    node, key = _drawn(places(files.description), rng)
    if isinstance(node, dict):
        node[str(rng.choice(["rows_", "_fit", "annotate", "n_layers_", "tag_rows_", "x_"]))] = {"value": 1}
    else:
        node.append(node[key])


def array_dropped(files: Files, rng: np.random.Generator) -> None:
    del files.arrays[_drawn(list(files.arrays), rng)]


def array_added(files: Files, rng: np.random.Generator) -> None:
    name = str(rng.choice(["x_", "fit", "members_.0.rows_", "tag_rows_", "rows_:data", "weights_9_", "_", "."]))
    files.arrays[name] = np.zeros((3, 2), np.float32)


def array_of_another_type(files: Files, rng: np.random.Generator) -> None:
    name = _drawn(list(files.arrays), rng)
    files.arrays[name] = files.arrays[name].astype(TYPES[rng.integers(len(TYPES))])


def array_of_another_shape(files: Files, rng: np.random.Generator) -> None:
    name = _drawn(list(files.arrays), rng)
    array = files.arrays[name]
    shapes: list[tuple[int, ...]] = [(array.size,), (1, *array.shape), (*array.shape, 1), array.shape[::-1], (-1, 1)]
    files.arrays[name] = array.reshape(shapes[rng.integers(len(shapes))])


def array_cut(files: Files, rng: np.random.Generator) -> None:
    name = _drawn(list(files.arrays), rng)
    array = np.atleast_1d(files.arrays[name])
    axis = int(rng.integers(array.ndim))
    files.arrays[name] = np.take(array, np.arange(rng.integers(array.shape[axis] + 1)), axis=axis)


def array_made_longer(files: Files, rng: np.random.Generator) -> None:
    name = _drawn(list(files.arrays), rng)
    files.arrays[name] = np.concatenate([np.atleast_1d(files.arrays[name])] * 2, axis=0)


def number_changed(files: Files, rng: np.random.Generator) -> None:
    names = [name for name, array in files.arrays.items() if array.size]
    indices = [name for name in names if files.arrays[name].dtype.kind in "iu"]
    name = _drawn(indices if indices and rng.random() < 0.6 else names, rng)
    array = files.arrays[name].copy()
    with np.errstate(all="ignore"):
        array.flat[rng.integers(array.size)] = np.array([NUMBERS[rng.integers(len(NUMBERS))]]).astype(array.dtype)[0]
    files.arrays[name] = array


def numbers_swapped(files: Files, rng: np.random.Generator) -> None:
    name = _drawn([name for name, array in files.arrays.items() if array.size], rng)
    array = files.arrays[name].copy()
    one, other = rng.integers(array.size, size=2)
    array.flat[one] = array.flat[other]
    files.arrays[name] = array


def arrays_swapped(files: Files, rng: np.random.Generator) -> None:
    one, other = _drawn(list(files.arrays), rng), _drawn(list(files.arrays), rng)
    files.arrays[one], files.arrays[other] = files.arrays[other], files.arrays[one]


def bytes_changed(content: bytes, rng: np.random.Generator) -> bytes:
    """Flip bits, cut the end off, put an extreme length in front, or nest brackets deeply."""
    kind = int(rng.integers(5))
    changed = bytearray(content)
    if kind == 0:
        for _ in range(rng.integers(1, 9)):
            changed[rng.integers(min(len(changed), 600))] ^= 1 << int(rng.integers(8))
        return bytes(changed)
    if kind == 1:
        return content[: rng.integers(len(content))]
    if kind == 2:
        return int(rng.choice([0, 7, 10**9, 10**12, 2**63 - 1])).to_bytes(8, "little") + content[8:]
    if kind == 3:
        return content.replace(b"[", b"[" * 100_000 if content[:1] == b"{" else b"[1000000000000, ", 1)
    return content.replace(b'"shape":[', b'"shape":[1000000,1000000,', 1)


def _drawn(choices: list[Any], rng: np.random.Generator) -> Any:
    return choices[rng.integers(len(choices))]


OF_VALUES: tuple[Damage, ...] = (
    value_changed, value_changed, entry_dropped, entry_renamed, entry_added,
)  # fmt: skip
OF_ARRAYS: tuple[Damage, ...] = (
    array_dropped, array_of_another_type, array_of_another_shape, array_cut, array_made_longer, number_changed,
    number_changed, number_changed, numbers_swapped, arrays_swapped,
)  # fmt: skip
DAMAGES: tuple[Damage | None, ...] = (*OF_VALUES, *OF_ARRAYS, array_added, None, None)
"""What can be done to the files of an estimator, in turn; None changes bytes."""


class Cases(ABC):
    """Opens damaged copies of sound runs.

    Parameters
    ----------
    folder : Path
        The sound runs.
    names : list of str
        Those in it that take turns; the first word of a name is the part of the run that is damaged.
    """

    def __init__(self, folder: Path, names: list[str]) -> None:
        self._folder = folder
        self._names = names
        self._sound = {name: self.answer(folder / name, name) for name in names}

    @abstractmethod
    def answer(self, run: Path, name: str) -> list[Any]:
        """Ask a run for all that its damaged part gives."""

    def name_of(self, number: int) -> str:
        """Say which run a case is made of, and by which damage, if it has what that damages."""
        damage = self._damage(number)
        return f"{self._names[number % len(self._names)]}: {damage.__name__ if damage else 'bytes_changed'}"

    def become_of(self, number: int, folder: Path) -> str:
        """Open the case in a folder that is written anew: "same", "other" answers, or "refused: " and the message."""
        name = self._names[number % len(self._names)]
        self._write(number, self._folder / name, folder)
        try:
            answer = self.answer(folder, name)
        except VistermError as error:
            return f"refused: {error}"
        return "same" if answer == self._sound[name] else "other"

    def _damage(self, number: int) -> Damage | None:
        return DAMAGES[number // len(self._names) % len(DAMAGES)]

    def _write(self, number: int, sound: Path, folder: Path) -> None:
        """Make a folder a copy of the sound run, of links to its files but where they are damaged."""
        for file in folder.iterdir():
            file.unlink()
        for file in sound.iterdir():
            os.link(file, folder / file.name)
        changed = self._damage_run(number, folder, np.random.default_rng([SEED, number]))
        manifest = json.loads((folder / MANIFEST).read_text())
        manifest["sha256"] |= {file.name: file_hash(file) for file in changed if file.name in manifest["sha256"]}
        write_anew(folder / MANIFEST, json.dumps(manifest).encode())

    def _damage_run(self, number: int, folder: Path, rng: np.random.Generator) -> list[Path]:
        """Damage some of a run's files, and return them."""
        part = self._names[number % len(self._names)].partition(" ")[0]
        described, held = folder / f"{part}.json", folder / f"{part}.safetensors"
        damage = self._damage(number)
        if damage is None:
            file = described if number // len(self._names) % 2 else held
            write_anew(file, bytes_changed(file.read_bytes(), rng))
            return [file]
        files = Files(json.loads(described.read_text()), load_file(held))
        if damage in OF_ARRAYS and not files.arrays:
            damage = value_changed
        damage(files, rng)
        write_anew(described, json.dumps(files.description).encode())
        write_anew(held, as_safetensors(files.arrays))
        return [described, held]


def write_anew(file: Path, content: bytes) -> None:
    """Replace a file, which may be a link to a sound one."""
    file.unlink()
    file.write_bytes(content)


def as_safetensors(arrays: dict[str, np.ndarray]) -> bytes:
    """Return the bytes of a file that holds named arrays."""
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def open_cases(kind: type[Cases], arguments: list[str]) -> None:
    """Open the cases that a command names; print the number of each first, and then what became of it."""
    folder, wanted, first, end = Path(arguments[0]), arguments[1], int(arguments[2]), int(arguments[3])
    names = sorted(run.name for run in folder.iterdir() if run.is_dir() and run.name.partition(" ")[2])
    if wanted != "all":
        names = [name for name in names if wanted in name.split()]
    warnings.simplefilter("ignore")
    cases = kind(folder, names)
    (folder / "case").mkdir(exist_ok=True)
    used = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmSize" in line)
    resource.setrlimit(resource.RLIMIT_AS, (used * 2**10 + MEMORY,) * 2)
    for number in range(first, end):
        print(number, cases.name_of(number), flush=True)
        try:
            print(json.dumps(cases.become_of(number, folder / "case")), flush=True)
        except BaseException:
            print(json.dumps("failed: " + traceback.format_exc()), flush=True)
    sys.stdout.flush()
    os._exit(0)  # a server that still runs would be waited for
