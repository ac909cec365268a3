"""Who may do what: the role that each address needs. An address that is not listed needs an owner."""

from __future__ import annotations

import re
from contextvars import ContextVar
from enum import IntEnum
from typing import NamedTuple


class Role(IntEnum):
    """What a person may do; each role includes those before it."""

    READER = 1  # looks and searches
    REVIEWER = 2  # judges and tags
    OWNER = 3  # learns, writes, hides photos, merges tags


class Person(NamedTuple):
    """Who sends a request, and the person's role."""

    name: str
    role: Role


UNKNOWN = Person("", Role.READER)
PERSON: ContextVar[Person] = ContextVar("person", default=UNKNOWN)
"""Who sent the request that is being answered."""

ROUTES: dict[tuple[Role, str], str] = {
    (Role.READER, "GET"): """
        / /browse /duplicates /duplicates/files.txt /facets /image/{id} /image/{id}/alike /library /library/jobs/{id}
        /library/start /map /map/photos /map/places /related /tag /tags /tags/alike /tags/map /tags/tree
        /api/v1/about /api/v1/docs /api/v1/duplicates /api/v1/images/{id} /api/v1/images/{id}/explain
        /api/v1/images/{id}/heat /api/v1/images/{id}/original /api/v1/images/{id}/thumbnail /api/v1/images/{id}/video
        /api/v1/jobs /api/v1/jobs/{id} /api/v1/metrics /api/v1/mistakes /api/v1/openapi.json /api/v1/runs
        /api/v1/search /api/v1/tags /api/v1/tags/complete /api/v1/tags/map /api/v1/tags/neighbours /api/v1/tags/tree
        /label-studio /label-studio/ /label-studio/health""",
    (Role.READER, "POST"): """
        /chosen/download /like /logout /api/v1/annotate /api/v1/similar /api/v1/vision/labels
        /label-studio/predict /label-studio/setup""",
    (Role.REVIEWER, "GET"): "/review /review/grid",
    (Role.REVIEWER, "POST"): """
        /chosen /image/{id}/tags /review /review/grid /steps/{id}/undo
        /api/v1/feedback/{id}/undo /api/v1/images/tags /api/v1/images/{id}/feedback /api/v1/images/{id}/tags
        /api/v1/steps/{id}/undo /label-studio/webhook""",
    (Role.OWNER, "GET"): "/write",
    (Role.OWNER, "POST"): """
        /duplicates/keep /duplicates/keep-all /duplicates/undo /library/jobs /library/jobs/{id}/cancel /tags/merge
        /write /write/{id} /api/v1/exports /api/v1/jobs /api/v1/jobs/{id}/cancel""",
}  # fmt: skip
"""(Role, method) -> the addresses for which a person needs the role."""

_PATTERNS = [
    (method, re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), role)
    for (role, method), paths in ROUTES.items()
    for path in paths.split()
]


def role_for(method: str, path: str) -> Role:
    """Return the role that a request needs: the highest of those of its address."""
    method = "GET" if method == "HEAD" else method
    roles = [role for name, pattern, role in _PATTERNS if name == method and pattern.fullmatch(path)]
    return max(roles, default=Role.OWNER)


def check_role(role: Role) -> None:
    """Raise HttpError (403) if the sender of the request lacks a role."""
    actual = PERSON.get().role
    if actual < role:
        from visterm.web.errors import HttpError

        names = actual.name.lower(), role.name.lower()
        raise HttpError(403, f"Your token is one of a {names[0]}; this needs one of a {names[1]}.", code="role")
