"""The options of `outrider bench serve`: their types, limits and help."""

from pathlib import Path
from typing import Annotated

from typer import Option

from outrider.cli.load.arrivals import Arrivals
from outrider.cli.load.workload import LAST_SEED, PAIRS

LOAD, WORK, CHECKS, OUTPUT = "Load", "Requests", "Checks", "Output"

Url = Annotated[
    str, Option(metavar="URL", help="Base of an OpenAI-compatible API; usually ends in /v1.")
]
Model = Annotated[
    str | None, Option(metavar="NAME", help="Model to ask. [default: the only one served]")
]
Arriving = Annotated[
    Arrivals | None,
    Option("--arrivals", help="How --rate is spread. [default: poisson]", rich_help_panel=LOAD),
]
Rate = Annotated[
    float | None,
    Option(
        metavar="R",
        help="Requests per second, sent whether or not earlier ones are answered.",
        rich_help_panel=LOAD,
    ),
]
BurstSize = Annotated[
    int | None,
    Option(
        metavar="N",
        min=1,
        help="Requests sent at once with --arrivals burst. [default: 8]",
        rich_help_panel=LOAD,
    ),
]
Concurrency = Annotated[
    int | None,
    Option(
        metavar="N",
        min=1,
        help="Instead of --rate: keep N requests running, each sent when one ends.",
        rich_help_panel=LOAD,
    ),
]
Requests = Annotated[
    int | None,
    Option(
        metavar="N",
        min=1,
        help="Send so many. [default: 100, without --seconds]",
        rich_help_panel=LOAD,
    ),
]
Seconds = Annotated[
    float | None,
    Option(metavar="S", help="Send for so long, then read the rest.", rich_help_panel=LOAD),
]
CancelShare = Annotated[
    float,
    Option(
        metavar="X",
        min=0,
        max=1,
        help="Share of requests that are given up at a random point of their stream.",
        rich_help_panel=LOAD,
    ),
]
Retry = Annotated[
    int,
    Option(
        metavar="N",
        min=0,
        help="Tries after a 429, each after the Retry-After that it names.",
        rich_help_panel=LOAD,
    ),
]
Timeout = Annotated[
    float,
    Option(metavar="S", help="A request that takes longer has failed.", rich_help_panel=LOAD),
]
LoadSeed = Annotated[
    int,
    Option(
        metavar="N",
        min=0,
        max=LAST_SEED,
        help="Same seed, same arrivals, prompts, lengths and cancellations.",
        rich_help_panel=LOAD,
    ),
]
PromptFile = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help='Own prompts: a JSON list, or JSON lines, of texts, {"prompt": …} or '
        '{"messages": […]}; max_tokens may stand beside. [default: bundled ones]',
        rich_help_panel=WORK,
    ),
]
InputTokens = Annotated[
    int | None,
    Option(
        metavar="N",
        min=1,
        help="Length of every prompt, about. [default: sampled like ShareGPT's]",
        rich_help_panel=WORK,
    ),
]
OutputTokens = Annotated[
    int | None,
    Option(
        metavar="N",
        min=1,
        help="Most tokens of every answer. [default: sampled like ShareGPT's]",
        rich_help_panel=WORK,
    ),
]
LongestPrompt = Annotated[
    int,
    Option(
        "--max-input-tokens",
        metavar="N",
        min=1,
        help="Cap of prompt lengths.",
        rich_help_panel=WORK,
    ),
]
LongestAnswer = Annotated[
    int,
    Option("--max-tokens", metavar="N", min=1, help="Cap of answer lengths.", rich_help_panel=WORK),
]
Temperature = Annotated[
    float | None,
    Option(
        "--temperature",
        metavar="X",
        min=0,
        max=100,
        help="Of every request. [default: 0]",
        rich_help_panel=WORK,
    ),
]
IgnoreEos = Annotated[
    bool,
    Option(
        "--ignore-eos",
        help="Ask for answers of full length; only some endpoints can.",
        rich_help_panel=WORK,
    ),
]
ChunkUsage = Annotated[
    bool,
    Option(
        "--chunk-usage",
        help="Ask for usage in every chunk, for exact inter-token latencies; only some endpoints "
        "can (vLLM's continuous_usage_stats).",
        rich_help_panel=WORK,
    ),
]
Slo = Annotated[
    str | None,
    Option(
        metavar="NAME=S,…",
        help="Also count the requests that met these: ttft, itl (99th percentile within the "
        "answer), tpot (mean), latency; in seconds.",
        rich_help_panel=CHECKS,
    ),
]
CheckText = Annotated[
    bool,
    Option(
        "--check-text",
        help=f"Ask {PAIRS} (prompt, seed) pairs over and over, every second request; status 1 if "
        "two answers to one differ.",
        rich_help_panel=CHECKS,
    ),
]
CheckPairs = Annotated[
    int | None,
    Option(
        metavar="N",
        min=1,
        help="As --check-text, with so many pairs: few where requests are few.",
        rich_help_panel=CHECKS,
    ),
]
WatchRss = Annotated[
    list[int] | None,
    Option(
        metavar="PID",
        min=1,
        help="Report how much this process's memory grew; may be repeated. Linux only.",
        rich_help_panel=CHECKS,
    ),
]
Out = Annotated[
    Path | None,
    Option(
        metavar="FILE.json",
        help="Write command, machine, date and figures.",
        rich_help_panel=OUTPUT,
    ),
]
Plot = Annotated[
    Path | None,
    Option(
        metavar="FILE.png",
        help="Plot latencies and throughput; needs the extra bench.",
        rich_help_panel=OUTPUT,
    ),
]
AsJson = Annotated[
    bool, Option("--json", help="Print one JSON object on stdout.", rich_help_panel=OUTPUT)
]
