"""Encoders by what users type, ``name``, ``name:argument`` or several joined by ``+``; and networks by name.

The table of networks that comes with visterm is read with the rows that users add, and says which files are here.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from visterm.core.errors import DataError, MissingExtraError, StorageError, UnknownNameError, UserError
from visterm.core.files import MB, read_regular_text
from visterm.core.registry import unknown
from visterm.core.system import user_file
from visterm.core.tables import ENCODERS
from visterm.core.writing import in_bytes
from visterm.encoders.onnx_graph import network_hash

if TYPE_CHECKING:  # which loads scikit-learn
    from visterm.encoders.contract import AnyEncoder

DEFAULT_ENCODER = "visterms"

JOIN = "+"  # Stands between the encoders of a chain
OURS: Final = Path(__file__).with_name("networks.toml")
VARIABLE: Final = "VISTERM_NETWORKS"  # Names the user's table
COMMIT: Final = re.compile("[0-9a-f]{40}")
_HASH: Final = re.compile("[0-9a-f]{64}")


def default_encoder() -> str:
    """Return the name of the default encoder: the best network of the table that is on this machine.

    Without one, or without onnxruntime, that is visterms.
    """
    if find_spec("onnxruntime") is None:
        return DEFAULT_ENCODER
    return next((row.name for row in networks().values() if is_here(row)), DEFAULT_ENCODER)


def default_line() -> str:
    """Return a line for people: the default encoder, and what fetching a network would bring."""
    name = default_encoder()
    if name != DEFAULT_ENCODER:
        return f"Encoder: {name}, the first network of `visterm encoders` that is on this machine."
    best = next(iter(networks().values()))
    extra = "" if find_spec("onnxruntime") else "pip install 'visterm[onnx]', then "
    return (
        f"Encoder: {name}. A network's features are stronger, and none is here. Fetch one: {extra}visterm encoders get "
        f"{best.name} ({best.size()}, licence: {best.licence})"
    )


def registered_name(spec: str | None) -> str:
    """Return the name of the class of an encoder as `make_encoder` takes it: "onnx" for a network by name."""
    name = (spec or default_encoder()).partition(":")[0]
    return name if name in ENCODERS.names() or name not in networks() else "onnx"


def make_encoder(spec: str | None, params: Mapping[str, object], shared: Mapping[str, object]) -> AnyEncoder:
    """Make an encoder from ``name``, ``name:argument`` or the name of a network; None is `default_encoder`.

    The text after the colon fills the parameter that its class names `argument`. `params` are its settings; `shared`
    ones (seed, threads) it gets if it has them and `params` have not. Raises UnknownNameError if there is no such
    encoder, or it has no such parameter; UserError if it takes no argument.
    """
    name, colon, argument = (spec or default_encoder()).partition(":")
    if name not in ENCODERS.names():  # else the table is not read: it may be broken
        if name not in (table := networks()):
            raise ENCODERS.unknown(name, encoder_names())
        if colon:
            problem = f"The network '{name}' takes no argument after a colon, but got '{argument}'."
            raise UserError(problem, setting="encoder", value=spec, advice="Leave it out.")
        name, params = "onnx", {**table[name].encoder, **params, "network": name}
    cls = ENCODERS.load(name)
    known = signature(cls).parameters
    filled = {key: shared[key] for key in shared if key in known}

    if colon:
        if cls.argument is None:
            problem = f"The encoder '{name}' takes no argument after a colon, but got '{argument}'."
            raise UserError(problem, setting="encoder", value=spec, advice="Leave it out.")
        filled[cls.argument] = argument
    encoder: AnyEncoder = ENCODERS.create(name, **{**filled, **params})
    return encoder


def split_specs(text: str) -> list[str]:
    """Split ``visterms+onnx:PATH`` into its encoders; a ``+`` inside a path stays, unless an encoder's name follows."""
    specs: list[str] = []
    for piece in text.split(JOIN):
        name = piece.partition(":")[0]
        if not specs or ":" not in specs[-1] or name in ENCODERS.names() or name in networks():
            specs.append(piece)
        else:
            specs[-1] += JOIN + piece
    return specs


def encoder_names() -> list[str]:
    """Return the names of encoders, then those of networks."""
    return [*ENCODERS.names(), *networks()]


@dataclass(frozen=True, slots=True)
class NetworkFile:
    """One file of a network: where it is in its repository, or on this machine where there is none."""

    file: str
    bytes: int | None = None  # About
    sha256: str | None = None  # None: that of the first download is recorded, and no other is taken ever after


@dataclass(frozen=True, slots=True)
class TextTower:
    """The half of a network that turns texts into vectors, and how it takes them."""

    model: NetworkFile
    tokenizer: NetworkFile  # A tokenizer.json
    length: int  # In tokens: longer texts are cut, shorter ones padded with `pad_id`
    pad_id: int = 0
    canonicalise: bool = False  # Small letters, no punctuation
    output: str | None = None  # None: the only one, or one that is named as features are
    scale: float | None = None  # p = 1 / (1 + exp(-(scale · cosine + offset))), where the network was trained so
    offset: float | None = None
    languages: str = ""


@dataclass(frozen=True, slots=True)
class Network:
    """One row of the table."""

    name: str
    good_for: str
    licence: str
    image: NetworkFile
    prepared_by: NetworkFile | None = None  # What says how photos are prepared, of transformers or open_clip
    repository: str | None = None  # On the hub; None: files are on this machine, with their full path
    revision: str = "main"
    run_by_us: bool = False  # Whether we ran it on the real files
    yours: bool = False  # Whether it is a row of the user's
    settings: Mapping[str, object] = field(default_factory=dict)  # As in NETWORK.json beside a network
    encoder: Mapping[str, object] = field(default_factory=dict)  # Settings of the onnx encoder
    text: TextTower | None = None

    def files(self) -> list[NetworkFile]:
        """Return the files to fetch, those of the text tower among them."""
        towers = [self.text.model, self.text.tokenizer] if self.text else []
        return [each for each in (self.image, self.prepared_by, *towers) if each is not None]

    def size(self) -> str:
        """Return how large its files are, for people: ``351.6 MB``; those on this machine are measured."""
        if self.repository is None:
            known = [os.path.getsize(each.file) for each in self.files() if os.path.isfile(each.file)]
        else:
            known = [each.bytes for each in self.files() if each.bytes is not None]
        return in_bytes(sum(known)) if known else "size unknown"


def networks() -> dict[str, Network]:
    """Return the table: the user's rows, then ours that these do not replace.

    Raises DataError if the user's file is not TOML, or a row cannot be, or `VARIABLE` names a file that is not there.
    """
    users = user_file("networks.toml", VARIABLE)
    if os.environ.get(VARIABLE) and not users.exists():
        raise DataError(f"{VARIABLE} names {users}, which is not there. Put your table there, or unset {VARIABLE}.")
    rows: dict[str, Network] = {}
    for path in filter(Path.exists, (users, OURS)):
        status = path.stat()
        table = _read_at(path, status.st_mtime_ns, status.st_size)  # again only where it has changed
        rows |= {name: row for name, row in table.items() if name not in rows}
    return rows


def network_named(name: str) -> Network:
    """Return a row of the table. Raises UnknownNameError, with the nearest names, if there is none."""
    table = networks()
    if name not in table:
        raise UnknownNameError(unknown("network", name, list(table)), setting="network", value=name)
    return table[name]


def users_table() -> Path:
    """Return the place of the user's own rows, whether or not it is there."""
    return user_file("networks.toml", VARIABLE)


def lock_file() -> Path:
    """Return the place of what was recorded at first downloads, beside the user's own rows."""
    return users_table().with_suffix(".lock")


def locked(network: Network) -> dict[str, Any]:
    """Return what was recorded of a repository at its first download: ``{"revision": ..., "sha256": {file: hash}}``.

    Raises DataError if the lock file cannot be read.
    """
    entry = read_lock().get(network.repository or "", {})
    return entry if isinstance(entry, dict) else {}


def read_lock() -> dict[str, Any]:
    """Return the whole lock file, by repository; empty if there is none. Raises DataError if it cannot be read."""
    file = lock_file()
    try:
        lock = json.loads(read_regular_text(file, MB))
        if not isinstance(lock, dict):
            raise ValueError("it is no JSON object")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{file}, the hashes of networks, cannot be read: {error}. Restore it or remove it.") from error
    return lock


def revision_of(network: Network) -> str:
    """Return the commit that the row names, or else that of the first download, or else the row's branch."""
    pinned = COMMIT.fullmatch(network.revision)
    return network.revision if pinned else str(locked(network).get("revision", network.revision))


def expected_hash(network: Network, file: NetworkFile) -> str | None:
    """Return the SHA-256 that a file must have: by the table, or recorded at its first download; None if unknown."""
    recorded: dict[str, str] = locked(network).get("sha256", {})
    return file.sha256 or recorded.get(file.file)


def local_path(network: Network, file: NetworkFile) -> str | None:
    """Return where a file is on this machine; None if it is not. Nothing is downloaded."""
    if network.repository is None:
        return file.file if os.path.isfile(file.file) else None
    if find_spec("huggingface_hub") is None:
        return None
    client = hub_client()
    cache, folder = client.constants.HF_HUB_CACHE, f"models--{network.repository.replace('/', '--')}"

    if not os.path.isdir(os.path.join(cache, folder)):  # which spares the import of most of the client
        return None
    cached = client.try_to_load_from_cache(
        network.repository, file.file, revision=revision_of(network), cache_dir=cache
    )
    return cached if isinstance(cached, str) else None


def hub_client() -> Any:
    """Return the package huggingface_hub, imported only now. Raises MissingExtraError if it is not installed."""
    try:
        import huggingface_hub.constants
    except ImportError as error:
        raise MissingExtraError(
            "Fetching networks needs the package 'huggingface_hub'. Install it with: pip install 'visterm[onnx]'"
        ) from error
    return huggingface_hub


def required(network: Network, file: NetworkFile) -> str:
    """Return where a file is on this machine, if its hash is right.

    Raises StorageError, with the command that fetches it, the size and the licence, if it is not there; the same if it
    has changed.
    """
    path = local_path(network, file)
    if path is None:
        raise not_here(network, file)
    expected = expected_hash(network, file)
    if expected not in (None, network_hash(path)):
        advice = f"Remove it, and fetch it again: visterm encoders get {network.name}"
        if network.repository is None:
            advice = f"Put the right file there, or change sha256 in the row of {users_table()}."
        raise StorageError(
            f"{path} is not the file of the network '{network.name}': its SHA-256 is {network_hash(path)}, expected "
            f"{expected}. {advice}"
        )
    return path


def not_here(network: Network, file: NetworkFile) -> StorageError:
    """Return the error for a file that is not on this machine: how to get it, its size and licence."""
    if network.repository is None:
        return StorageError(
            f"A file of the network '{network.name}' should be in {file.file}, which is not there. Put it there, or "
            f"change the row in {users_table()}."
        )
    return StorageError(
        f"The network '{network.name}' is not on this machine, and nothing is downloaded unasked. Fetch it with: "
        f"visterm encoders get {network.name} ({network.size()} from {network.repository}, licence: {network.licence})"
    )


def is_here(network: Network, *, text: bool = False) -> bool:
    """Return whether a network's image tower, and with `text` its text tower, is on this machine."""
    tower = (network.text.model, network.text.tokenizer) if text and network.text else ()
    return all(local_path(network, each) for each in (network.image, *tower))


@lru_cache(maxsize=8)
def _read_at(path: Path, mtime_ns: int, size: int) -> dict[str, Network]:
    """Read a table of networks. Raises DataError if it is not TOML, or a row cannot be."""
    try:
        table = tomllib.loads(read_regular_text(path, MB))
    except (OSError, ValueError) as error:
        raise DataError(f"The table of networks {path} cannot be read: {error}.") from error
    rows = {}

    for name, row in table.items():
        try:
            rows[name] = _row(name, row, path.parent)
        except (TypeError, UserError) as error:
            raise DataError(f"{path}, network '{name}': {error}") from error
    return rows


def _row(name: str, row: object, folder: Path) -> Network:
    """Return one row, checked; paths on this machine are made full ones."""
    if name in ENCODERS.names() or not re.fullmatch(r"[A-Za-z][\w.-]*", name):
        raise UserError("this name cannot be used: expected letters, digits, - and _, and not an encoder's name.")
    top = _checked_table(row, "row", name, _TOP)
    local = top.get("repository") is None
    image = _checked_table(top.pop("image"), "image", f"{name}.image", _IMAGE)
    prepared_by = image.pop("prepared_by", None)
    text = top.pop("text", None)
    if folder != OURS.parent:  # a test checks ours: this loads SciPy, which no list needs
        from visterm.encoders.onnx_settings import check_settings

        check_settings(top.get("settings", {}))

    def file_of(entry: dict[str, Any], prefix: str = "", key: str = "file") -> NetworkFile:
        sha256 = entry.pop(f"{prefix}sha256", None)
        if sha256 is not None and not _HASH.fullmatch(sha256):
            raise UserError(f"{prefix}sha256 is '{sha256}'; expected 64 digits of 0 to f, in small letters.")
        path = entry.pop(key)
        return NetworkFile(str(folder.absolute() / Path(path).expanduser()) if local else path,
                           entry.pop(f"{prefix}bytes", None), sha256)  # fmt: skip

    tower = None
    if text is not None:
        given = _checked_table(text, "text", f"{name}.text", _TEXT)
        tower = TextTower(file_of(given), file_of(given, "tokenizer_", "tokenizer"), **given)
    return Network(
        name=name,
        image=file_of(image),
        prepared_by=None if prepared_by is None else file_of({"file": prepared_by}),
        text=tower,
        yours=folder != OURS.parent,
        **top,
    )


Kinds: TypeAlias = "dict[str, Any]"  # Of the keys of a table
_NUMBER: Final = (int, float)
_TOP: Final[Kinds] = {
    "good_for": str, "licence": str, "repository": str, "revision": str, "run_by_us": bool, "image": dict,
    "settings": dict, "encoder": dict, "text": dict,
}  # fmt: skip
_IMAGE: Final[Kinds] = {"file": str, "bytes": int, "sha256": str, "prepared_by": str}
_TEXT: Final[Kinds] = {
    "file": str, "bytes": int, "sha256": str, "tokenizer": str, "tokenizer_bytes": int, "tokenizer_sha256": str,
    "length": int, "pad_id": int, "canonicalise": bool, "output": str, "scale": _NUMBER, "offset": _NUMBER,
    "languages": str,
}  # fmt: skip
_NEEDED: Final = {"row": ("good_for", "licence", "image"), "image": ("file",), "text": ("file", "tokenizer", "length")}
_KINDS: Final = {str: "text", int: "a whole number", bool: "true or false", _NUMBER: "a number"}
_LEAST: Final = {"bytes": 1, "tokenizer_bytes": 1, "length": 1, "pad_id": 0}


def _checked_table(table: object, what: str, name: str, known: Kinds) -> dict[str, Any]:
    """Return the table `name` of a row; refuse keys that are unknown or missing, and values that cannot be."""
    if not isinstance(table, dict):
        raise UserError(f"{name.rpartition('.')[2]} is {table!r}; expected a table [{name}].")
    for key, value in table.items():
        if key not in known:
            raise UserError(unknown(f"key of {what}", key, list(known)))
        if not isinstance(value, known[key]) or (isinstance(value, bool) and known[key] is not bool):
            expected = f"a table [{name}.{key}]" if known[key] is dict else _KINDS[known[key]]
            raise UserError(f"{key} is {value!r}; expected {expected}.")
        if key in _LEAST and value < _LEAST[key]:
            raise UserError(f"{key} is {value}; expected {_LEAST[key]} or more.")

    if missing := [key for key in _NEEDED[what] if key not in table]:
        raise UserError(f"{'the row' if what == 'row' else what} has no {missing[0]}.")
    return dict(table)
