"""The API's GET requests without the web framework, which takes longer to read parameters than a search takes.

Only requests with valid parameters are answered here: the framework answers all others, and says what is wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, NamedTuple, get_args, get_origin
from urllib.parse import parse_qsl

from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError, create_model
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from visterm.core.errors import VistermError
from visterm.web.pages.render import answer_of
from visterm.web.service import Service


class _Direct(NamedTuple):
    """A route, and how to read its parameters."""

    route: APIRoute
    model: type[BaseModel]  # All parameters: of the path, of the query, and models of several of the query
    owners: dict[str, str]  # Name of a parameter of the query -> its model's name in `model`, or ""
    lists: frozenset[str]  # Names of parameters of the query that may be repeated
    takes_request: bool

    @classmethod
    def of(cls, route: APIRoute) -> _Direct:
        fields: dict[str, Any] = {}
        owners: dict[str, str] = {}
        lists = set()
        parameters = inspect.signature(route.endpoint, eval_str=True).parameters
        for name, parameter in parameters.items():
            if name in ("request", "service"):
                continue
            is_required = parameter.default is parameter.empty
            fields[name] = (parameter.annotation, ... if is_required else parameter.default)
            kind = get_args(parameter.annotation)[0]
            several = isinstance(kind, type) and issubclass(kind, BaseModel)
            for query_name, field in kind.model_fields.items() if several else ((name, None),):
                if name not in route.param_convertors:
                    owners[query_name] = name if several else ""
                if get_origin(kind if field is None else field.annotation) is list:
                    lists.add(query_name)
        return cls(route, create_model("Parameters", **fields), owners, frozenset(lists), "request" in parameters)

    def read(self, path_values: dict[str, Any], query: str) -> dict[str, Any] | None:
        """Return the parameters of a request; None if one of them is unknown or invalid."""
        values: dict[str, Any] = {name: {} for name in self.owners.values() if name} | path_values
        for name, text in parse_qsl(query, keep_blank_values=True) if query else ():
            owner = self.owners.get(name)
            if owner is None:
                return None
            target = values[owner] if owner else values
            if name in self.lists:
                target.setdefault(name, []).append(text)
            else:
                target[name] = text  # the last one counts
        try:
            return vars(self.model.model_validate(values))
        except ValidationError:
            return None


class DirectAnswers:
    """Middleware that answers valid GET requests of `routes`, whose addresses begin with `prefix`."""

    def __init__(self, app: ASGIApp, service: Service, prefix: str, routes: Iterable[object]) -> None:
        self._app, self._service, self._prefix = app, service, prefix
        self._routes = [_Direct.of(route) for route in routes if isinstance(route, APIRoute) and "GET" in route.methods]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"].startswith(self._prefix):
            path, query = scope["path"][len(self._prefix) :], scope["query_string"].decode("latin-1")
            for direct in self._routes:
                match = direct.route.path_regex.match(path)
                if match is None:
                    continue
                if (values := direct.read(match.groupdict(), query)) is not None:
                    answer = await self._answer(direct, scope, receive, values)
                    await answer(scope, receive, send)
                    return
                break
        await self._app(scope, receive, send)

    async def _answer(self, direct: _Direct, scope: Scope, receive: Receive, values: dict[str, Any]) -> Response:
        scope["route"] = direct.route
        request = Request(scope, receive)
        if direct.takes_request:
            values = values | {"request": request}
        try:
            answer: Response = await direct.route.endpoint(service=self._service, **values)
        except (HTTPException, VistermError) as error:
            answer = answer_of(request, error)
        return answer
