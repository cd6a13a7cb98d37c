"""Moments of the mirrored tree as SVG, legible on light and on dark pages.

Trees run from left to right: a column for each depth, a line for each leaf.
"""

from collections.abc import Iterator
from xml.sax.saxutils import escape

from tools.mirrored_tree.example import Copy, Moment, Node

WIDTH, PANEL, MARGIN = 876, 420, 12
COLUMN, LINE, BOX_WIDTH, BOX_HEIGHT = 82, 46, 72, 26
PANEL_TOP, TREE_TOP, LINES = 40, 98, 3
STRIP = TREE_TOP + LINES * LINE + 8
"""Where what is on its way begins."""

STYLE = """\
  text { font: 13px system-ui, sans-serif; fill: var(--ink) }
  .title { font-size: 15px; font-weight: 600 }
  .side { font-weight: 600 }
  .small { font-size: 11px; fill: var(--dim) }
  .middle { text-anchor: middle }
  .page { fill: var(--page) }
  .panel { fill: none; stroke: var(--dim); stroke-width: 0.5 }
  .edge, .arrow { stroke: var(--dim); fill: none }
  .tip { fill: var(--dim) }
  .node { fill: var(--node); stroke: var(--blue) }
  .accepted { fill: var(--green-page); stroke: var(--green); stroke-width: 2 }
  .root { fill: var(--ink) }
  text.on-root { fill: var(--page) }
  svg { --page: #ffffff; --ink: #1f2328; --dim: #59636e; --node: #ddf4ff; --blue: #0969da;
        --green-page: #dafbe1; --green: #1a7f37 }
  @media (prefers-color-scheme: dark) {
    svg { --page: #0d1117; --ink: #f0f6fc; --dim: #9198a1; --node: #12233d; --blue: #4493f8;
          --green-page: #12261e; --green: #3fb950 }
  }"""


def picture(number: int, moment: Moment) -> str:
    """Return the SVG of one moment."""
    messages = list(strip(moment))
    height = STRIP + 26 * (len(moment.to_target) + len(moment.to_draft)) + 30
    title = f"{number}. {moment.title}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
        text(MARGIN, 26, title, "title"),
        *side(MARGIN, "Draft", moment.draft),
        *side(WIDTH - MARGIN - PANEL, "Target: the mirror", moment.target),
        *messages,
        text(MARGIN, height - 12, fates(moment.fates), "small"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def side(left: int, name: str, copy: Copy) -> Iterator[str]:
    """Panel of one copy, its committed text above its tree."""
    bottom = STRIP - 6
    yield (
        f'<rect class="panel" x="{left}" y="{PANEL_TOP}" width="{PANEL}" '
        f'height="{bottom - PANEL_TOP}" rx="6"/>'
    )
    yield text(left + 10, PANEL_TOP + 20, name, "side")
    committed = f"committed: … {' '.join(copy.text)} (root at {copy.root_position})"
    yield text(left + 10, PANEL_TOP + 38, committed, "small")
    yield from tree(left + 12, copy)


def tree(left: int, copy: Copy) -> Iterator[str]:
    """The root and the nodes, with what was sampled at each below its box."""
    lines = places(copy.nodes)
    depth = {0: 0} | {node.id: node.depth for node in copy.nodes}
    for node in copy.nodes:
        x1 = left + depth[node.parent] * COLUMN + BOX_WIDTH
        y1, y2 = (TREE_TOP + lines[i] * LINE + BOX_HEIGHT / 2 for i in (node.parent, node.id))
        yield f'<path class="edge" d="M {x1} {y1:g} L {left + node.depth * COLUMN} {y2:g}"/>'
    yield from box(left, TREE_TOP, copy.text[-1], "root", copy.sampled.get(0))
    for node in copy.nodes:
        kind = "accepted" if node.id in copy.accepted else "node"
        x, y = left + node.depth * COLUMN, TREE_TOP + lines[node.id] * LINE
        yield from box(x, y, f"{node.id} {node.word}", kind, copy.sampled.get(node.id))


def places(nodes: tuple[Node, ...]) -> dict[int, int]:
    """Line of each node by id; a first child is on its parent's, a further one below all so far."""
    lines, last = {0: 0}, 0
    children: dict[int, list[int]] = {}
    for node in nodes:
        children.setdefault(node.parent, []).append(node.id)
    waiting = [0]
    while waiting:
        parent = waiting.pop()
        for i, child in enumerate(children.get(parent, [])):
            last += i > 0
            lines[child] = last if i else lines[parent]
        waiting += reversed(children.get(parent, []))
    return lines


def box(x: int, y: int, label: str, kind: str, sampled: str | None) -> Iterator[str]:
    yield (
        f'<rect class="{kind}" x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"/>'
    )
    middle = x + BOX_WIDTH / 2
    yield text(middle, y + 17, label, "middle on-root" if kind == "root" else "middle")
    if sampled is not None:
        yield text(middle, y + BOX_HEIGHT + 13, f"→ {sampled}", "small middle")


def strip(moment: Moment) -> Iterator[str]:
    """Arrows with what is on its way."""
    y = STRIP + 16
    start, end = MARGIN + 4, WIDTH - MARGIN - 4
    for message in moment.to_target:
        yield from arrow(start, end, y, message)
        y += 26
    for message in moment.to_draft:
        yield from arrow(end, start, y, message)
        y += 26


def arrow(start: int, end: int, y: int, label: str) -> Iterator[str]:
    back = -8 if end > start else 8
    yield f'<path class="arrow" d="M {start} {y} L {end} {y}"/>'
    yield f'<path class="tip" d="M {end} {y} l {back} -4 l 0 8 z"/>'
    yield text(WIDTH / 2, y - 5, label, "small middle")


def fates(found: dict[int, str]) -> str:
    """One line on what became of each id."""
    return "ids at the target: " + " · ".join(f"{i} {state}" for i, state in found.items())


def text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>'
