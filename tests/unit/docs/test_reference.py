"""The docs are what the code says: generated pages, examples, shell, links out of the site."""

import doctest
import re
import subprocess

import pytest
from tools import reference
from tools.reference import PAGES

from outrider.cli.service.file import IGNORED

DOCS = PAGES.parent
ROOT = DOCS.parent
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPTED = re.compile(r"^[$>] (.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The reference pages, written anew."""
    return reference.pages()


def test_a_reference_page_is_what_the_code_says(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        written = (PAGES / name).read_text(encoding="utf-8")
        assert written == text, f"{name}: run `python -m tools.reference`"


def test_what_a_local_run_ignores_is_a_field_and_marked(pages: dict[str, str]) -> None:
    table = pages["service.md"].partition("## Rules")[0].splitlines()
    for path in IGNORED:
        rows = [line for line in table if line.startswith(f"| `{path}")]
        assert rows, path
        assert all(row.endswith("|  |") for row in rows), path


def test_the_worked_example_holds() -> None:
    found = doctest.testfile(str(DOCS / "concepts" / "speculation.md"), module_relative=False)
    assert found.attempted > 5
    assert found.failed == 0


def test_relative_links_outside_of_the_site_lead_somewhere() -> None:
    for page in ROOT.glob("*.md"):
        targets = LINK.findall(page.read_text(encoding="utf-8"))
        assert [t for t in targets if not (page.parent / t).exists()] == [], page.name


def test_shell_blocks_are_shell() -> None:
    for page in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")):
        for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            typed = {"": text, "console": "\n".join(PROMPTED.findall(text))}
            said = subprocess.run(
                ("bash", "-n"),
                input=typed.get(language, ""),
                capture_output=True,
                text=True,
                check=False,
            ).stderr
            assert said == "", f"{page.relative_to(ROOT)}: {text}"
