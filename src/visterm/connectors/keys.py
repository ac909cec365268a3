"""Keys and tokens for other programs' servers, read from files or the environment and never shown."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

from visterm.core.errors import DataError, UserError
from visterm.core.files import KB, MB, open_regular, read_regular_text
from visterm.core.system import user_file
from visterm.core.wording import json_text
from visterm.core.writing import write_whole

MAX_KEY_LENGTH = 4096
ALLOWED_VARIABLE = "VISTERM_CONNECTED"  # Environment variable: path of the list of allowed (server, key file) pairs
_KEY = re.compile("[!-~]+")  # Characters that are allowed in a header


def read_key(file: Path | None, variable: str) -> str:
    """Return the key in a file, or, without `file`, in an environment variable.

    Messages never contain the key. Raises UserError if it is missing or invalid, or if other users can read the file.
    """
    if file is None:
        key = os.environ.get(variable, "").strip()
        source = f"The environment variable {variable}"
        if not key:
            advice = f"Write it into a file that only you can read, and name it by `key_file`; or set {variable}."
            raise UserError("A key is needed.", setting="key_file", advice=advice)
    else:
        source, key = f"The key file {file}", read_secret("key", file)

    if len(key) > MAX_KEY_LENGTH or not _KEY.fullmatch(key):
        expected = "one line of letters, digits and signs without spaces"
        raise UserError(f"{source} holds no key", setting="key_file", value=file, expected=expected)
    return key


def read_secret(kind: str, file: Path) -> str:
    """Return the stripped text of a file with a secret of a kind, "key" or "token".

    Raises UserError if it cannot be read, is not text, or others than the owner can access it.
    """
    problem, advice = "", f"Pass a file of yours with the {kind} on one line."
    try:
        with open_regular(file, 64 * KB) as opened:
            mode, text = os.fstat(opened.fileno()).st_mode, opened.read().decode().strip()
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}."
    except UnicodeDecodeError:
        problem = "is not text in UTF-8."
    else:
        if hasattr(os, "getuid") and mode & (stat.S_IRWXG | stat.S_IRWXO):
            problem, advice = "can be used by others than its owner.", f"Run: chmod 600 {file}"

    if problem:
        raise UserError(f"The {kind} file {file} {problem}", setting=f"{kind}_file", value=file, advice=advice)
    return text


def allow(address: str, key_file: str | None) -> None:
    """Record that this user allows a key for a server, because someone else's catalogue may name any server and key."""
    file = user_file("connected.json", ALLOWED_VARIABLE)
    allowed = _allowed_pairs(file)
    if (address, key_file) not in allowed:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, (json_text([*allowed, (address, key_file)], indent=1) + "\n").encode())


def check_allowed(address: str, key_file: str | None) -> None:
    """Raise UserError unless this user has allowed sending the key to the server."""
    if (address, key_file) not in _allowed_pairs(user_file("connected.json", ALLOWED_VARIABLE)):
        key = f"the key file {key_file}" if key_file else "the key in the environment"
        settings = f"`url` {address}" + (f" `key_file` {key_file}" if key_file else "")
        problem = f"Nobody has said on this computer that {key} may be sent to {address}."
        raise UserError(problem, setting="url", value=address, advice=f"If it may, name both: {settings}")


def _allowed_pairs(file: Path) -> list[tuple[str, str | None]]:
    try:
        entries = json.loads(read_regular_text(file, MB))
        return [(str(address), None if key is None else str(key)) for address, key in entries]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{file}, the servers that you connected, cannot be read: {error}. Remove it.") from error
