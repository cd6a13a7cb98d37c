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
    """Train a draft for a target: some of its layers learn to predict its answers to prompts.

    The recipe names the target, the folder of the draft and the settings. It takes hours on a
    CPU. If it is interrupted, the same command continues. The folder then holds a draft that
    `outrider run` serves, the YAML of a service, a report and a model card.

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
