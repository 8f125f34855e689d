"""Looks at `code/inference.py` without running it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator

from shared.layout import ENTRY_POINT, HANDLERS
from shared.problem import Problem

_SHOWN = 200


def check(source: bytes) -> Iterator[Problem]:
    """Whether the code defines what the serving toolkit calls.

    Names count that any statement at the module's level binds, inside `if` and `try` too. A star
    import may bind any name, and then nothing is missing.
    """
    try:
        tree = ast.parse(source)
        names = set(_bound(tree.body))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        said = str(error)[:_SHOWN] or type(error).__name__
        yield Problem(reason="archive-code", message=f"{python} cannot read {ENTRY_POINT}: {said}")
        return
    if "*" in names or any(names.issuperset(handlers) for handlers in HANDLERS):
        return
    wanted = HANDLERS["transform_fn" in names]
    missing = [name for name in wanted if name not in names]
    functions = sorted(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    others = [name[:_SHOWN] for name in functions if name not in wanted]
    has = f"; it defines {', '.join(others[:5])}" if others else ""
    yield Problem(
        reason="archive-handlers",
        message=f"{ENTRY_POINT} defines no {', no '.join(missing)}{has}",
    )


def _bound(statements: Iterable[ast.stmt]) -> Iterator[str]:
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(node, part, ()))
            for handler in getattr(node, "handlers", ()):
                yield from _bound(handler.body)
