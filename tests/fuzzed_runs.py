"""Damaged runs by number: sound runs of every model, changed in values, arrays and bytes, with a manifest that fits.

``python fuzzed_runs.py FOLDER NAME FIRST END`` opens cases FIRST .. END - 1 of runs that `make_runs` put into a folder,
of those with NAME in their name ("all": of all in turn), and prints what became of each. The first word of a run's name
is the part of it that is damaged: its model or its encoder.
"""

from __future__ import annotations

import json
import resource
import sys
import traceback
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from safetensors.numpy import load_file, save_file

from visterm.core.errors import VistermError
from visterm.core.persist import MANIFEST, file_hash
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.encoders.visterms import Visterms
from visterm.tagging.tagger import Tagger

SEED = 20_261_122
MEMORY = 2**30
"""Bytes that a case may take beyond what the sound runs take."""

N_IMAGES, N_TAGS = 40, 6
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
FURTHER = {"svm": {"kernel": "rbf"}, "tagprop": {"weights": "rank", "blocks": [4, 8]}, "wsabie": {"bias": 0.5}}
"""Settings of the sparse runs of some models, so that all that can be learned is there."""


class Files(NamedTuple):
    """What is written of an estimator: its description, and its arrays by name."""

    description: dict[str, Any]
    arrays: dict[str, np.ndarray]


Damage = Callable[[Files, np.random.Generator], None]


def make_runs(folder: Path) -> None:
    """Fit every model on dense features and on sparse ones, and save each as a run."""
    rng = np.random.default_rng(0)
    pictures = list(rng.integers(0, 256, (N_IMAGES, 16, 16, 3), np.uint8))
    encoder = Visterms(colours=4, codebook=12, scales=(1.0,), max_side=16, sample_blocks=200, n_jobs=1).fit(pictures)
    X: Any = encoder.transform(pictures)
    Y = sp.csr_array(X[:, :N_TAGS] > np.median(X.toarray()[:, :N_TAGS], axis=0), dtype=np.float32)
    tags = Vocabulary([f"tag {t}" for t in range(N_TAGS)])
    sp.save_npz(folder / "X.npz", X)
    for entry in MODELS:
        if entry.extra and not find_spec(entry.extra):
            continue
        for form, features in (("dense", X.toarray()), ("sparse", X)):
            cls = entry.load()
            params = cls.test_params | (FURTHER.get(entry.name, {}) if form == "sparse" else {})
            short = {"epochs": 2, "n_jobs": 1, "random_state": 0}
            model = cls(**params)
            model.set_params(**{key: value for key, value in short.items() if key in model.get_params(deep=False)})
            tagger = Tagger.from_parts(encoder, model.fit(features, Y), tags, {})
            tagger.save(folder / f"model {entry.name} {form}")


def damages() -> tuple[Damage, ...]:
    """List what can be done to the files of an estimator."""
    return (
        value_changed, value_changed, entry_dropped, entry_renamed, entry_added, array_dropped, array_added,
        array_of_another_type, array_of_another_shape, array_cut, array_made_longer, number_changed, number_changed,
        number_changed, numbers_swapped, arrays_swapped,
    )  # fmt: skip


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


class Cases:
    """Opens damaged copies of sound runs.

    Parameters
    ----------
    folder : Path
        From `make_runs`.
    names : list of str
        The runs in it that take turns.
    """

    def __init__(self, folder: Path, names: list[str]) -> None:
        self._folder = folder
        self._names = names
        self._asked = {"model": self._ask_model}
        sparse = sp.csr_array(sp.load_npz(folder / "X.npz"))
        self._features = {"sparse": sparse, "dense": sparse.toarray()}
        self._sound = {name: self.answer(folder / name, name) for name in names}

    def name_of(self, number: int) -> str:
        """Say which run a case is made of, and by which damage."""
        return f"{self._names[number % len(self._names)]}: {self._damage(number)}"

    def become_of(self, number: int, folder: Path) -> str:
        """Open the case in a folder that is written anew: "same", "other" answers, or "refused: " and the message."""
        name = self._names[number % len(self._names)]
        self._write(number, self._folder / name, folder)
        try:
            answer = self.answer(folder, name)
        except VistermError as error:
            return f"refused: {error}"
        return "same" if answer == self._sound[name] else "other"

    def answer(self, run: Path, name: str) -> list[Any]:
        """Ask a run for all that its damaged part gives."""
        return self._asked[name.partition(" ")[0]](Tagger.load(run, n_jobs=1), name)

    def _ask_model(self, tagger: Tagger, name: str) -> list[Any]:
        model, X = tagger.model, self._features[name.rpartition(" ")[2]]
        ids, scores = model.annotate(X, 3)
        rows = model.image_rows(X)
        found = rows @ model.query_rows(np.eye(N_TAGS)[:2]).T
        if not np.isfinite(scores).all() or not np.isfinite(found.data if sp.issparse(found) else found).all():
            raise ArithmeticError("infinite scores")
        if hasattr(model, "pair_scores"):
            model.pair_scores()
        return [ids.tolist(), scores.tolist()]

    def _damage(self, number: int) -> str:
        turn = number // len(self._names) % (len(damages()) + 2)
        return damages()[turn].__name__ if turn < len(damages()) else "bytes_changed"

    def _write(self, number: int, sound: Path, folder: Path) -> None:
        rng = np.random.default_rng([SEED, number])
        for file in sound.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        part = self._names[number % len(self._names)].partition(" ")[0]
        described, arrays = folder / f"{part}.json", folder / f"{part}.safetensors"
        if self._damage(number) == "bytes_changed":
            file = described if number // len(self._names) % 2 else arrays
            file.write_bytes(bytes_changed(file.read_bytes(), rng))
        else:
            files = Files(json.loads(described.read_text()), load_file(arrays))
            next(damage for damage in damages() if damage.__name__ == self._damage(number))(files, rng)
            described.write_text(json.dumps(files.description))
            save_file({name: np.ascontiguousarray(array) for name, array in files.arrays.items()}, arrays)
        manifest = json.loads((folder / MANIFEST).read_text())
        manifest["sha256"] = {name: file_hash(folder / name) for name in manifest["sha256"]}
        (folder / MANIFEST).write_text(json.dumps(manifest))


def open_cases(folder: Path, names: list[str], first: int, end: int) -> None:
    """Print each case's number before it is opened and, after it, what became of it."""
    warnings.simplefilter("ignore")
    cases = Cases(folder, names)
    (folder / "case").mkdir(exist_ok=True)
    used = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmSize" in line)
    resource.setrlimit(resource.RLIMIT_AS, (used * 2**10 + MEMORY,) * 2)
    for number in range(first, end):
        print(number, cases.name_of(number), flush=True)
        try:
            print(json.dumps(cases.become_of(number, folder / "case")), flush=True)
        except BaseException:
            print(json.dumps("failed: " + traceback.format_exc()), flush=True)


if __name__ == "__main__":
    runs = Path(sys.argv[1])
    chosen = sorted(run.name for run in runs.iterdir() if run.name.startswith(("model ", "encoder ")))
    if sys.argv[2] != "all":
        chosen = [name for name in chosen if sys.argv[2] in name.split()]
    open_cases(runs, chosen, int(sys.argv[3]), int(sys.argv[4]))
