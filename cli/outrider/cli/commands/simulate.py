"""`outrider simulate`: its options; the work is `outrider.cli.lab.simulate`'s."""

from outrider.cli.commands import options


def simulate(
    file: options.SimulationFile,
    seed: options.SimulationSeed = None,
    plot: options.SimulationPlot = None,
    json: options.Json = False,
) -> None:
    """Simulate a service in virtual time, with the real schedulers, KV accounting and operator.

    The time of each pass comes from step costs, which `outrider profile` measures; requests come
    from a trace, or are generated. The same seed gives the same figures.

    Examples:

    ```
    outrider simulate examples/simulate/llama-70b.yaml
    outrider simulate examples/simulate/fleet.yaml --plot fleet.png
    outrider simulate examples/simulate/llama-70b.yaml --json > figures.json
    ```
    """
    from outrider.cli.lab import simulate as simulating
    from outrider.cli.lab import simulation_plot
    from outrider.cli.terminal import interrupts
    from outrider.cli.terminal.plotting import ensure_possible
    from outrider.cli.terminal.text import print_json

    if plot is not None:
        ensure_possible(plot)
    found = interrupts.run(simulating.simulate(file, seed))
    if plot is not None:
        simulation_plot.plot(found, plot)
    if json:
        print_json(found)
    else:
        simulating.show(found)
