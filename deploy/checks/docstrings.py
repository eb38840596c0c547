"""Checks that public functions describe their arguments, if they have many, and their errors.

They do so in sections, or in sentences with the argument in backquotes, and "Raises ValueError if
...".

Ruff's rules (DOC) cannot express this: they do not report missing `Parameters`; they ask for the
`Raises` of private functions and of commands, whose docstring is the text of `--help`; and they
mistake a function that makes an error for the error's class.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import pydoc
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from deploy.checks import Fault
from deploy.checks.modules import PACKAGES
from estimators.central.release_weights import RELEASE_WEIGHTINGS
from reproduction.experiments import EXPERIMENTS

MANY_ARGUMENTS = 3
UNDERLINE = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
RAISE = re.compile(r"(?:^Raise|\bRaises|\braise)\s+(\w+)")
BACKQUOTED = re.compile(r"`(\w+)`")
REFERENCE = re.compile(r"\bas (?:in|of|for) :\w+:`~?([\w.]+)`")
NAMES = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: :|$)", re.MULTILINE)
REGISTERED: set[Callable[..., Any]] = {
    *(policy for policies in RELEASE_WEIGHTINGS.values() for policy in policies.values()),
    *(experiment.run for experiment in EXPERIMENTS.values()),
}
"""Functions in registries: the type of the registry's entries, `Policy` or `Experiment`, describes
their arguments."""


def faults() -> Iterator[Fault]:
    """Yield the arguments and errors that are not documented."""
    for package in PACKAGES:
        for module in _modules(package):
            for name, function in _functions(module):
                code = function.__code__
                where = Path(code.co_filename), code.co_firstlineno
                for message in (*_arguments(function), *_errors(function)):
                    yield Fault(*where, f"{name}: {message}")


def _modules(package: str) -> list[str]:
    modules = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    names = [module.name for module in modules]
    return [package, *(name for name in names if not name.endswith(("_pb2", "__main__")))]


def _functions(module: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public functions of a module, and the methods of its public classes.

    A method that a base class also has is left out, because it is documented there.
    """
    for name, value in vars(importlib.import_module(module)).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module:
            continue
        if inspect.isfunction(plain := inspect.unwrap(value)):
            yield name, plain
        elif inspect.isclass(value):
            for method, attribute in vars(value).items():
                plain = getattr(attribute, "fget", getattr(attribute, "func", attribute))
                plain = inspect.unwrap(getattr(plain, "__func__", plain))
                inherited = any(method in vars(base) for base in value.__mro__[1:])
                if inspect.isfunction(plain) and not method.startswith("_") and not inherited:
                    yield f"{name}.{method}", plain


def _sections(documented: object) -> dict[str, set[str]]:
    """Return the names that each section of a docstring lists."""
    _, *parts = UNDERLINE.split(inspect.getdoc(documented) or "\n")
    return {
        title: {name.lstrip("*") for names in NAMES.findall(text) for name in names.split(", ")}
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    }


def _arguments(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the arguments that are not documented, here or where "as in" refers to."""
    arguments = inspect.signature(function).parameters.keys() - {"self", "cls"}
    sections = _sections(function)
    is_registered = inspect.isfunction(function) and function in REGISTERED
    if is_registered or (len(arguments) < MANY_ARGUMENTS and "Parameters" not in sections):
        return
    documented = sections.get("Parameters", set())
    if "Parameters" not in sections:
        documented |= {*BACKQUOTED.findall(inspect.getdoc(function) or "")}
    module, scope = function.__module__, function.__qualname__.rpartition(".")[0]
    for name in REFERENCE.findall(" ".join((inspect.getdoc(function) or "").split())):
        places = (f"{module}.{scope}.{name}", f"{module}.{name}", name)
        target = next(filter(None, map(pydoc.locate, places)), None)
        if target is None:
            yield f"there is no {name}"
        documented = documented | _sections(target).get("Parameters", set())
    yield from (f"the argument {name} is not documented" for name in arguments - documented)


def _raised(node: ast.AST, caught: frozenset[str] = frozenset()) -> Iterator[str]:
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
            yield from _raised(statement, caught | names)
        parts: list[ast.AST] = [*node.handlers, *node.orelse, *node.finalbody]
    else:
        parts = list(ast.iter_child_nodes(node))
    for inner in parts:
        is_own = not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if is_own and isinstance(inner, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from _raised(inner, caught)


@functools.cache
def _definitions(file: str) -> dict[int, ast.AST]:
    """Return the functions of a file by their first lines."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return {
        min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]): node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _errors(function: Callable[..., Any]) -> Iterator[str]:
    code = function.__code__
    definition = _definitions(code.co_filename).get(code.co_firstlineno, ast.Pass())
    documented = {*RAISE.findall(inspect.getdoc(function) or "")}
    documented |= _sections(function).get("Raises", set())
    yield from (
        f"the error {name} is not documented" for name in {*_raised(definition)} - documented
    )
