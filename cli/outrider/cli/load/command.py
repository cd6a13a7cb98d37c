"""`outrider bench`: turns options into a load, and checks them before anything is sent.

The run itself is `session`'s.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from outrider.cli import interrupts
from outrider.cli.failures import BadInput, Failure
from outrider.cli.load import memory, prompts, slo
from outrider.cli.load import options as opt
from outrider.cli.load.arrivals import Arrivals
from outrider.cli.load.drive import Extent
from outrider.cli.load.endpoint import endpoint
from outrider.cli.load.exchange import Manner
from outrider.cli.load.lengths import Lengths
from outrider.cli.load.prompts import BundledPrompt, Conversation
from outrider.cli.load.session import Measurement, Pace, Session
from outrider.cli.load.workload import LoadWorkload
from outrider.cli.options import KeyVariable, TlsRoots
from outrider.cli.plotting import ensure_possible
from outrider.contract import process

REQUESTS = 100
BURST = 8

bench = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


@bench.callback()
def benches() -> None:
    """Measure a running service."""


@bench.command()
def serve(
    url: opt.Url = f"http://127.0.0.1:{process.HTTP_PORT}/v1",
    model: opt.Model = None,
    api_key_env: KeyVariable = None,
    tls_ca: TlsRoots = None,
    arrivals: opt.Arriving = None,
    rate: opt.Rate = None,
    burst_size: opt.BurstSize = None,
    concurrency: opt.Concurrency = None,
    requests: opt.Requests = None,
    seconds: opt.Seconds = None,
    cancel_share: opt.CancelShare = 0.0,
    retry: opt.Retry = 0,
    timeout: opt.Timeout = 600.0,
    seed: opt.LoadSeed = 0,
    prompts: opt.PromptFile = None,
    input_tokens: opt.InputTokens = None,
    output_tokens: opt.OutputTokens = None,
    max_input_tokens: opt.LongestPrompt = 1024,
    max_tokens: opt.LongestAnswer = 1024,
    temperature: opt.Temperature = None,
    ignore_eos: opt.IgnoreEos = False,
    chunk_usage: opt.ChunkUsage = False,
    slo: opt.Slo = None,
    check_text: opt.CheckText = False,
    watch_rss: opt.WatchRss = None,
    out: opt.Out = None,
    plot: opt.Plot = None,
    json: opt.AsJson = False,
) -> None:
    """Load any OpenAI-compatible endpoint with streamed chats, and report throughput and latencies.

    Prompts and lengths are sampled from a mix like ShareGPT's, the same ones for the same `--seed`.
    Ctrl-C ends a run early and still reports what was measured.

    Examples:

    ```
    outrider bench serve --concurrency 8 --requests 200
    outrider bench serve --rate 4 --seconds 60 --slo ttft=0.5,itl=0.05 --out run.json --plot run.png
    outrider bench serve --url http://10.0.0.7:8000/v1 --model my-model --api-key-env KEY --rate 2
    outrider bench serve --arrivals burst --burst-size 32 --rate 4 --cancel-share 0.1 --retry 3
    outrider bench serve --rate 4 --seconds 600 --cancel-share 0.2 --check-text --watch-rss 4711
    ```
    """
    _above_zero("--rate", rate)
    _above_zero("--seconds", seconds)
    _above_zero("--timeout", timeout)
    session = Session(
        place=endpoint(url, api_key_env, tls_ca),
        model=model,
        manner=Manner(
            model=model or "",
            ignore_eos=ignore_eos,
            chunk_usage=chunk_usage,
            retries=retry,
            timeout=timeout,
        ),
        workload=LoadWorkload(
            source=_source(prompts, input_tokens),
            lengths=Lengths(
                prompt=input_tokens,
                answer=output_tokens,
                longest_prompt=max_input_tokens,
                longest_answer=max_tokens,
            ),
            temperature=temperature,
            cancel_share=cancel_share,
            check_text=check_text,
        ),
        pace=_pace(arrivals, rate, burst_size, concurrency),
        extent=Extent(
            requests=REQUESTS if requests is None and seconds is None else requests,
            seconds=seconds,
        ),
        seed=seed,
    )
    measurement = Measurement(
        command=shlex.join(["outrider", *sys.argv[1:]]),
        wanted=_objectives(slo),
        memory=memory.watch(watch_rss or []),
        out=_writable("--out", out),
        plot=_plot(plot),
        as_json=json,
    )
    interrupts.run(session.run(measurement))
    _verdict(measurement)


def _above_zero(option: str, value: float | None) -> None:
    if value is not None and not 0 < value < float("inf"):
        raise BadInput(f"{option} {value:g} is not allowed; allowed: a number above 0")


def _pace(
    arrivals: Arrivals | None, rate: float | None, burst_size: int | None, concurrency: int | None
) -> Pace:
    """Return the pace of requests; raises `BadInput` where options leave it open or contradict."""
    if (rate is None) == (concurrency is None):
        both = "both" if rate is not None else "neither"
        raise BadInput(
            f"{both} of --rate and --concurrency given; allowed: --rate R for requests per second, "
            "or --concurrency N for as many at a time"
        )
    if rate is None and arrivals is not None:
        raise BadInput(f"--arrivals {arrivals} needs --rate; with --concurrency nothing arrives")
    if burst_size is not None and arrivals is not Arrivals.BURST:
        raise BadInput(f"--burst-size {burst_size} needs --arrivals burst")
    return Pace(
        arrivals=arrivals or Arrivals.POISSON,
        rate=rate,
        burst_size=burst_size or BURST,
        concurrency=concurrency,
    )


def _source(
    file: Path | None, input_tokens: int | None
) -> Sequence[BundledPrompt] | Sequence[Conversation]:
    if file is None:
        return prompts.bundled()
    if input_tokens is not None:
        raise BadInput(f"--input-tokens {input_tokens} is not allowed with --prompts")
    return prompts.read(file)


def _objectives(words: str | None) -> list[slo.Objective]:
    return slo.objectives(words) if words else []


def _plot(path: Path | None) -> Path | None:
    if path is not None:
        ensure_possible(path)
    return _writable("--plot", path)


def _writable(option: str, path: Path | None) -> Path | None:
    """The path, if a file can be written there; raises `BadInput`, before the run."""
    if path is None:
        return None
    folder = next(one for one in path.absolute().parents if one.exists())
    target = path if path.exists() else folder
    if path.is_dir() or not folder.is_dir() or not os.access(target, os.W_OK):
        raise BadInput(f"{option} {path}: cannot be written; allowed: a file in a writable folder")
    return path


def _verdict(measurement: Measurement) -> None:
    """Raise `Failure` for a run that cannot pass for a good one."""
    run = measurement.summary
    if run is None:
        return
    if run.texts is not None and run.texts.differences:
        raise Failure(f"--check-text: {len(run.texts.differences)} answers have a wrong text")
    if not run.completed and (run.failed or run.rejected):
        why = next(iter(run.problems), f"{run.rejected} were rejected (HTTP 429)")
        raise Failure(f"no request completed: {why}")
