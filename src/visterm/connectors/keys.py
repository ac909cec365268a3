"""Keys and tokens of other programs' servers: read from a file or the environment, never from arguments or logs."""

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

LONGEST = 4096  # Letters of a key
VARIABLE = "VISTERM_CONNECTED"  # Names the user's list of servers and key files that belong together
_KEY = re.compile("[!-~]+")  # What a header holds


def read_key(file: Path | None, variable: str) -> str:
    """Return the key in a file, or in an environment variable where there is no `file`.

    Messages never show any of it. Raises UserError if there is none, the file can be read by others than its owner, or
    what is in it is no key.
    """
    if file is None:
        key = os.environ.get(variable, "").strip()
        where = f"The environment variable {variable}"
        if not key:
            advice = f"Write it into a file that only you can read, and name it by `key_file`; or set {variable}."
            raise UserError("A key is needed.", setting="key_file", advice=advice)
    else:
        where, key = f"The key file {file}", read_secret("key", file)

    if len(key) > LONGEST or not _KEY.fullmatch(key):
        expected = "one line of letters, digits and signs without spaces"
        raise UserError(f"{where} holds no key", setting="key_file", value=file, expected=expected)
    return key


def read_secret(what: str, file: Path) -> str:
    """Return the text of a file with a secret (`what`: "key" or "token"), without spaces around it.

    Raises UserError if it cannot be read, is no text, or can be used by others than its owner.
    """
    problem, advice = "", f"Pass a file of yours with the {what} on one line."
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
        raise UserError(f"The {what} file {file} {problem}", setting=f"{what}_file", value=file, advice=advice)
    return text


def allow(address: str, key_file: str | None) -> None:
    """Note that this user has named a server together with a key: a catalogue of another's may name any two."""
    file = user_file("connected.json", VARIABLE)
    known = _allowed(file)
    if (address, key_file) not in known:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, (json_text([*known, (address, key_file)], indent=1) + "\n").encode())


def check_allowed(address: str, key_file: str | None) -> None:
    """Refuse to send a key to a server that this user has not named together with it. Raises UserError."""
    if (address, key_file) not in _allowed(user_file("connected.json", VARIABLE)):
        key = f"the key file {key_file}" if key_file else "the key in the environment"
        both = f"`url` {address}" + (f" `key_file` {key_file}" if key_file else "")
        problem = f"Nobody has said on this computer that {key} may be sent to {address}."
        raise UserError(problem, setting="url", value=address, advice=f"If it may, name both: {both}")


def _allowed(file: Path) -> list[tuple[str, str | None]]:
    try:
        entries = json.loads(read_regular_text(file, MB))
        return [(str(address), None if key is None else str(key)) for address, key in entries]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{file}, the servers that you connected, cannot be read: {error}. Remove it.") from error
