"""The OpenAPI document, made from the operations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from aggregator.reading.serialization import Answer
from aggregator.reading.status import ServiceStatus
from aggregator.web.live import PolicyChange
from aggregator.web.operations import CSV, Content, Operation

TEMPLATE = "#/components/schemas/{name}"
PROBLEM = "application/problem+json"
LIVE = (Answer, ServiceStatus, PolicyChange)
"""Schemas of events that are not bodies of operations."""


class ProblemDetails(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    """What went wrong (RFC 9457), and in `remedy` what to do about it."""

    kind: str
    title: str
    status: int
    detail: str
    instance: str
    remedy: str | msgspec.UnsetType = msgspec.UNSET


def document(operations: Iterable[Operation], names: Iterable[str] = ()) -> dict[str, Any]:
    """Return the document.

    Parameters
    ----------
    operations : iterable of Operation
    names : iterable of str
        Of the metrics: examples.
    """
    operations, names = list(operations), list(names)
    bodies = [s for o in operations for c in (*o.answers.values(), o.body) if c for s in c.schemas]
    types = dict.fromkeys([*bodies, *LIVE, ProblemDetails])
    (*schemas,), components = msgspec.json.schema_components(list(types), ref_template=TEMPLATE)
    known = dict(zip(types, schemas, strict=True))
    for schema in components.values():
        schema["description"] = inspect.cleandoc(schema["description"])
    components = _in_common_words(components)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _operation(operation, known, names)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dither",
            "version": version("dither"),
            "description": "Estimates from locally private reports, with bounds that hold.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation, known: Mapping[Any, Any], names: list[str]) -> dict[str, Any]:
    parameters = [_path_parameter(name, names) for name in re.findall(r"{(\w+)}", operation.path)]
    if operation.query is not None:
        parameters += _query_parameters(operation.query)
    parameters += [_header(name, text) for name, text in operation.headers.items()]
    if operation.conditional:
        parameters.append(_header("If-None-Match", "The ETag of an answer that the client has."))
    found: dict[str, Any] = {
        "operationId": _identifier(operation),
        "summary": operation.summary,
        "parameters": parameters,
        "responses": _responses(operation, known),
    }
    if operation.body is not None:
        body = {"required": True, **_content(operation.body, known)}
        found["requestBody"] = body
    if operation.scopes:
        needed = " or ".join(operation.scopes)
        found["description"] = f"Needs scope {needed}, of a token or of everybody."
        found["security"] = [{"token": []}, {}]
    return found


def _identifier(operation: Operation) -> str:
    words = re.findall(r"\w+", operation.path.removeprefix("/v1"))
    return getattr(operation.handler, "__name__", "_".join([operation.method.lower(), *words]))


def _responses(operation: Operation, known: Mapping[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, content in operation.answers.items():
        found[str(status)] = _content(content, known)
    if operation.conditional:
        for status in operation.answers:
            found[str(status)]["headers"] = {"ETag": {"schema": {"type": "string"}}}
        found["304"] = {"description": "The answer is the one that the client has."}
    access = (401, 403) if operation.scopes else ()
    for status in sorted({*operation.problems, *access}):
        problem: dict[str, Any] = {
            "description": HTTPStatus(status).phrase,
            "content": {PROBLEM: {"schema": known[ProblemDetails]}},
        }
        if status in (429, 503):
            problem["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
        if status == 401:
            problem["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
        found[str(status)] = problem
    return found


def _content(content: Content, known: Mapping[Any, Any]) -> dict[str, Any]:
    schemas = [known[one] for one in content.schemas]
    schema = {"anyOf": schemas} if len(schemas) > 1 else (*schemas, content.plain)[0]
    media = {name: {"schema": schema} for name in content.media}
    media |= {name: {"schema": {"type": "string", "format": "binary"}} for name in content.binary}
    if content.is_table:
        media[CSV] = {"schema": {"type": "string"}}
    return {"description": content.described, "content": media}


def _path_parameter(name: str, names: list[str]) -> dict[str, Any]:
    examples = {one: {"value": one} for one in names[:5]} if name == "name" else {}
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": f"A {'metric' if name == 'name' else name}'s name.",
        "schema": {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,63}$"},
        **({"examples": examples} if examples else {}),
    }


def _header(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}


def _query_parameters(query: type[msgspec.Struct]) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([query], ref_template=TEMPLATE)
    found = []
    for name, schema in components[query.__name__]["properties"].items():
        plain = _without_null(schema)
        required = {"required": True} if name in components[query.__name__]["required"] else {}
        parameter = {"name": name, "in": "query", **required, "schema": plain}
        if description := plain.pop("description", ""):
            parameter["description"] = description
        found.append(parameter)
    return found


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parameter's schema: it is left out rather than null."""
    found = {k: v for k, v in schema.items() if (k, v) != ("default", None)}
    kinds = [one for one in found.pop("anyOf", []) if one != {"type": "null"}]
    found |= kinds[0] if kinds else {}
    if "enum" in found:
        found["enum"] = [value for value in found["enum"] if value is not None]
    return found


def _in_common_words(schema: Any) -> Any:
    """Return a schema in words that generators of clients know; it allows the same values.

    An array of so many equal items says so without `prefixItems`. What is always true is a constant
    rather than an enumeration. Defaults are left out: generators take a field with a default for
    one that must be sent.

    Examples
    --------
    >>> _in_common_words({"prefixItems": [{"type": "number"}] * 2, "items": False, "minItems": 2})
    {'items': {'type': 'number'}, 'minItems': 2}
    >>> _in_common_words({"properties": {"is": {"enum": [True]}, "default": {"default": None}}})
    {'properties': {'is': {'const': True, 'type': 'boolean'}, 'default': {}}}
    """
    if isinstance(schema, list):
        return [_in_common_words(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _in_common_words(one) for name, one in schema.items() if name != "default"}
    if "properties" in schema:
        named = schema["properties"].items()
        found["properties"] = {name: _in_common_words(one) for name, one in named}
    places = found.get("prefixItems", [])
    if places and found.get("items") is False and all(one == places[0] for one in places):
        del found["prefixItems"]
        found["items"] = places[0]
    if found.get("enum") == [True] and found["enum"][0] is True:
        del found["enum"]
        found |= {"const": True, "type": "boolean"}
    return found
