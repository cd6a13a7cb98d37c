"""Titles of the plots in bench/results/: `python -m bench.record.pictures`.

What is shown, on which machine, with which instruction sets and when stands in a band above each
plot, written from the report beside it, so that a picture that is shown elsewhere still says it. A
title that is there already is replaced. Benchmarks call `put_title` after plotting.
"""

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.record.provenance import SIMULATED, on
from bench.record.report import RESULTS

MODELS = "SmolLM2-135M and the demo's draft"
PAIR = f"{MODELS}, int8"
CAPTIONS = {
    "flowspec": "A pipelined target beside other ways, above as in FlowSpec's paper, below by "
    "stages and links",
    "nightjar": "Planners under Nightjar's loads, the paper's three pairs",
    "nightjar_real": f"Planners by requests at once, {MODELS}, dtype auto",
    "pairs": "Qwen2.5-Coder 1.5B with its 0.5B, SmolLM2-135M and a distilled layer as drafts, new "
    "code: measured (dots) and expected without the text as a source",
    "peers": "SmolLM2-135M and its draft in other engines, each in the numeric type that it takes",
    "proportion": f"{PAIR}, and targets of more layers. Two processors",
    "soak": "Memory of each process under load",
    "sources": f"{MODELS}, dtype auto: sources of draft tokens by kind of prompt, Colocated",
    "sources_staged": "SmolLM2-135M over two stages, a process of one thread each, dtype auto: the "
    "text as a source of draft tokens, by kind of prompt",
    "speculation": f"{PAIR}. Colocated with two threads, Separate with one "
    "each, plain 2: plain decoding with two threads, pinned: of an earlier commit, ceiling: by "
    "step costs alone",
    "swiftspec": f"{PAIR}: SwiftSpec taken apart, by the delay of the link. Dotted: what is "
    "claimed of mirrored and lock step",
    "swiftspec_8": f"{PAIR}, the target of eight times the depth: SwiftSpec taken apart, by the "
    "delay of the link. Dotted: what is claimed of mirrored and lock step",
}
TITLE, BAND = "Title", "Outrider-Band"
"""Keys of a picture's own text: its title, and the height of the band that holds it, in pixels."""


def main() -> None:
    """Write the titles of all plots that have a report."""
    for report in titled_reports():
        put_title(report)


def titled_reports(folder: Path = RESULTS) -> list[Path]:
    """Reports with a plot beside them, and a caption for it."""
    return [
        path
        for path in sorted(folder.glob("*.json"))
        if path.stem in CAPTIONS and path.with_suffix(".png").exists()
    ]


def title(name: str, report: Mapping[str, Any]) -> str:
    """Caption, and what the figures are of; a report of another name is called by that name."""
    caption, date = CAPTIONS.get(name, name), report["date"][:10]
    if name in SIMULATED:
        return f"{caption}. Simulated, {date}"
    return f"{caption}. {on(report['machine'])}, {date}"


def put_title(report: Path) -> None:
    """Put the title of a report's plot above it."""
    from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

    words = title(report.stem, json.loads(report.read_text(encoding="utf-8")))
    path = report.with_suffix(".png")
    with Image.open(path) as image:
        above = int(image.text.get(BAND, 0))
        plot = image.convert("RGB").crop((0, above, image.width, image.height))
    size = max(11, plot.width // 75)
    font = ImageFont.truetype(str(font_file()), size)
    letters = int(plot.width * 0.97 / font.getlength("n" * 20) * 21)
    lines = textwrap.wrap(words, letters)
    band = round(size * (1.3 * len(lines) + 0.8))
    done = Image.new("RGB", (plot.width, plot.height + band), "white")
    done.paste(plot, (0, band))
    drawing = ImageDraw.Draw(done)
    drawing.multiline_text((size, size // 2), "\n".join(lines), "black", font, spacing=size // 4)
    facts = PngImagePlugin.PngInfo()
    facts.add_text(TITLE, words)
    facts.add_text(BAND, str(band))
    done.save(path, pnginfo=facts, optimize=True)


def font_file() -> Path:
    """The font that matplotlib brings."""
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"


if __name__ == "__main__":
    main()
