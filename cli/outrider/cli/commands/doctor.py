"""`outrider doctor`: its options; looking and judging are `outrider.cli.doctor`'s."""

import typer

from outrider.cli.commands.options import Json


def doctor(json: Json = False) -> None:
    """Say whether this machine can run a service, and how: packages, processor, GPUs, disk, ports.

    Tests and times every numeric type of the processor, including those that `dtype: auto` does
    not choose. The first run compiles kernels, which takes minutes. The exit status is 1 if
    something prevents a run.

    Examples:

    ```
    outrider doctor
    outrider doctor --json
    ```
    """
    from rich.console import Console

    from outrider.cli.doctor.checks import Grade, as_json, judged, show
    from outrider.cli.doctor.findings import look
    from outrider.cli.failures import Failure
    from outrider.cli.machine.run_dir import told_cache
    from outrider.cli.terminal import interrupts
    from outrider.cli.terminal.progress import reporter
    from outrider.cli.terminal.text import print_json

    found = interrupts.run(look(told_cache(), reporter()))
    checks = judged(found)
    if json:
        print_json(as_json(checks, found))
    else:
        show(checks, Console())
    if any(one.grade is Grade.STOPS for one in checks):
        raise typer.Exit(Failure.status)
