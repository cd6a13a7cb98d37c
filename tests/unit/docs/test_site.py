"""The site of all pages: every link leads somewhere, and no other host is asked for anything."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tools.docs_site import navigation

ROOT = Path(__file__).parents[3]
SECONDS = 300.0
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "form": "action"}
"""Attributes by which an element makes a browser ask for something; those of `link` are below."""
LINKED = {"stylesheet", "icon", "preconnect", "preload", "modulepreload", "manifest", "prefetch"}
ELSEWHERE = re.compile(r"(?:https?:)?//")
FROM_STYLES = re.compile(r"(?:url\(\s*[\"']?|@import\s+[\"'])((?:https?:)?//[^)\"']+)")
TO_A_PAGE = re.compile(r"\]\((docs/[^)#\s]+\.md)(?:#([^)\s]+))?\)")


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as `make docs` does."""
    command = [sys.executable, "-m", "mkdocs", "build", "-f", str(config), "-d", str(site)]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages, built."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


class Loaded(HTMLParser):
    """What a page makes a browser load from other hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: set[str] = set()
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.add(values.get("id", ""))
        self.classes |= set(values.get("class", "").split())
        loads = [values.get(LOADING.get(tag, ""), "")]
        if tag == "link" and LINKED & set(values.get("rel", "").split()):
            loads.append(values.get("href", ""))
        loads += [part.strip() for part in values.get("srcset", "").split(",")]
        self.found += [value for value in loads if ELSEWHERE.match(value)]
        self.found += FROM_STYLES.findall(values.get("style", ""))


def parsed(page: Path) -> Loaded:
    reader = Loaded()
    reader.feed(page.read_text(encoding="utf-8"))
    return reader


def test_every_page_is_there(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if not (site / page.with_suffix(".html")).exists()] == []


def test_it_loads_nothing_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        reader = parsed(page)
        assert reader.found == [], page
        # The theme's script fetches these from elsewhere where a page has them.
        assert "md-source" not in reader.classes, page
        assert "mermaid" not in reader.classes or "assets/mermaid.min.js" in page.read_text(), page
    for style in site.rglob("*.css"):
        assert FROM_STYLES.findall(style.read_text(encoding="utf-8")) == [], style


def test_search_needs_no_server_and_leaves_out_what_is_for_maintainers(site: Path) -> None:
    written = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    index = json.loads(written.removeprefix("var __index = "))
    places = {entry["location"] for entry in index["docs"]}
    assert "get-started/laptop.html" in places
    beginnings = {place.partition("/")[0] for place in places}
    assert not {"decisions", "source", "recordings"} & beginnings
    assert "assets/iframe-worker.js" in (site / "index.html").read_text(encoding="utf-8")


def test_navigation_has_sections_with_groups_of_pages() -> None:
    index = "## How to\n\n- [A](a.md): one\n\n### More\n\n- [B](b.md): two\n- [0001](c.md): three\n"
    more = {"More": [{"B": "b.md"}, "c.md"]}
    assert navigation(index) == [{"Outrider": "index.md"}, {"How to": [{"A": "a.md"}, more]}]


def test_the_index_has_five_sections() -> None:
    sections = [next(iter(one)) for one in navigation((ROOT / "docs/index.md").read_text())]
    assert sections == ["Outrider", "Get started", "How to", "Concepts", "Reference", "Development"]


def test_links_of_readme_lead_to_pages_and_headings(site: Path) -> None:
    links = TO_A_PAGE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert links
    for path, anchor in links:
        page = site / Path(path).relative_to("docs").with_suffix(".html")
        assert page.exists(), path
        assert not anchor or anchor in parsed(page).ids, f"{path}#{anchor}"


def test_links_that_lead_nowhere_and_pages_that_are_not_in_the_index_fail(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    index = "# Docs\n\n## All\n\n- [A](a.md): a page\n- [Gone](gone.md): none\n"
    (docs / "index.md").write_text(index)
    (docs / "a.md").write_text("# A\n\n[b](b.md)\n[b](#nowhere)\n![b](b.png)\n")
    (docs / "unlisted.md").write_text("# Unlisted\n")
    config = tmp_path / "mkdocs.yml"
    hooks = f"hooks: [{ROOT / 'tools' / 'docs_site.py'}]"
    config.write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: {docs}\n{hooks}\n")
    done = build(config, tmp_path / "site")
    assert done.returncode != 0
    for complaint in ("b.md", "nowhere", "b.png", "unlisted.md", "gone.md"):
        assert complaint in done.stderr
