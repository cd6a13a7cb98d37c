"""Lanes of a pipeline's stages over time, as SVG: what each computed when, and when it waited.

FlowSpec's figure, from timestamps. Spans are plain data, a JSON line each in a file:
`{"stage": 0, "segment": 7, "begin": 1.25, "end": 1.31, "rows": 12, "sequence": 3}`. Leaves taking
the timestamps to those who have a clock.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

LANE, GAP, LEFT, TOP, WIDTH = 26, 8, 70, 34, 1000
"""Pixels."""
HUES = 12
"""Colours that segments take in turns."""
TICKS = 8


class Span(NamedTuple):
    """One segment in one stage."""

    stage: int
    """Counted from 0."""
    segment: int
    begin: float
    """Seconds, by a clock that all stages share."""
    end: float
    rows: int
    sequence: int
    """The first row's; -1: none."""


def spans_from(lines: Iterable[str]) -> Iterator[Span]:
    """Parse JSON lines; raises `ValueError` for a line that is no span."""
    for number, line in enumerate(lines, 1):
        try:
            yield Span(**json.loads(line))
        except (TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"line {number} is no span: {error}") from None


def json_lines(spans: Iterable[Span]) -> str:
    """Return spans as JSON lines."""
    return "".join(json.dumps(span._asdict()) + "\n" for span in spans)


def drawn(spans: Sequence[Span], title: str) -> str:
    """Return an SVG with a lane for each stage; raises `ValueError` where there are no spans."""
    if not spans:
        raise ValueError("there are no spans to draw")
    first, last = min(s.begin for s in spans), max(s.end for s in spans)
    scale = WIDTH / max(last - first, 1e-9)
    lanes = 1 + max(s.stage for s in spans)
    height = TOP + lanes * (LANE + GAP) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 60}" height="{height}" '
        f'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="13">{_escaped(title)}</text>',
        *(_lane(lane, busy_share(spans, lane)) for lane in range(lanes)),
        *(_box(span, first, scale) for span in spans),
        *_ticks(last - first, scale, height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def busy_share(spans: Sequence[Span], stage: int) -> float:
    """Return the share of the whole time for which a stage computed."""
    total = max(s.end for s in spans) - min(s.begin for s in spans)
    return sum(s.end - s.begin for s in spans if s.stage == stage) / max(total, 1e-9)


def _lane(stage: int, busy: float) -> str:
    y = _top(stage)
    return (
        f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{LANE}" fill="#eee"/>'
        f'<text x="8" y="{y + 17}">stage {stage}</text>'
        f'<text x="{LEFT + WIDTH + 8}" y="{y + 17}">{busy:.0%}</text>'
    )


def _box(span: Span, first: float, scale: float) -> str:
    x, width = LEFT + (span.begin - first) * scale, (span.end - span.begin) * scale
    hue, y = span.segment % HUES * 360 // HUES, _top(span.stage)
    told = f"segment {span.segment}: {span.rows} rows of sequence {span.sequence}"
    box = (
        f'<rect x="{x:.1f}" y="{y}" width="{max(width, 0.5):.1f}" height="{LANE}" '
        f'fill="hsl({hue},60%,65%)" stroke="white" stroke-width="0.5"><title>{told}</title></rect>'
    )
    if width < 16:
        return box
    return (
        box + f'<text x="{x + width / 2:.1f}" y="{y + 17}" text-anchor="middle">{span.rows}</text>'
    )


def _ticks(seconds: float, scale: float, height: int) -> Iterator[str]:
    for tick in range(TICKS + 1):
        at = seconds * tick / TICKS
        yield (
            f'<text x="{LEFT + at * scale:.1f}" y="{height - 8}" text-anchor="middle">'
            f"{at * 1e3:.0f} ms</text>"
        )


def _top(stage: int) -> int:
    return TOP + stage * (LANE + GAP)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
