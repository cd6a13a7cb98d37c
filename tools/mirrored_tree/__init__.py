"""The mirrored tree as a sequence of pictures.

`example` drives both copies of a tree through a worked example, `drawing` draws its moments.
"""

from pathlib import Path

from tools.mirrored_tree.drawing import picture
from tools.mirrored_tree.example import moments

FOLDER = Path(__file__).parents[2] / "docs" / "concepts" / "mirrored-tree"


def pictures() -> dict[str, str]:
    """SVG of each moment by its file name."""
    return {f"{n}.svg": picture(n, moment) for n, moment in enumerate(moments(), 1)}
