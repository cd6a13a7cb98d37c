"""`outrider distil`: its options; the work is `outrider.cli.lab.distil`'s."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from outrider.cli.commands.options import Json


def distil(
    recipe: Annotated[
        Path,
        Argument(metavar="RECIPE", help="YAML of the recipe (docs/reference/distillation.md)."),
    ],
    json: Json = False,
) -> None:
    """Make a draft for a target: it answers prompts, and some of its layers learn to guess them.

    The recipe names the target, the draft's folder, and what else matters. Takes hours on a CPU.
    Ended at any point, the same command goes on where it was. The folder is a draft that `outrider
    run` serves, with a service, a report and a card.

    Examples:

    ```
    outrider distil draft.yaml
    outrider distil draft.yaml --json > report.json
    ```
    """
    from outrider.cli.lab import distil as distilling
    from outrider.cli.terminal import interrupts
    from outrider.cli.terminal.text import print_json

    found, folder = interrupts.run(distilling.distil(recipe))
    if json:
        print_json(found)
    else:
        distilling.show(found, folder)
