"""The docs are what the code says: generated pages, worked examples, links."""

import doctest
import functools
import re
from pathlib import Path

import pytest
from tools import reference
from tools.reference import PAGES

from outrider.cli.service_file import IGNORED
from outrider.operator.server.metrics import OperatorMetrics

DOCS = PAGES.parent
ROOT = DOCS.parent
TEXTS = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")

pages = functools.cache(reference.pages)


@pytest.mark.parametrize("name", pages())
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    written = (PAGES / name).read_text(encoding="utf-8")
    assert written == pages()[name], "run `python -m tools.reference`"


def test_every_metric_of_the_operator_is_on_its_page() -> None:
    page = (DOCS / "operator.md").read_text(encoding="utf-8")
    for family in OperatorMetrics().registry.collect():
        name = family.name + "_total" * (family.type == "counter")
        assert f"| `{name}` | {family.type} |" in page


@pytest.mark.parametrize("path", IGNORED)
def test_what_a_local_run_ignores_is_a_field_and_marked(path: str) -> None:
    table = pages()["service.md"].partition("## Rules")[0]
    rows = [line for line in table.splitlines() if line.startswith(f"| `{path}")]
    assert rows
    assert all(row.endswith("|  |") for row in rows)


@pytest.mark.parametrize("page", ["speculation.md", "pipelined-target.md"])
def test_worked_examples_hold(page: str) -> None:
    found = doctest.testfile(str(DOCS / "concepts" / page), module_relative=False)
    assert found.attempted > 5
    assert found.failed == 0


@pytest.mark.parametrize("page", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [t for t in targets if not (page.parent / t).exists()] == []
