"""The API's GET requests without the web framework, which takes longer to read parameters than a search takes.

Only requests with valid parameters are answered here: the framework answers all others, and says what is wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, get_args, get_origin
from urllib.parse import parse_qs

from fastapi.params import Path, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError, create_model
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from visterm.core.errors import VistermError
from visterm.web.pages.render import answer_of
from visterm.web.service import Service

MAX_QUERY_BYTES = 8192  # Longer queries are hardly ever valid, and the framework reads them


class DirectAnswers:
    """Middleware that answers valid GET requests of `routes`, whose addresses begin with `prefix`."""

    def __init__(self, app: ASGIApp, service: Service, prefix: str, routes: Iterable[object]) -> None:
        self._app, self._service, self._prefix = app, service, prefix
        self._readers = [_Reader(route) for route in routes if isinstance(route, APIRoute) and route.methods == {"GET"}]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"].startswith(self._prefix):
            path = scope["path"][len(self._prefix) :]
            for reader in self._readers:
                if (match := reader.route.path_regex.match(path)) is None:
                    continue
                request = Request(scope, receive)
                values = reader.read(match.groupdict(), request)
                if values is None:
                    break
                scope["route"] = reader.route
                try:
                    answer = await reader.route.endpoint(service=self._service, **values)
                except (HTTPException, VistermError) as error:
                    answer = answer_of(request, error)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _Reader:
    """Reads the parameters of a route."""

    def __init__(self, route: APIRoute) -> None:
        self.route = route
        self._owners: dict[str, str] = {}  # Name in the query -> the parameter whose model has it, or ""
        self._lists: set[str] = set()  # Names in the query that may be repeated
        parameters = dict(inspect.signature(route.endpoint, eval_str=True).parameters)
        self._takes_request = parameters.pop("request", None) is not None
        parameters.pop("service")
        fields: dict[str, Any] = {}
        for name, parameter in parameters.items():
            fields[name] = (parameter.annotation, ... if parameter.default is parameter.empty else parameter.default)
            kind, *about = get_args(parameter.annotation)
            assert any(isinstance(part, Path | Query) for part in about), f"{route.path}: {name} is not read here"
            is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
            kinds = {key: field.annotation for key, field in kind.model_fields.items()} if is_model else {name: kind}
            if name not in route.param_convertors:  # those are in the path
                self._owners |= dict.fromkeys(kinds, name if is_model else "")
                self._lists |= {key for key, annotation in kinds.items() if get_origin(annotation) is list}
        self._model: type[BaseModel] = create_model("Parameters", **fields)

    def read(self, path_values: dict[str, Any], request: Request) -> dict[str, Any] | None:
        """Return the parameters of a request; None if one of them is unknown or invalid, or the query is long."""
        values: dict[str, Any] = {name: {} for name in self._owners.values() if name} | path_values
        query = request.scope["query_string"].decode("latin-1")
        if len(query) > MAX_QUERY_BYTES:
            return None
        for name, texts in parse_qs(query, keep_blank_values=True).items():
            if (owner := self._owners.get(name)) is None:
                return None
            target = values[owner] if owner else values
            target[name] = texts if name in self._lists else texts[-1]  # the last one counts
        try:
            parameters = vars(self._model.model_validate(values))
        except ValidationError:
            return None
        return parameters | {"request": request} if self._takes_request else parameters
