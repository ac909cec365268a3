"""Keys and tokens of other programs' servers: read from a file or the environment, never from arguments or logs."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from visterm.core.errors import UserError

LONGEST = 4096  # Bytes of a key file
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
            raise UserError(f"A key is needed: write it into a file that only you can read, and name it by --key-file; "
                            f"or set {variable}.")  # fmt: skip
    else:
        try:
            with file.open("rb") as opened:
                mode, content = os.fstat(opened.fileno()).st_mode, opened.read(LONGEST + 1)
        except OSError as error:
            raise UserError(f"The key file {file} cannot be read: {error.strerror or error}.") from error
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UserError(f"The key file {file} can be used by others than its owner. Run: chmod 600 {file}")
        where, key = f"The key file {file}", content.decode("utf-8", "replace").strip()
    if len(key) > LONGEST or not _KEY.fullmatch(key):
        raise UserError(f"{where} holds no key; expected one line of letters, digits and signs without spaces.")
    return key
