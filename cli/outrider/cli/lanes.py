"""Lanes over time, as a picture: what each stage or model computed when, and what came of it.

FlowSpec's figure, from timestamps; needs matplotlib, which is not among the command line's own
requirements. Spans are plain data. Leaves taking the timestamps to those who have a clock.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

WIDTH, LANE_HEIGHT, AROUND = 12.0, 0.6, 1.7
"""Inches: of the picture, of each lane, of all that is above and below the lanes."""
BOX = 0.8
"""Height of a box, over that of its lane."""
FULL = 0.014
"""Share of the whole time from which on a box has room for the number of its rows."""
NARROW = 0.003
"""Share of the whole time below which a white edge would hide a box."""


class Span(NamedTuple):
    """One segment in one stage, or one pass of a model."""

    stage: int
    """Counted from 0: its lane, from the top."""
    segment: int
    begin: float
    """Seconds, by a clock that all stages share."""
    end: float
    rows: int
    sequence: int = -1
    """The first row's; -1: not known."""
    lane: str = ""
    """Name of its lane; empty: that of the stage."""
    prompt_rows: int = 0
    committed_rows: int = 0
    """Roots and nodes that were committed."""
    pruned_rows: int = 0

    @property
    def other_rows(self) -> int:
        """Rows of which it is not known what became."""
        return max(0, self.rows - self.prompt_rows - self.committed_rows - self.pruned_rows)

    @property
    def name(self) -> str:
        """Name of its lane."""
        return self.lane or f"stage {self.stage}"


class Fate(NamedTuple):
    """What can become of rows, and how it is shown."""

    column: str
    """Of `Span`."""
    label: str
    colour: str


FATES = (
    Fate("committed_rows", "committed", "#3a9d6e"),
    Fate("prompt_rows", "prefill", "#5b8ec9"),
    Fate("other_rows", "drafted, or not decided yet", "#f0c75e"),
    Fate("pruned_rows", "pruned", "#d9825f"),
)
"""From the bottom of a box to its top."""


def draw(spans: Sequence[Span], title: str, path: Path) -> None:
    """Write a picture with a lane for each stage, in the format that the path's suffix names.

    A box is a span; its parts are the shares of its rows by what became of them. The title is no
    formula, whatever it holds. Raises `ValueError` where there are no spans, and `OSError`.
    """
    if not spans:
        raise ValueError("there are no spans to draw")
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text that can be searched
    from matplotlib import pyplot

    lanes = {span.stage: span.name for span in spans}
    height = AROUND + LANE_HEIGHT * len(lanes)
    figure, axis = pyplot.subplots(figsize=(WIDTH, height), layout="constrained")
    order = {stage: at for at, stage in enumerate(sorted(lanes))}
    _boxes(axis, spans, order)
    _rows(axis, spans, order)
    busy = [f"{busy_share(spans, stage):.0%}" for stage in order]
    _frame(axis, [lanes[stage] for stage in order], busy, extent(spans))
    if fates_known(spans):
        _legend(figure, spans)
    axis.set_title(title, fontsize="small", loc="left", parse_math=False)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def busy_share(spans: Sequence[Span], stage: int) -> float:
    """Return the share of the whole time for which a stage computed."""
    computed = sum(s.end - s.begin for s in spans if s.stage == stage)
    return computed / max(extent(spans), 1e-9)


def extent(spans: Sequence[Span]) -> float:
    """Return the seconds from the first beginning to the last end."""
    return max(s.end for s in spans) - min(s.begin for s in spans)


def shares(span: Span) -> list[tuple[Fate, float, float]]:
    """Return the parts of a span's box from the bottom: fate, where it begins, and its height."""
    counts = [getattr(span, fate.column) for fate in FATES]
    total = max(1, sum(counts))
    bottoms = itertools.accumulate(counts, initial=0)
    parts = zip(FATES, bottoms, counts, strict=False)
    return [(fate, bottom / total, count / total) for fate, bottom, count in parts if count]


def fates_known(spans: Sequence[Span]) -> bool:
    """True if it is said of any row what became of it; else colours tell segments apart."""
    return any(span.other_rows < span.rows for span in spans)


def _boxes(axis: Any, spans: Sequence[Span], order: Mapping[int, int]) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    first = min(s.begin for s in spans)
    known = fates_known(spans)
    found: dict[tuple[str, str], list[Rectangle]] = {}
    narrow = NARROW * extent(spans)
    for span in spans:
        left, width, middle = span.begin - first, span.end - span.begin, order[span.stage]
        for fate, bottom, height in shares(span):
            corner = (1e3 * left, middle + BOX / 2 - BOX * (bottom + height))
            colour = fate.colour if known else f"C{span.segment % 10}"
            edge = colour if width < narrow else "white"
            patch = Rectangle(corner, 1e3 * width, BOX * height)
            found.setdefault((colour, edge), []).append(patch)
    for (colour, edge), patches in found.items():
        axis.add_collection(
            PatchCollection(patches, facecolor=colour, edgecolor=edge, linewidth=0.4)
        )


def _rows(axis: Any, spans: Sequence[Span], order: Mapping[int, int]) -> None:
    """Write the number of rows where there is room for it."""
    first, room = min(s.begin for s in spans), FULL * extent(spans)
    for span in spans:
        if span.end - span.begin > room:
            middle = 1e3 * ((span.begin + span.end) / 2 - first)
            words = {"ha": "center", "va": "center", "fontsize": 7}
            axis.text(middle, order[span.stage], str(span.rows), **words)


def _frame(axis: Any, names: Sequence[str], busy: Sequence[str], seconds: float) -> None:
    """Draw the names and busy shares of lanes, and time."""
    axis.set(xlim=(0, 1e3 * seconds), ylim=(len(names) - 0.5, -0.5), xlabel="milliseconds")
    axis.set_yticks(range(len(names)), names, parse_math=False)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
    for at, share in enumerate(busy):
        axis.text(1.01, at, f"busy {share}", va="center", transform=axis.get_yaxis_transform())


def _legend(figure: Any, spans: Sequence[Span]) -> None:
    """Say what the colours mean that are there."""
    from matplotlib.patches import Patch

    seen = {fate for span in spans for fate, _, _ in shares(span)}
    handles = [Patch(color=fate.colour, label=fate.label) for fate in FATES if fate in seen]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(FATES), frameon=False)
