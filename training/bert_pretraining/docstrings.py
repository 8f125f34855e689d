"""A corpus for a first try: the documentation inside installed Python packages, as plain text."""

import argparse
import ast
import sys
from importlib.util import find_spec
from pathlib import Path

from training.command import InputError, Parser, run
from training.files import write_bytes

# Packages of .venv-training with much English in them.
PACKAGES = ("matplotlib", "networkx", "numpy", "scipy", "sklearn", "sympy")
SHORTEST = 200  # characters of a docstring that says something


def write_docstrings(packages: list[str], output: Path) -> tuple[int, int]:
    """Write a file for each module that has docstrings; how many files, and bytes in all.

    Raises:
        InputError: a package is not installed, or none has docstrings.
    """
    missing = [name for name in packages if not (name.isidentifier() and find_spec(name))]
    if missing:
        raise InputError(f"no installed package {', '.join(missing)}")
    output.mkdir(parents=True, exist_ok=True)
    files = size = 0
    for name in packages:
        spec = find_spec(name)
        for root in map(Path, (spec and spec.submodule_search_locations) or ()):
            for path in sorted(root.rglob("*.py")):
                if content := "\n\n".join(_docstrings(path)).encode():
                    parts = (name, *path.relative_to(root).with_suffix("").parts)
                    write_bytes(output / f"{'-'.join(parts)}.txt", content)
                    files, size = files + 1, size + len(content)
    if not files:
        raise InputError(f"no docstrings in {', '.join(packages)}; give larger packages")
    return files, size


def _docstrings(path: Path) -> list[str]:
    """The longer docstrings of a module; none where it is not Python of this version."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return [text for text in found if text and len(text) >= SHORTEST]


def main(arguments: list[str] | None = None) -> int:
    """The command `python -m training.bert_pretraining.docstrings`."""
    parser = Parser(prog="python -m training.bert_pretraining.docstrings", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder for the text")
    parser.add_argument("packages", nargs="*", default=list(PACKAGES), metavar="PACKAGE")
    options: argparse.Namespace = parser.parse_args(arguments)

    def action() -> None:
        files, size = write_docstrings(options.packages, options.output)
        print(f"{options.output}: {size / 1e6:.1f} MB of text in {files} files")

    return run(action)


if __name__ == "__main__":
    sys.exit(main())
