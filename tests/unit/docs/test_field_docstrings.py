"""Docstrings of fields are noun phrases that read without the field above."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("operator", "worker", "cli", "kernels", "lab", "protos", "bench", "tools", "tests")
FRAGMENT = re.compile(r"^(Of|That|Those|By|From|Between|Which)\b|^[a-z]|[;,]$")
"""Beginnings that need a neighbour, and ends that do."""


def fragments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring of a field that is a fragment."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef):
            continue
        for field, after in pairwise(node.body):
            if not isinstance(field, ast.Assign | ast.AnnAssign):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = str(after.value.value).strip()
                if FRAGMENT.search(text):
                    yield after.lineno, text


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_docstring_of_a_field_is_a_fragment(folder: str) -> None:
    files = (file for file in (ROOT / folder).rglob("*.py") if "_pb2" not in file.name)
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text}"
        for file in files
        for line, text in fragments(file.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text", ["Of those.", "Those of it.", "Between two.", "in seconds", "Seconds;", "By name."]
)
def test_a_fragment_is_found(text: str) -> None:
    assert [found for _, found in fragments(f'class A:\n    b: int\n    """{text}"""\n')] == [text]
    assert not [*fragments('class A:\n    b: int\n    """Seconds between two reads."""\n')]
