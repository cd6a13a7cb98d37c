"""`outrider bench serve`: its options; the load is `outrider.cli.load`'s, imported when wanted."""

import shlex
import sys

import typer

from outrider.cli.load import options as opt
from outrider.cli.options import KeyVariable, TlsRoots
from outrider.contract import process

REQUESTS = 100

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
    check_pairs: opt.CheckPairs = None,
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
    from outrider.cli import interrupts
    from outrider.cli.load import checks, memory
    from outrider.cli.load.drive import Extent
    from outrider.cli.load.endpoint import endpoint
    from outrider.cli.load.exchange import Manner
    from outrider.cli.load.lengths import Lengths
    from outrider.cli.load.session import Measurement, Session
    from outrider.cli.load.workload import PAIRS, LoadWorkload

    checks.above_zero("--rate", rate)
    checks.above_zero("--seconds", seconds)
    checks.above_zero("--timeout", timeout)
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
            source=checks.source(prompts, input_tokens),
            lengths=Lengths(
                prompt=input_tokens,
                answer=output_tokens,
                longest_prompt=max_input_tokens,
                longest_answer=max_tokens,
            ),
            temperature=temperature,
            cancel_share=cancel_share,
            checked_pairs=check_pairs or (PAIRS if check_text else 0),
        ),
        pace=checks.pace(arrivals, rate, burst_size, concurrency),
        extent=Extent(
            requests=REQUESTS if requests is None and seconds is None else requests,
            seconds=seconds,
        ),
        seed=seed,
    )
    measurement = Measurement(
        command=shlex.join(["outrider", *sys.argv[1:]]),
        wanted=checks.objectives(slo),
        memory=memory.watch(watch_rss or []),
        out=checks.writable("--out", out),
        plot=checks.plot_path(plot),
        as_json=json,
    )
    interrupts.run(session.run(measurement))
    checks.verdict(measurement)
