"""Third-party modules that importing parts of the source tree needs, found without importing them.

What runs at import counts, under any condition but `TYPE_CHECKING`. What is in a function does not,
nor what is in a `try` that catches `ImportError`: the tree does without it. Needs the standard
library alone, and does not look into third-party modules.
"""

import ast
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (".", "kernels", "cli", "lab", "protos", "worker", "operator")
"""Folders of the source tree that Python has to find, relative to its root."""
OPTIONAL = {"ImportError", "ModuleNotFoundError"}
"""Exceptions that a `try` around optional imports catches."""


def search_path() -> str:
    """Return a PYTHONPATH that finds the source tree before all that this process's finds."""
    folders = [str(ROOT / folder) for folder in FOLDERS]
    return os.pathsep.join(filter(None, (*folders, os.environ.get("PYTHONPATH"))))


def imported(*roots: Path, checkout: Path = ROOT) -> dict[str, tuple[str, ...]]:
    """Return the third-party top-level modules that importing `roots` loads, each with its chain.

    A root is a Python file or a folder of tests, relative to `checkout`; a folder stands for its
    files and those `conftest.py` that pytest loads for them. The chain is the shortest one of
    imports, by dotted names: a root first, the third-party module last. Raises
    `FileNotFoundError` for a root that is not there.
    """
    starts = (_dotted(file, checkout) for root in roots for file in _files(root, checkout))
    chains: dict[str, tuple[str, ...]] = {name: (name,) for name in starts}
    waiting = deque(chains)
    while waiting:
        module = waiting.popleft()
        for name in _loaded(module, checkout):
            if name not in chains:
                chains[name] = (*chains[module], name)
                waiting.append(name)
    return {name: chain for name, chain in chains.items() if not _source(name, checkout)}


def _files(root: Path, checkout: Path) -> list[Path]:
    """Return the Python files that a root stands for."""
    path = checkout / root
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(path)
    above = (folder / "conftest.py" for folder in path.parents if folder.is_relative_to(checkout))
    return [*filter(Path.is_file, above), *sorted(path.rglob("*.py"))]


def _dotted(file: Path, checkout: Path) -> str:
    """`worker/outrider/worker/kv/block_pool.py` is `outrider.worker.kv.block_pool`."""
    folders = (checkout / folder for folder in FOLDERS)
    inside = (file.relative_to(folder) for folder in folders if file.is_relative_to(folder))
    parts = min((path.with_suffix("").parts for path in inside), key=len)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _source(module: str, checkout: Path) -> Path | None:
    """Return the file of a module; None if it is a folder without `__init__.py` or third-party."""
    places = [checkout.joinpath(folder, *module.split(".")) for folder in FOLDERS]
    files = (file for place in places for file in (place / "__init__.py", Path(f"{place}.py")))
    return next(filter(Path.is_file, files), None)


@cache
def _is_first_party(top: str, checkout: Path) -> bool:
    """Return whether a top-level name is a module or a folder of the checkout."""
    folders = (checkout / folder / top for folder in FOLDERS)
    return _source(top, checkout) is not None or any(map(Path.is_dir, folders))


@cache
def _loaded(module: str, checkout: Path) -> tuple[str, ...]:
    """Return what importing a module loads next, its own packages first; nothing if third-party."""
    source = _source(module, checkout)
    if source is None:
        return ()
    package = module if source.name == "__init__.py" else module.rpartition(".")[0]
    names = (module, *_names(ast.parse(source.read_bytes(), source), package))
    return tuple(dict.fromkeys(one for name in names for one in _modules(name, checkout)))


def _modules(name: str, checkout: Path) -> Iterator[str]:
    """Yield the modules that an import of `name` runs: the checkout's, or one third-party one.

    `name` may be that of something in a module, and what is in the standard library yields nothing.
    """
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return
    if not _is_first_party(top, checkout):
        yield top
        return
    dotted = accumulate(name.split("."), "{}.{}".format)
    yield from (module for module in dotted if _source(module, checkout))


def _names(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the dotted names that a module of `package` imports when it is imported."""
    for statement in _imports(tree.body):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
            continue
        above = package.split(".")[: 1 - statement.level or None] if statement.level else []
        base = ".".join([*above, *filter(None, [statement.module])])
        yield from (f"{base}.{alias.name}" for alias in statement.names)


def _imports(nodes: Iterable[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements among and inside `nodes` that run and have to succeed."""
    for node in nodes:
        match node:
            case ast.Import() | ast.ImportFrom():
                yield node
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.expr():
                pass
            case ast.If(test=test, orelse=otherwise) if _is_type_checking(test):
                yield from _imports(otherwise)
            case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=test)) if _is_type_checking(test):
                yield from _imports(node.body)
            case ast.Try() if any(map(_is_optional, node.handlers)):
                yield from _imports(node.finalbody)
            case _:
                yield from _imports(ast.iter_child_nodes(node))


def _is_type_checking(test: ast.expr) -> bool:
    """Return whether a condition is `TYPE_CHECKING`, by itself or in its module."""
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _is_optional(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler names an exception of missing modules."""
    caught = ast.walk(handler.type) if handler.type else ()
    return any(isinstance(node, ast.Name) and node.id in OPTIONAL for node in caught)
