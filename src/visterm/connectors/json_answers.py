"""Requests to servers that answer with JSON: error messages for people, and validation of answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple, TypeVar

from visterm.core.errors import ServiceError
from visterm.core.web_client import Patience, ServerAnswer, ask, masked

MAX_ANSWER_BYTES = 2**25  # Maximum size of an answer: 1,000 photos of Immich with all metadata take 2 MB
MAX_VALUES = 2**20  # Maximum number of JSON values in an answer: an answer about 1,000 photos has a tenth
MIN_MASKED_LENGTH = 16  # Mask keys in values only from this length, as a short key may be a word
YEARS = range(1970, 9000)  # Plausible years of times
_ESCAPE = re.compile(r"\\(?:u[dD][89a-fA-F]|u00[2-7]|/)")  # Surrogates and ASCII characters
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
MAX_LETTERS = 2**12  # Maximum length of names and tags, in characters

Kind = TypeVar("Kind")


class JsonServer(NamedTuple):
    """A server with its address and key. Messages name the program and the missing permission, never the key."""

    program: str  # Display name: "Immich"
    address: str
    key: str
    headers: Mapping[str, str]  # Headers with the key
    patience: Patience = Patience()

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        needs: str = "",
        max_bytes: int = MAX_ANSWER_BYTES,
        accept: tuple[int, ...] = (),
        secret: str = "",
    ) -> ServerAnswer:
        """Send a request, and return the answer if its status is 2xx or in `accept`.

        `needs` names the required permission, and `secret` is masked in messages, like the key. Raises ServiceError for
        other answers.
        """
        content = None if body is None else json.dumps(body).encode()
        headers = {**self.headers, "Accept": "application/json"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        url = f"{self.address}{path}"
        secrets = (self.key, secret) if secret else (self.key,)
        answer = ask(
            url, method=method, body=content, headers=headers, patience=self.patience, limit=max_bytes, secrets=secrets
        )
        if 200 <= answer.status < 300 or answer.status in accept:
            return answer
        raise self.error_for(method, path, answer, needs)

    def error_for(self, method: str, path: str, answer: ServerAnswer, needs: str = "") -> ServiceError:
        """Return the error for an unsuccessful answer."""
        message = f"{self.program} answers {method} {masked(path, answer.secrets)} with {answer.status}: {answer.text}"
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
        """Send a request, and return the parsed JSON. Raises ServiceError if the answer is unsuccessful or invalid."""
        return self.parse(self.ask(method, path, body, needs=needs), f"{method} {path}")

    def parse(self, answer: ServerAnswer, request: str) -> object:
        """Return the JSON of an answer to `request`, with the key masked and lone surrogates replaced by U+FFFD.

        Values are counted first, because parsing millions of them takes a minute.
        """
        n_values = sum(map(answer.content.count, (b",", b"[", b"{")))
        if n_values > MAX_VALUES:
            raise ServiceError(
                f"{self.program} answers {request} with {n_values:,} values; expected {MAX_VALUES:,} or fewer. "
                f"Check the address {self.address}, and that it is {self.program}'s."
            )
        try:
            text = answer.content.decode()
            secrets = answer.secrets if len(self.key) >= MIN_MASKED_LENGTH else ()
            value = json.loads(masked(text, secrets))
            return _clean_texts(value, secrets) if _ESCAPE.search(text) else value
        except (ValueError, RecursionError):
            problem = f"{self.program} answers {request} with no JSON, or half of it: {answer.text!r}."
            raise ServiceError(problem) from None


def clock(answer: ServerAnswer) -> datetime | None:
    """Return the server's time from the Date of an answer; None if it is missing or implausible."""
    try:
        time = parsedate_to_datetime(answer.date)
        time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return time if time.year in YEARS else None


def _clean_texts(value: object, secrets: tuple[str, ...]) -> object:
    """Mask secrets in JSON, and replace lone surrogates, which databases and terminals reject, by U+FFFD."""
    if isinstance(value, str):
        value = masked(value, secrets)
        return value if value.isascii() else _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_clean_texts(item, secrets) for item in value]
    if isinstance(value, dict):
        return {_clean_texts(name, secrets): _clean_texts(item, secrets) for name, item in value.items()}
    return value


def field(record: object, name: str, kind: type[Kind]) -> Kind:
    """Return a field of a JSON object after checking its type and, for texts, its length; a bool is not a number.

    Raises ServiceError if the record is not an object, or the field is missing or invalid.
    """
    if not isinstance(record, dict):
        problem = f"The server answers with {type(record).__name__} where an object with {name!r} was expected."
        raise ServiceError(problem)
    return checked(record.get(name), name, kind)


def optional(record: object, name: str, kind: type[Kind]) -> Kind | None:
    """Return a field like `field`, or None if it is missing or null."""
    if isinstance(record, dict) and record.get(name) is None:
        return None
    return field(record, name, kind)


def checked(value: object, name: str, kind: type[Kind]) -> Kind:
    """Return a value after checking its type. Raises ServiceError if it is invalid."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ServiceError(f"The server answers with {type(value).__name__} for {name!r}; expected {kind.__name__}.")
    if isinstance(value, str) and len(value) > MAX_LETTERS:
        raise ServiceError(f"The server answers with {len(value):,} characters for {name!r}; expected {MAX_LETTERS:,}.")
    return value
