"""The README of the chart: every value with its default and what values.yaml says of it.

Leaves writing it to `reference`.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from tools.tables import NOTE, table

CHART = Path(__file__).parents[1] / "charts" / "outrider"
HEAD = """\
# The chart

Installs the operator of Outrider: [how](../../docs/how-to/install-on-kubernetes.md). Values that
are wrong or unknown are refused by name, by `values.schema.json`."""
ROW = tuple[str, str, str]


def chart_page() -> str:
    """Text of the page."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    rows = [
        (f"`{path}`", default and f"`{default}`", words)
        for path, default, words in values(root, text.splitlines(), yaml.safe_load(text))
    ]
    return "\n\n".join((NOTE, HEAD, table(("value", "default", "meaning"), rows))) + "\n"


def values(
    node: yaml.MappingNode, lines: Sequence[str], given: Any, path: str = ""
) -> Iterator[ROW]:
    """Yield the path, the default and the comment of every value; parts of others have no default
    and are left out where nothing is said of them."""
    for key, value in node.value:
        name, held = f"{path}{key.value}", given[key.value]
        words = comment(lines, key.start_mark.line)
        if isinstance(value, yaml.MappingNode) and value.value and not value.flow_style:
            if words:
                yield name, "", words
            yield from values(value, lines, held, f"{name}.")
        else:
            yield name, json.dumps(held), words


def comment(lines: Sequence[str], at: int) -> str:
    """What stands behind a key, or on the lines right above it."""
    _, mark, behind = lines[at].partition(" # ")
    above: list[str] = []
    while at and lines[at - 1].lstrip().startswith("# "):
        at -= 1
        above.insert(0, lines[at].lstrip()[2:])
    return " ".join([*above, behind] if mark else above)
