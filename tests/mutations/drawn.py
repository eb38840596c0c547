"""Mutations drawn by code lines: a comparison, a constant, an operator, a removed statement."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.mutations.mutation import Mutation

PRODUCT = ("estimators", "producers", "aggregator", "dither")

SWAPPED: dict[type[ast.AST], Any] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.And: ast.Or,
    ast.Or: ast.And,
}

#: Statements whose removal leaves a program that runs.
REMOVABLE = (ast.AugAssign, ast.Raise, ast.Delete, ast.Continue, ast.Break)


def draw(root: Path, seed: int, within: Sequence[str] = PRODUCT) -> Iterator[Mutation]:
    """Yield mutations of Python code, each code line with the same probability.

    Parameters
    ----------
    root : Path
        Of the repository.
    seed : int
    within : sequence of str
        Files or folders to draw from.
    """
    files = [path for place in within for path in _python_files(root / place)]
    candidates = {str(path.relative_to(root)): _candidates(path) for path in files}
    lines = [(path, line) for path in files for line in _code_lines(path)]
    chance, drawn = random.Random(seed), set[tuple[str, int]]()
    while len(drawn) < len(lines):
        path, line = chance.choice(lines)
        name = str(path.relative_to(root))
        options = candidates[name].get(line)
        if (name, line) not in drawn and options:
            yield chance.choice(options).named(name)
        drawn.add((name, line))


class _Candidate:
    """A node of a syntax tree, and what replaces its text."""

    def __init__(self, source: bytes, starts: list[int], node: ast.AST, after: str, what: str):
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        self.offset = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        self.before, self.line = source[self.offset : end].decode(), node.lineno
        self.after, self.what = after, what

    def named(self, path: str) -> Mutation:
        return Mutation(path, self.line, self.before, self.after, self.offset, self.what)


def _python_files(place: Path) -> list[Path]:
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return [path for path in files if not path.stem.endswith("_pb2")]


def _code_lines(path: Path) -> list[int]:
    """Return the lines on which an expression or a statement begins that is no docstring."""
    tree = ast.parse(path.read_text())
    nodes = [node for node in _executed(tree) if isinstance(node, ast.expr | ast.stmt)]
    return sorted({node.lineno for node in nodes})


def _candidates(path: Path) -> dict[int, list[_Candidate]]:
    """Return the possible mutations of a file, by line."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[int, list[_Candidate]] = {}
    for node in _executed(ast.parse(source)):
        for after, what in _replacements(node):
            candidate = _Candidate(source, starts, node, after, what)
            found.setdefault(candidate.line, []).append(candidate)
    return found


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run: no docstrings, annotations, type checks or parts of f-strings."""
    for name, value in ast.iter_fields(tree):
        if name in {"annotation", "returns"} or isinstance(tree, ast.JoinedStr):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or _is_docstring(node):
                continue
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            yield node
            yield from _executed(node)


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _replacements(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the texts that may replace a node, each with the name of its operator."""
    match node:
        case ast.Compare(left, ops, comparators):
            for place, op in enumerate(ops):
                others = [*ops[:place], SWAPPED[type(op)](), *ops[place + 1 :]]
                swapped = ast.Compare(left, others, comparators)
                yield f"({ast.unparse(swapped)})", "comparison"
        case ast.Constant(bool() as value):
            yield str(not value), "constant"
        case ast.Constant(int() | float() as value):
            yield str(value + 1), "constant"
            if value:
                yield (
                    f"({value} / 2)" if isinstance(value, float) else f"({value} // 2)",
                    "constant",
                )
        case ast.BinOp(left, op, right) if type(op) in SWAPPED:
            swapped_op = ast.BinOp(left, SWAPPED[type(op)](), right)
            yield f"({ast.unparse(swapped_op)})", "operator"
        case ast.BoolOp(op, values):
            yield f"({ast.unparse(ast.BoolOp(SWAPPED[type(op)](), values))})", "operator"
        case ast.UnaryOp(ast.Not() | ast.USub() | ast.Invert(), operand):
            yield f"({ast.unparse(operand)})", "operator"
        case ast.Expr(ast.Call() | ast.Await()):
            yield "pass", "removed statement"
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield "pass", "removed statement"
        case ast.stmt() if isinstance(node, REMOVABLE):
            yield "pass", "removed statement"
        case _:
            return
