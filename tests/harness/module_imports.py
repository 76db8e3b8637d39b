"""Finds the modules that a source file imports, without importing them."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file's source."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imported_modules(source: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the full name of each module that a source imports, also inside functions."""
    for node in source:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole module"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("import_module", "importlib.import_module", "__import__")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value)
