"""Tables of `outrider profile --gpus N`: costs of passes by degree, splits, the one to take."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from outrider.cli.profile.split_choice import name_of
from outrider.cli.profile.step_costs import passes
from outrider.cli.terminal.tables import columns
from outrider.contract.settings import Role


def render(found: Mapping[str, Any]) -> Group:
    """Return the tables, and the split to take."""
    words = "measured" if found["acceptance_is_measured"] else "assumed"
    devices = f"{found['devices']} {'GPUs' if found['kind'] == 'gpus' else 'ranks'}"
    best = found["recommended"]
    return Group(
        *(
            passes(f"{role}: milliseconds of a pass, by ranks", found["costs"][role], str)
            for role in (Role.TARGET, Role.DRAFT)
        ),
        splits(devices, found["splits"], best),
        Text(f"recommended: {name_of(best['target'], best['draft'])} of {devices}", style="bold"),
        Text(
            f"  the draft's first token is accepted in {found['acceptance']:.0%} ({words}); "
            f"trees {best['width']} wide",
            style="dim",
        ),
    )


def splits(devices: str, found: list[dict[str, Any]], best: Mapping[str, Any]) -> Table:
    """Return every split, the fastest first."""
    names = ["target + draft", "verify pass", "draft pass", "rows", "depth", "tokens/s"]
    table = columns(f"{devices}: every split", names)
    for one in found:
        table.add_row(*_cells(one), style="bold" if one == best else "")
    return table


def show(found: Mapping[str, Any]) -> None:
    """Print the tables on stdout."""
    Console().print(render(found))


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    drafted = bool(one["draft"])
    return (
        name_of(one["target"], one["draft"]),
        f"{1e3 * one['target_seconds']:.2f} ms",
        f"{1e3 * one['draft_seconds']:.2f} ms" if drafted else "-",
        str(one["rows"]) if drafted else "-",
        str(one["depth"]) if drafted else "-",
        f"{one['tokens_per_second']:.1f}",
    )
