"""Public functions say what each of many arguments is, and what they raise.

Ruff's own rules (DOC) cannot express it: they know no missing `Parameters`, ask for the `Raises` of
private functions and of commands, whose docstring is the text of `--help`, and take a function that
makes an error for its class.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import pydoc
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from estimators.central.weights import WEIGHTINGS
from reproduction.experiments import EXPERIMENTS

PACKAGES = ("estimators", "producers", "aggregator", "reproduction")
MANY = 3
UNDERLINE = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
RAISE = re.compile(r"^Raise (\w+)")  # a function that only checks may say so in its first line
ELSEWHERE = re.compile(r"\bas (?:in|of|for) :\w+:`~?([\w.]+)`")
REGISTERED = {
    *(policy for policies in WEIGHTINGS.values() for policy in policies.values()),
    *(run for experiment in EXPERIMENTS.values() for run in (experiment.run, experiment.run_on)),
}
"""The type of what a registry holds says what they take: `Policy`, `Experiment`."""
NAMES = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: :|$)", re.MULTILINE)


def modules(package: str) -> list[str]:
    inside = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    found = [module.name for module in inside]
    return [package, *(name for name in found if not name.endswith(("_pb2", "__main__")))]


def functions(module: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public functions of a module, and the methods of its public classes.

    A method that a base class has too is documented there.
    """
    for name, value in vars(importlib.import_module(module)).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module:
            continue
        if inspect.isfunction(plain := inspect.unwrap(value)):
            yield name, plain
        elif inspect.isclass(value):
            for method, found in vars(value).items():
                plain = getattr(found, "fget", getattr(found, "func", found))
                plain = inspect.unwrap(getattr(plain, "__func__", plain))
                inherited = any(method in vars(base) for base in value.__mro__[1:])
                if inspect.isfunction(plain) and not method.startswith("_") and not inherited:
                    yield f"{name}.{method}", plain


def sections(documented: object) -> dict[str, set[str]]:
    """Return the names that each section of a docstring lists."""
    _, *parts = UNDERLINE.split(inspect.getdoc(documented) or "\n")
    return {
        title: {name.lstrip("*") for names in NAMES.findall(text) for name in names.split(", ")}
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    }


def parameters(function: Callable[..., Any]) -> set[str]:
    """Return the documented parameters, also those "as in" something that documents them."""
    found = sections(function).get("Parameters", set())
    module, scope = function.__module__, function.__qualname__.rpartition(".")[0]
    for name in ELSEWHERE.findall(" ".join((inspect.getdoc(function) or "").split())):
        places = (f"{module}.{scope}.{name}", f"{module}.{name}", name)
        there = next(filter(None, map(pydoc.locate, places)), None)
        assert there is not None, f"{module}.{function.__qualname__}: no such thing as {name}"
        found = found | sections(there).get("Parameters", set())
    return found


def undocumented_arguments(function: Callable[..., Any]) -> set[str]:
    arguments = set(inspect.signature(function).parameters) - {"self", "cls"}
    documented = "Parameters" in sections(function)
    if function in REGISTERED or (len(arguments) < MANY and not documented):
        return set()
    return arguments - parameters(function)


def raised(node: ast.AST, caught: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the classes that a function raises by name, and does not catch itself."""
    if isinstance(node, ast.Raise) and node.exc is not None:
        made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        name = ast.unparse(made).rpartition(".")[2]
        if name[0].isupper() and name not in caught | {"NotImplementedError"}:
            yield name
    if isinstance(node, ast.Try):
        types = [handler.type for handler in node.handlers if handler.type is not None]
        names = {ast.unparse(name).rpartition(".")[2] for kind in types for name in ast.walk(kind)}
        for statement in node.body:
            yield from raised(statement, caught | names)
        rest: list[ast.AST] = [*node.handlers, *node.orelse, *node.finalbody]
    else:
        rest = list(ast.iter_child_nodes(node))
    for inner in rest:
        if not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from raised(inner, caught)


def undocumented_errors(function: Callable[..., Any]) -> set[str]:
    source = inspect.getsource(function)
    tree = ast.parse(f"if True:\n{source}" if source[0].isspace() else source)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    definition = next((node for node in ast.walk(tree) if isinstance(node, kinds)), ast.Pass())
    told = set(RAISE.findall(inspect.getdoc(function) or ""))
    return set(raised(definition)) - told - sections(function).get("Raises", set())


@pytest.mark.parametrize("module", [name for package in PACKAGES for name in modules(package)])
def test_every_one_of_many_arguments_is_documented(module: str) -> None:
    found = {name: undocumented_arguments(function) for name, function in functions(module)}
    assert {name: missing for name, missing in found.items() if missing} == {}


@pytest.mark.parametrize("module", [name for package in PACKAGES for name in modules(package)])
def test_every_error_that_is_raised_is_documented(module: str) -> None:
    found = {name: undocumented_errors(function) for name, function in functions(module)}
    assert {name: missing for name, missing in found.items() if missing} == {}
