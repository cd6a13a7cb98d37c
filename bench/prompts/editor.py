"""Requests of `bench.editor`, made of this repository's own files: places to fill in, and edits.

A place is the body of a function without its first line: the cursor stands where that ends.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = (
    "cli/outrider/cli/machine/info.py",
    "operator/outrider/operator/observed/live_workloads.py",
    "cli/outrider/cli/load/summary.py",
    "worker/outrider/worker/api/auth.py",
    "worker/outrider/worker/api/prompt.py",
    "worker/outrider/worker/speculation/gain.py",
    "worker/outrider/worker/speculation/answer_index.py",
    "worker/outrider/worker/target/draft_switch.py",
    "worker/outrider/worker/tree/walk.py",
    "protos/outrider/contract/settings.py",
    "operator/outrider/operator/control/scaling.py",
    "lab/outrider/simulator/service.py",
)
BEFORE, AFTER = 60, 20
"""Lines around the cursor that an editor sends."""
LEAST_LINES = 3
"""Fewest lines of a body behind the cursor."""
WISHES = (
    "Rename the function `{name}` to `{name}_of`, wherever it is used.",
    "Add a comment above the function `{name}` that says what it returns.",
)


@dataclass(frozen=True, slots=True)
class Place:
    """Text around a cursor."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Edit:
    """A piece of code, and what is to be done with it."""

    code: str
    wish: str

    @property
    def prompt(self) -> str:
        """What a client asks."""
        return f"```python\n{self.code}```\n{self.wish} Reply with the whole code and nothing else."


def places(count: int) -> list[Place]:
    """Return the first two places of each file, one of each at a time."""
    by_file = [functions(name) for name in FILES]
    found = [_place(FILES[at], own[turn]) for turn in range(2) for at, own in enumerate(by_file)]
    return found[:count]


def edits(count: int) -> list[Edit]:
    """Return edits of pieces of some 40 lines that begin with a function."""
    found = []
    for number, name in enumerate(FILES[:count]):
        node, lines = functions(name)[0], _lines(name)
        first = node.lineno - 1
        code = "".join(lines[first : first + 40])
        found.append(Edit(code, WISHES[number % len(WISHES)].format(name=node.name)))
    return found


def functions(name: str) -> list[ast.FunctionDef]:
    """Return the functions of a file whose bodies are long enough, in their order."""
    nodes = ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8")))
    found = [node for node in nodes if isinstance(node, ast.FunctionDef) and _is_long(node)]
    return sorted(found, key=lambda node: node.lineno)


def _is_long(node: ast.FunctionDef) -> bool:
    return (node.end_lineno or 0) - (node.body[0].end_lineno or 0) >= LEAST_LINES


def _place(name: str, node: ast.FunctionDef) -> Place:
    lines, cursor, end = _lines(name), node.body[0].end_lineno or 0, node.end_lineno or 0
    before = "".join(lines[max(0, cursor - BEFORE) : cursor])
    return Place(before, "".join(lines[end : end + AFTER]))


def _lines(name: str) -> list[str]:
    return (ROOT / name).read_text(encoding="utf-8").splitlines(keepends=True)
