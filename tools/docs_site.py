"""Hooks by which mkdocs builds the site of all pages: `make docs`.

It calls the functions named on_*. Navigation is that of docs/index.md. What pages link to outside
of docs/ comes along under source/: pictures and JSON as they are, other files as pages that show
them, folders as lists of their YAML. Diagrams are drawn by mermaid where `npm ci` has put it into
tools/site, and are text elsewhere. Leaves themes, and which links are errors, to mkdocs.yml.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
INDEX = "index.md"
SECTION = re.compile(r"## (.+)")
GROUP = re.compile(r"### (.+)")
ENTRY = re.compile(r"- \[(.+?)\]\((.+?)\): ")
OUTWARD = re.compile(r"(?<=\]\()((?:\.\./)+[^)#\s]+)(?=[)#])")
AS_THEY_ARE = {".png", ".svg", ".json"}
UNSEARCHED = ("decisions/", "source/", "recordings/", INDEX)
"""Beginnings of the paths of pages that search leaves out."""
BOOSTS = {"get-started/": 8.0, "how-to/": 4.0}
"""Weight in search of pages that users look for, by the beginnings of their paths."""

MERMAID = ROOT / "tools/site/node_modules/mermaid/dist/mermaid.min.js"
DRAWN = "assets/mermaid.min.js"

Navigation = list[dict[str, Any]]


def navigation(index: str) -> Navigation:
    """Sections, groups and pages of the lists in docs/index.md.

    Pages that go by a number there, as decisions do, are called by their own headings.
    """
    found: Navigation = [{"Outrider": INDEX}]
    section: list[Any] = []
    entries = section
    for line in index.splitlines():
        if heading := SECTION.fullmatch(line):
            section = entries = []
            found.append({heading[1]: section})
        elif heading := GROUP.fullmatch(line):
            entries = []
            section.append({heading[1]: entries})
        elif entry := ENTRY.match(line):
            title, path = entry.groups()
            entries.append(path if title.isdigit() else {title: path})
    return found


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from docs/index.md."""
    index = Path(config.docs_dir, INDEX).read_text(encoding="utf-8")
    config.nav = navigation(index)
    if not MERMAID.exists():
        config.mdx_configs["pymdownx.superfences"]["custom_fences"] = []
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to outside of docs/, and what draws diagrams."""
    if MERMAID.exists():
        files.append(File.generated(config, DRAWN, abs_src_path=os.fspath(MERMAID)))
    for page in list(files.documentation_pages()):
        for link in OUTWARD.findall(page.content_string):
            if (path := outside(page.src_uri, link)) is not None:
                for extra in extras(path, config):
                    if extra.src_uri not in files.src_uris:
                        files.append(extra)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to what lies outside of docs/ at its copy in the site; weigh it for search."""
    path = page.file.src_uri
    page.meta["search"] = {
        "exclude": path.startswith(UNSEARCHED),
        "boost": next((boost for start, boost in BOOSTS.items() if path.startswith(start)), 1.0),
    }

    def inside(match: re.Match[str]) -> str:
        path = outside(page.file.src_uri, match[0])
        if path is None:
            return match[0]
        return relpath(copy_of(path), dirname(page.file.src_uri) or ".")

    return OUTWARD.sub(inside, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Load what draws diagrams where there is one; the theme would ask another host for it."""
    if 'class="mermaid"' not in output:
        return output
    script = f'<script src="{relpath(DRAWN, dirname(page.file.src_uri) or ".")}"></script>'
    return output.replace("</head>", f"{script}</head>", 1)


def outside(page: str, link: str) -> Path | None:
    """What a link of `page`, a path below docs/, leads to, if that exists outside of docs/."""
    path = normpath(f"docs/{dirname(page)}/{link}")
    found = ROOT / path
    return found if path.partition("/")[0] != "docs" and found.exists() else None


def copy_of(path: Path) -> str:
    """Where the copy of a file or folder is in the site, relative to docs/."""
    name = f"source/{path.relative_to(ROOT).as_posix()}"
    if path.is_dir():
        return f"{name}/{INDEX}"
    return name if path.suffix in AS_THEY_ARE else f"{name}.md"


def extras(path: Path, config: MkDocsConfig) -> Iterator[File]:
    """A file's copy, or a folder's list with the files in it."""
    if path.is_dir():
        below = sorted(path.rglob("*.yaml"))
        yield added(path, listing(path, below), config)
        for file in below:
            yield from extras(file, config)
    elif path.suffix in AS_THEY_ARE:
        yield File.generated(config, copy_of(path), abs_src_path=os.fspath(path))
    else:
        yield added(path, shown(path), config)


def added(path: Path, content: str, config: MkDocsConfig) -> File:
    """A page that is in no menu."""
    return File.generated(
        config, copy_of(path), content=content, inclusion=InclusionLevel.NOT_IN_NAV
    )


def listing(folder: Path, files: list[Path]) -> str:
    names = [file.relative_to(folder).as_posix() for file in files]
    return "\n".join([heading(folder), "", *(f"- [`{name}`]({name}.md)" for name in names), ""])


def shown(file: Path) -> str:
    """A page that shows a text file."""
    text = file.read_text(encoding="utf-8")
    return f"{heading(file)}\n\n~~~~{file.suffix.removeprefix('.')}\n{text}~~~~\n"


def heading(path: Path) -> str:
    return f"# `{path.relative_to(ROOT).as_posix()}`"
