"""A server that answers with JSON: refusals in words for people, and answers that are checked before they are used."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple, TypeVar

from visterm.core.errors import ServiceError
from visterm.core.web_client import Patience, ServerAnswer, ask, masked

MOST_BYTES = 2**25  # Of an answer: 1,000 photos of Immich with all their metadata take 2 MB
MOST_VALUES = 2**20  # In an answer: those photos have a tenth
SHORTEST_KEY = 16  # Letters of a key that is masked in values, too: a short one may be a word
YEARS = range(1970, 9000)  # Of times that are reckoned with
_ESCAPED = re.compile(r"\\(?:u[dD][89a-fA-F]|u00[2-7]|/)")  # Surrogates, in pairs or alone, and letters of keys
_ALONE = re.compile("[\ud800-\udfff]")
LONGEST_TEXT = 2**12  # Letters of a name or a tag

Kind = TypeVar("Kind")


class JsonServer(NamedTuple):
    """Where a server is, and how requests are sent. Messages name the program and the permission, never the key."""

    program: str  # For people: "Immich"
    address: str
    key: str
    headers: Mapping[str, str]  # That hold the key
    patience: Patience = Patience()

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        needs: str = "",
        most: int = MOST_BYTES,
        also: tuple[int, ...] = (),
        secret: str = "",
    ) -> ServerAnswer:
        """Return the answer to a request if it is a good one (2xx), or of a status in `also`.

        `needs` names the permission that the key has to have, and `secret` is what no message shows, beside the key.
        Raises ServiceError otherwise.
        """
        content = None if body is None else json.dumps(body).encode()
        headers = {**self.headers, "Accept": "application/json"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        url = f"{self.address}{path}"
        secrets = (self.key, secret) if secret else (self.key,)
        answer = ask(
            url, method=method, body=content, headers=headers, patience=self.patience, most=most, secrets=secrets
        )
        if 200 <= answer.status < 300 or answer.status in also:
            return answer
        raise self.refused(method, path, answer, needs)

    def refused(self, method: str, path: str, answer: ServerAnswer, needs: str = "") -> ServiceError:
        """Return the error for an answer that is not a good one."""
        message = f"{self.program} answers {method} {masked(path, answer.secrets)} with {answer.status}: {answer.shown}"
        check_address = f" Check the address {self.address}, and that it is {self.program}'s."
        advice = {
            401: " Its key is wrong or was taken back: make a new one there.",
            403: f" The key lacks a permission{f': {needs}' if needs else ''}.",
            404: check_address,
            406: check_address,
        }
        if 300 <= answer.status < 400:
            advice[answer.status] = " Redirections are not followed: pass the address that it leads to."
        return ServiceError(f"{message}.{advice.get(answer.status, '')}")

    def json(self, method: str, path: str, body: object = None, *, needs: str = "") -> object:
        """Return what a good answer holds. Raises ServiceError, too, where it is no JSON."""
        return self.parsed(self.ask(method, path, body, needs=needs), f"{method} {path}")

    def parsed(self, answer: ServerAnswer, what: str) -> object:
        """Return the JSON of an answer to `what`, without the key and with U+FFFD for halves of letters.

        Millions of values take a minute to read, so they are counted before.
        """
        n_values = sum(map(answer.content.count, (b",", b"[", b"{")))
        if n_values > MOST_VALUES:
            raise ServiceError(
                f"{self.program} answers {what} with {n_values:,} values; expected {MOST_VALUES:,} or fewer. "
                f"Check the address {self.address}, and that it is {self.program}'s."
            )
        try:
            text = answer.content.decode()
            secrets = answer.secrets if len(self.key) >= SHORTEST_KEY else ()
            value = json.loads(masked(text, secrets))
            return _unescaped(value, secrets) if _ESCAPED.search(text) else value
        except (ValueError, RecursionError):
            problem = f"{self.program} answers {what} with no JSON, or half of it: {answer.shown!r}."
            raise ServiceError(problem) from None


def clock(answer: ServerAnswer) -> datetime | None:
    """Return the server's time by the Date of an answer; None if it has none, or one that is no time of these days."""
    try:
        made = parsedate_to_datetime(answer.date)
        made = made.astimezone(UTC) if made.tzinfo else made.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return made if made.year in YEARS else None


def _unescaped(value: object, secrets: tuple[str, ...]) -> object:
    """Return JSON without secrets, and with U+FFFD for lone surrogates, which no database and no terminal takes."""
    if isinstance(value, str):
        value = masked(value, secrets)
        return value if value.isascii() else _ALONE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_unescaped(each, secrets) for each in value]
    if isinstance(value, dict):
        return {_unescaped(name, secrets): _unescaped(each, secrets) for name, each in value.items()}
    return value


def field(record: object, name: str, kind: type[Kind]) -> Kind:
    """Return a field of a JSON object, of the kind that it has to have; texts have a bound, and no bool is a number.

    Raises ServiceError if the record is no object, or the field is missing or of another kind.
    """
    if not isinstance(record, dict):
        raise ServiceError(f"The server answers with {_named(record)} where an object with {name!r} was expected.")
    return checked(record.get(name), name, kind)


def optional(record: object, name: str, kind: type[Kind]) -> Kind | None:
    """Return a field as `field` does, or None if it is missing or null."""
    if isinstance(record, dict) and record.get(name) is None:
        return None
    return field(record, name, kind)


def checked(value: object, name: str, kind: type[Kind]) -> Kind:
    """Return a value of an answer, of the kind that it has to have. Raises ServiceError if it is of another."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        expected = _NAMES.get(kind, kind.__name__)
        raise ServiceError(f"The server answers with {_named(value)} for {name!r}; expected {expected}.")
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise ServiceError(f"The server answers with {len(value):,} letters for {name!r}; expected {LONGEST_TEXT:,}.")
    return value


_NAMES: dict[type, str] = {
    dict: "an object", list: "a list", str: "a text", int: "a whole number", float: "a number", bool: "true or false",
    type(None): "nothing",
}  # fmt: skip


def _named(value: object) -> str:
    return _NAMES.get(type(value), type(value).__name__)
