"""`outrider profile`: its options; measuring is `outrider.cli.profile.measure`'s and `split`'s."""

from pathlib import Path

import typer

from outrider.cli.commands import options


def profile(
    file: options.File,
    quick: options.Quick = False,
    plot: options.Plot = None,
    json: options.Json = False,
    gpus: options.SplitGpus = None,
    ranks: options.SplitRanks = None,
    table: options.SplitTable = None,
    write: options.SplitService = None,
) -> None:
    """Measure passes on this machine, and recommend a placement of the draft.

    Runs the service in each placement for some seconds and times it; `draft.placement: Auto` then
    uses the result. With --gpus or --ranks it times passes of target and draft with each number
    of devices instead, and recommends how to share them out, as SwiftSpec does.

    Examples:

    ```
    outrider profile -f examples/smollm2.yaml
    outrider profile -f examples/smollm2.yaml --quick
    outrider profile -f examples/smollm2.yaml --quick --plot costs.png
    outrider profile -f examples/smollm2.yaml --json > costs.json
    outrider profile -f examples/llama-70b.yaml --gpus 8 --write split.yaml
    outrider profile -f examples/llama-70b.yaml --gpus 8 --table h100.json
    ```
    """
    if gpus is not None or ranks is not None:
        _split(file, gpus, ranks, table, write, json)
        return
    for name, given in (("--table", table), ("--write", write)):
        if given is not None:
            raise typer.BadParameter(f"{name} needs --gpus or --ranks.")
    from outrider.cli.profile import measure as profiling
    from outrider.cli.terminal import interrupts
    from outrider.cli.terminal.plotting import ensure_possible
    from outrider.cli.terminal.progress import reporter
    from outrider.cli.terminal.text import print_json
    from outrider.cli.workers.supervisor import StartOptions
    from outrider.operator.plan import PlanOptions

    if plot is not None:
        ensure_possible(plot)
    start = StartOptions(PlanOptions(), reporter())
    measured = interrupts.run(profiling.profile(file, start, quick=quick))
    if plot is not None:
        profiling.plot(measured, plot)
    if json:
        print_json(measured)
    else:
        profiling.show(measured)


def _split(
    file: Path,
    gpus: int | None,
    ranks: int | None,
    table: Path | None,
    write: Path | None,
    json: bool,
) -> None:
    if gpus is not None and ranks is not None:
        raise typer.BadParameter("--gpus and --ranks do not go together.")
    from outrider.cli.profile import split as splitting
    from outrider.cli.profile import split_table
    from outrider.cli.profile.split_service import write_service
    from outrider.cli.terminal import interrupts
    from outrider.cli.terminal.progress import reporter
    from outrider.cli.terminal.text import print_json
    from outrider.cli.workers.supervisor import StartOptions
    from outrider.operator.plan import PlanOptions

    start = StartOptions(PlanOptions(), reporter())
    devices = splitting.Devices(gpus or ranks or 0, on_gpu=gpus is not None)
    if table is None:
        devices.check_here()
    found = interrupts.run(splitting.split(file, devices, start, table))
    if write is not None:
        write_service(file, found, write)
    if json:
        print_json(found)
    else:
        split_table.show(found)
