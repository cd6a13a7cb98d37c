"""`outrider distil`: starts the distillation as a process, and shows what came out.

It runs the workers' engine and torch, which this command line does not import.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from outrider.cli.failures import Failure
from outrider.cli.terminal.plotting import PACKAGE, is_possible
from outrider.cli.terminal.progress import reporter
from outrider.cli.terminal.tables import figures
from outrider.cli.workers.output import result_of
from outrider.contract.version import missing_extra

NAME = "distil"
DISTILLATION = (sys.executable, "-P", "-m", "outrider.distil")
INSTALL = missing_extra(NAME)


async def distil(recipe: Path) -> tuple[dict[str, Any], str]:
    """Return the report of a distillation and its folder; raises `BadInput` for a recipe that
    cannot work."""
    if not is_possible():
        raise Failure(f"No module named {PACKAGE!r}; {INSTALL}")
    command = (*DISTILLATION, str(recipe))
    found = await result_of("the distillation", command, INSTALL, reporter(), NAME)
    return found["result"], found["out"]


def show(found: Mapping[str, Any], folder: str) -> None:
    """Print what came out: of answers alone, or of a draft."""
    console = Console()
    if "draft" not in found:
        line = f"{found['tokens']:,} tokens in {found['chats']:,} chats: {found['answers']}"
        console.print(line, highlight=False, soft_wrap=True)
        return
    console.print(figures(lines(found)))
    console.print(f"outrider run -f {folder}/service.yaml", highlight=False, soft_wrap=True)


def lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a line for each figure."""
    held_out, words = found["held_out"], found["vocabulary"]
    trees = held_out["tokens_per_pass"]
    return [
        ("tokens that the target wrote", f"{found['data']['tokens']:,}"),
        ("size", f"{found['draft']['bytes'] / 1e6:.1f} MB"),
        ("outputs", f"{words['outputs']:,}"),
        ("answers that they cover", f"{words['coverage']:.1%}"),
        ("top-1 on answers held out", f"{held_out['top']['1']:.3f}"),
        *((f"tokens per pass, {nodes} nodes", f"{mean:.2f}") for nodes, mean in trees.items()),
    ]
