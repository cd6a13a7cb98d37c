"""Hooks by which mkdocs builds the site of all pages: `make docs`.

It calls the functions named on_*. Navigation is that of docs/index.md. What pages link to outside
of docs/ comes along under source/: pictures and JSON as they are, other files as pages that show
them, folders as lists of their YAML. Leaves themes, and which links are errors, to mkdocs.yml.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
INDEX = "index.md"
SECTION = re.compile(r"\| \*\*(.+)\*\* \|")
ENTRY = re.compile(r"\| \[(.+?)\]\((.+?)\) \|")
OUTWARD = re.compile(r"(?<=\]\()((?:\.\./)+[^)#\s]+)(?=[)#])")
AS_THEY_ARE = {".png", ".svg", ".json"}

Navigation = list[dict[str, str | list[str | dict[str, str]]]]


def navigation(index: str) -> Navigation:
    """Sections and pages of the tables in docs/index.md.

    Pages that go by a number there, as decisions do, are called by their own headings.
    """
    found: Navigation = [{"Documentation": INDEX}]
    entries: list[str | dict[str, str]] = []
    for line in index.splitlines():
        if section := SECTION.match(line):
            entries = []
            found.append({section[1]: entries})
        elif entry := ENTRY.match(line):
            title, path = entry.groups()
            entries.append(path if title.isdigit() else {title: path})
    return found


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from docs/index.md."""
    index = Path(config.docs_dir, INDEX).read_text(encoding="utf-8")
    config.nav = navigation(index)  # type: ignore[assignment]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to outside of docs/."""
    for page in list(files.documentation_pages()):
        for link in OUTWARD.findall(page.content_string):
            if (path := outside(page.src_uri, link)) is not None:
                for extra in extras(path, config):
                    if extra.src_uri not in files.src_uris:
                        files.append(extra)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to what lies outside of docs/ at its copy in the site."""

    def inside(match: re.Match[str]) -> str:
        path = outside(page.file.src_uri, match[0])
        if path is None:
            return match[0]
        return relpath(copy_of(path), dirname(page.file.src_uri) or ".")

    return OUTWARD.sub(inside, markdown)


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
