"""The OpenAPI document with its schemas and parameters, made from the operations."""

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
from aggregator.web.live_followers import PolicyChange
from aggregator.web.operations import CSV_TYPE, Content, Operation

SCHEMA_REFERENCE = "#/components/schemas/{name}"
PROBLEM_TYPE = "application/problem+json"
LIVE_SCHEMAS = (Answer, ServiceStatus, PolicyChange)
"""The schemas of streamed events, which are not the body of any operation."""


class ProblemDetails(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    """What went wrong (RFC 9457); `remedy` says what to do."""

    kind: str
    title: str
    status: int
    detail: str
    instance: str
    remedy: str | msgspec.UnsetType = msgspec.UNSET


def document(operations: Iterable[Operation], names: Iterable[str] = ()) -> dict[str, Any]:
    """Return the OpenAPI document; `names` are names of metrics, used as examples."""
    operations, names = list(operations), list(names)
    bodies = [s for o in operations for c in (*o.answers.values(), o.body) if c for s in c.schemas]
    types = dict.fromkeys([*bodies, *LIVE_SCHEMAS, ProblemDetails])
    (*schemas,), components = msgspec.json.schema_components(
        list(types), ref_template=SCHEMA_REFERENCE
    )
    schemas_by_type = dict(zip(types, schemas, strict=True))
    for schema in components.values():
        schema["description"] = inspect.cleandoc(schema["description"])
    components = _in_common_words(components)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        document = _operation(operation, schemas_by_type, names)
        paths.setdefault(operation.path, {})[operation.method.lower()] = document
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


def _operation(
    operation: Operation, schemas_by_type: Mapping[Any, Any], names: list[str]
) -> dict[str, Any]:
    parameters = [_path_parameter(name, names) for name in re.findall(r"{(\w+)}", operation.path)]
    if operation.query is not None:
        parameters += _query_parameters(operation.query)
    parameters += [_header(name, text) for name, text in operation.headers.items()]
    if operation.conditional:
        parameters.append(_header("If-None-Match", "The ETag of an answer that the client has."))
    document: dict[str, Any] = {
        "operationId": _identifier(operation),
        "summary": operation.summary,
        "parameters": parameters,
        "responses": _responses(operation, schemas_by_type),
    }
    if operation.body is not None:
        document["requestBody"] = {"required": True, **_content(operation.body, schemas_by_type)}
    if operation.scopes:
        needed_scopes = " or ".join(operation.scopes)
        document["description"] = f"Needs scope {needed_scopes}, of a token or of everybody."
        document["security"] = [{"token": []}, {}]
    return document


def _identifier(operation: Operation) -> str:
    words = re.findall(r"\w+", operation.path.removeprefix("/v1"))
    return getattr(operation.handler, "__name__", "_".join([operation.method.lower(), *words]))


def _responses(operation: Operation, schemas_by_type: Mapping[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, content in operation.answers.items():
        responses[str(status)] = _content(content, schemas_by_type)
    if operation.conditional:
        for status in operation.answers:
            responses[str(status)]["headers"] = {"ETag": {"schema": {"type": "string"}}}
        responses["304"] = {"description": "The answer is the one that the client has."}
    access = (401, 403) if operation.scopes else ()
    for status in sorted({*operation.problems, *access}):
        problem: dict[str, Any] = {
            "description": HTTPStatus(status).phrase,
            "content": {PROBLEM_TYPE: {"schema": schemas_by_type[ProblemDetails]}},
        }
        if status in (429, 503):
            problem["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
        if status == 401:
            problem["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
        responses[str(status)] = problem
    return responses


def _content(content: Content, schemas_by_type: Mapping[Any, Any]) -> dict[str, Any]:
    schemas = [schemas_by_type[schema_type] for schema_type in content.schemas]
    schema = {"anyOf": schemas} if len(schemas) > 1 else (*schemas, content.plain)[0]
    media = {name: {"schema": schema} for name in content.media}
    media |= {name: {"schema": {"type": "string", "format": "binary"}} for name in content.binary}
    if content.is_table:
        media[CSV_TYPE] = {"schema": {"type": "string"}}
    return {"description": content.described, "content": media}


def _path_parameter(name: str, names: list[str]) -> dict[str, Any]:
    examples = {metric: {"value": metric} for metric in names[:5]} if name == "name" else {}
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
    _, components = msgspec.json.schema_components([query], ref_template=SCHEMA_REFERENCE)
    parameters = []
    for name, schema in components[query.__name__]["properties"].items():
        plain = _without_null(schema)
        required = {"required": True} if name in components[query.__name__]["required"] else {}
        parameter = {"name": name, "in": "query", **required, "schema": plain}
        if description := plain.pop("description", ""):
            parameter["description"] = description
        parameters.append(parameter)
    return parameters


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parameter's schema without null, because a client omits the parameter instead."""
    without_null = {k: v for k, v in schema.items() if (k, v) != ("default", None)}
    kinds = [kind for kind in without_null.pop("anyOf", []) if kind != {"type": "null"}]
    without_null |= kinds[0] if kinds else {}
    if "enum" in without_null:
        without_null["enum"] = [value for value in without_null["enum"] if value is not None]
    return without_null


def _in_common_words(schema: Any) -> Any:
    """Return an equivalent schema that generators of clients understand.

    Arrays of equal items have no `prefixItems`, and an enumeration of true is a constant. Defaults
    are omitted, because generators require fields with a default.

    Examples
    --------
    >>> _in_common_words({"prefixItems": [{"type": "number"}] * 2, "items": False, "minItems": 2})
    {'items': {'type': 'number'}, 'minItems': 2}
    >>> _in_common_words({"properties": {"is": {"enum": [True]}, "default": {"default": None}}})
    {'properties': {'is': {'const': True, 'type': 'boolean'}, 'default': {}}}
    """
    if isinstance(schema, list):
        return [_in_common_words(child) for child in schema]
    if not isinstance(schema, dict):
        return schema
    plain_schema = {
        name: _in_common_words(child) for name, child in schema.items() if name != "default"
    }
    if "properties" in schema:
        properties = schema["properties"].items()
        plain_schema["properties"] = {name: _in_common_words(child) for name, child in properties}
    item_schemas = plain_schema.get("prefixItems", [])
    if (
        item_schemas
        and plain_schema.get("items") is False
        and all(child == item_schemas[0] for child in item_schemas)
    ):
        del plain_schema["prefixItems"]
        plain_schema["items"] = item_schemas[0]
    if plain_schema.get("enum") == [True] and plain_schema["enum"][0] is True:
        del plain_schema["enum"]
        plain_schema |= {"const": True, "type": "boolean"}
    return plain_schema
