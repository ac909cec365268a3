"""Make the page of the HTTP API from its OpenAPI description, which the service makes from its routes."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from command_pages import escaped, in_cell

from visterm import Catalogue, Tagger
from visterm.web.app import create_app

COMMON = {"400", "401", "403", "404", "409", "421", "422", "500", "503", "507"}
"""Answers in the same form everywhere: a table at the top lists them once."""


def description() -> dict[str, Any]:
    """Return the OpenAPI description, of a service over a catalogue without photos."""
    with tempfile.TemporaryDirectory() as folder:
        tagger = Tagger(encoder="ids", model="prior").fit(["1", "2"], [["a"], ["b"]])
        Catalogue.create(Path(folder) / "catalogue", tagger).stored.close()
        app = create_app(Path(folder) / "catalogue")
        found = app.openapi()
        app.state.service.catalogue.stored.close()
    return found


def http_page() -> str:
    """Return the text of the page."""
    found = description()
    schemas = found["components"]["schemas"]
    operations = [
        (f"{method.upper()} {path}", operation)
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
    ]
    errors = {
        code: each["description"] for _, op in operations for code, each in op["responses"].items() if code in COMMON
    }
    lines = [
        "# HTTP\n",
        "What `visterm serve` answers to programs. A running service shows the same at `/api/v1/docs`, and as OpenAPI "
        "at `/api/v1/openapi.json`. Tokens, limits and guarantees: [The service](../service.md).\n",
        "Errors are JSON, with these codes:\n\n| code | meaning |\n| --- | --- |",
        *(f"| {code} | {in_cell(escaped(errors[code]))} |" for code in sorted(errors)),
        "",
    ]
    for tag in dict.fromkeys(operation["tags"][0] for _, operation in operations):
        lines.append(f"## {tag[0].upper()}{tag[1:]}\n")
        for title, operation in operations:
            if operation["tags"][0] == tag:
                lines.extend(one_operation(title, operation))
    lines.append("## What is sent and answered\n")
    for name, schema in schemas.items():
        lines.extend(one_schema(name, schema))
    return "\n".join(lines) + "\n"


def one_operation(title: str, operation: dict[str, Any]) -> Iterator[str]:
    """Yield what a request does, its parameters, what it sends and what it is answered."""
    yield f"### `{title}`\n\n{escaped(operation['summary'])}\n"
    if more := operation.get("description"):
        yield f"{escaped(more)}\n"
    if parameters := operation.get("parameters"):
        yield "| parameter | type | |\n| --- | --- | --- |"
        for each in parameters:
            yield row(each["name"], each["schema"], each["required"], each.get("description", ""))
        yield ""
    contents = {
        "Sends": operation.get("requestBody", {}).get("content", {}),
        "Answers": next((r.get("content", {}) for code, r in operation["responses"].items() if code < "300"), {}),
    }
    for word, content in contents.items():
        for kind, each in content.items():
            known = schema_type(each["schema"]) if each.get("schema") else ""
            yield f"{word} `{kind}`{f': {known}' if known else ''}\n"


def one_schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    """Yield what an object has."""
    yield f"### {name}\n"
    if about := schema.get("description"):
        yield f"{escaped(about)}\n"
    if properties := schema.get("properties"):
        yield "| field | type | |\n| --- | --- | --- |"
        for field, each in properties.items():
            yield row(field, each, field in schema.get("required", ()), each.get("description", ""))
    elif "enum" in schema:
        yield ", ".join(f"`{value}`" for value in schema["enum"])
    yield ""


def row(name: str, schema: dict[str, Any], required: bool, about: str) -> str:
    """Return a row of a table: a name, its type, and what it means."""
    default = schema.get("default")
    notes = ["Required."] if required else []
    notes += [f"Default: `{default}`."] if default not in (None, [], "") else []
    bounds = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    notes += [f"{word[0].upper()}{word[1:]} {schema[key]}." for key, word in bounds.items() if key in schema]
    return f"| `{name}` | {in_cell(schema_type(schema))} | {in_cell(' '.join([escaped(about), *notes]))} |"


def schema_type(schema: dict[str, Any]) -> str:
    """Return a type in words, with a link to what an object has."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(schema_type(each) for each in schema[several]))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {schema_type(schema['items'])}" if "items" in schema else "list"
    if schema.get("type") == "null":
        return "null"
    return str(schema.get("format") or schema.get("type", "anything"))
