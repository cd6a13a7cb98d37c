"""Unit tests of what has changed, found by the imports: `make check` runs them.

    python -m tools.changed_tests  # prints their files

A file of tests is concerned if it, or a module that it imports, however far, is not as it was at
the merge base with the upstream branch; a file that is no module concerns those whose strings name
it or a folder of it. Imports inside functions count, and so does a module that a string names, as
in `-m outrider.worker`. Leaves running them to pytest.
"""

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
UNIT = PurePosixPath("tests/unit")
PORTIONS = ("operator", "worker", "kernels", "protos", "cli", "lab")
"""Folders that each hold a part of the namespace package `outrider`."""
EVERYWHERE = {*PORTIONS, "outrider", "tests", "unit"}
"""Names of folders that say little: half of all strings hold them."""
CONCERN_ALL = frozenset({"pyproject.toml", "uv.lock", "tests/conftest.py"})


@dataclass(frozen=True, slots=True)
class Source:
    """One module."""

    imports: frozenset[str]
    """Dotted names, of modules and of what is in them."""
    words: frozenset[str]
    """Words of the module's strings but docstrings, cut at slashes and spaces."""


def module_name(path: PurePosixPath) -> str:
    """`worker/outrider/worker/kv/block_pool.py` is `outrider.worker.kv.block_pool`."""
    parts = path.with_suffix("").parts
    inside = parts[1:] if parts[0] in PORTIONS and parts[1:2] == ("outrider",) else parts
    return ".".join(inside[:-1] if inside[-1] == "__init__" else inside)


def read(text: str) -> Source:
    """The module of this text; raises `SyntaxError`."""
    imports: set[str] = set()
    words: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant() as docstring):
                docstring.value = None  # it is walked after this
            case ast.Import():
                imports.update(alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):  # there are no others
                imports.update((module, *(f"{module}.{alias.name}" for alias in node.names)))
            case ast.Constant(value=str(value)):
                words.update(re.split(r"[/\s]+", value))
    return Source(frozenset(imports), frozenset(words))


class Checkout:
    """The modules of a checkout, each read once."""

    def __init__(self, root: Path, files: Iterable[PurePosixPath]) -> None:
        """`files`: relative to `root`; those that are gone count, and hold nothing."""
        self._root = root
        self._files = {module_name(file): file for file in files if file.suffix == ".py"}
        self._sources: dict[str, Source] = {}

    def concerned(self, changed: Iterable[PurePosixPath]) -> Iterator[PurePosixPath]:
        """Files of unit tests, sorted."""
        changes = set(changed)
        modules = {module_name(file) for file in changes if file.suffix == ".py"}
        others = [set(file.parts) - EVERYWHERE for file in changes if file.suffix != ".py"]
        for test in sorted(self._files.values()):
            if UNIT not in test.parents or not test.name.startswith("test_"):
                continue
            needs = self._needs(test)
            words = frozenset[str]().union(*(self._source(name).words for name in needs))
            if needs & modules or any(names & words for names in others):
                yield test

    def _needs(self, test: PurePosixPath) -> set[str]:
        """Modules that a file of tests imports, however far, with its conftests and itself."""
        folders = (folder for folder in test.parents if UNIT in (folder, *folder.parents))
        names = [module_name(test), *(module_name(folder / "conftest.py") for folder in folders)]
        found: set[str] = set()
        while names:
            name = names.pop()
            if name in self._files and name not in found:
                found.add(name)
                source = self._source(name)
                names.extend(n for one in source.imports for n in (*_packages(one), one))
                names.extend(word + end for word in source.words for end in ("", ".__main__"))
        return found

    def _source(self, name: str) -> Source:
        if name not in self._sources:
            file = self._root / self._files[name]
            self._sources[name] = read(file.read_text("utf-8") if file.exists() else "")
        return self._sources[name]


def _packages(name: str) -> Iterator[str]:
    """`a` and `a.b` of `a.b.c`, whose import runs them."""
    return (name[: dot.start()] for dot in re.finditer(r"\.", name))


def _git(*arguments: str) -> list[str]:
    command = ("git", "-C", str(ROOT), *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def main() -> None:
    """Prints the files, one a line; `tests/unit` where all are concerned."""
    since = _git("merge-base", "HEAD", "@{upstream}") or ["HEAD"]
    new = _git("ls-files", "--others", "--exclude-standard")
    changed = {*_git("diff", "--no-renames", "--name-only", *since), *new}
    checkout = Checkout(ROOT, map(PurePosixPath, {*_git("ls-files"), *changed}))
    concerned = checkout.concerned(map(PurePosixPath, changed))
    here = (test for test in concerned if (ROOT / test).exists())
    print(*([UNIT] if changed & CONCERN_ALL else here), sep="\n")


if __name__ == "__main__":
    main()
