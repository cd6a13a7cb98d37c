"""The options that commands share: their types, limits and help.

Limits here only save the user a start-up; the target checks every request again.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from outrider.contract.addresses import allowed_host_problem, is_address
from outrider.contract.settings import (
    MAX_CONTEXT,
    MAX_RUNNING,
    MAX_THREADS,
    MIN_CONTEXT,
    Dtype,
)

if TYPE_CHECKING:
    from outrider.client import Sampling

LAST_SEED = 2**64 - 1
MAX_TEMPERATURE = 100
SAMPLING: dict[str, Callable[[str], float]] = {
    **{"top_p": float, "top_k": int, "min_p": float},
    **{"frequency_penalty": float, "presence_penalty": float, "repetition_penalty": float},
}
"""Names and types of the params of --sampling; their limits are the target's to keep."""
MODEL, SPEED, NETWORK = "Model", "Speed", "Network"
"""Panels of options in help."""
DTYPES = " or ".join((", ".join([*Dtype][:-1]), [*Dtype][-1]))
LAST_PORT = 65535
LAST_SIMULATION_SEED = 2**63 - 1
MAX_DEVICES = 64


def silence_grpc() -> None:
    """Keep gRPC's library from printing lines on stderr whose words its errors have, too.

    Without effect once it is imported.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def absolute(file: Path | None) -> str | None:
    """Return a path as workers take it, which run elsewhere."""
    return None if file is None else str(file.absolute())


def option(*names: str, **settings: Any) -> Any:
    """An option; help leaves out its environment variable, whose name follows a rule."""
    return Option(*names, show_envvar=False, **settings)


def flag(*names: str, **settings: Any) -> Any:
    """An option without a value."""
    return option(*names, metavar="", **settings)


def number(
    metavar: str, low: int, high: int, words: str, *names: str, above: bool = False, panel: str = ""
) -> Any:
    """An option for numbers from `low` to `high`, or `above` low; help and refusals say so.

    `names` are its names, if they are not its parameter's.
    """
    limits = f"{'above ' if above else ''}{low} to {high}"
    check = _within(low, high, limits, above)
    words = f"{words} [{limits}]"
    return option(
        *names, metavar=metavar, callback=check, help=words, rich_help_panel=panel or None
    )


def _within(
    low: int, high: int, limits: str, above: bool
) -> Callable[[float | None], float | None]:
    def check(value: float | None) -> float | None:
        if value is None or (low <= value <= high and not (above and value == low)):
            return value
        raise BadParameter(f"{value} is not allowed; allowed: {limits}.")

    return check


File = Annotated[Path, option("-f", "--file", metavar="FILE", help="YAML of the service.")]
Prompts = Annotated[
    list[str] | None,
    option(
        metavar="TEXT",
        help="Answer this prompt and exit; - reads standard input. May be repeated. Without it, "
        "serve.",
    ),
]
MaxTokens = Annotated[
    int | None,
    number("N", 1, MAX_CONTEXT, "Maximum number of tokens of each answer. [default: 256]"),
]
Temperature = Annotated[
    float | None,
    number(
        "X",
        0,
        MAX_TEMPERATURE,
        "Sampling temperature; 0 always takes the likeliest token. [default: 0]",
    ),
]
SamplingParams = Annotated[
    str | None,
    option(
        "--sampling",
        metavar="NAME=X,…",
        help="Further sampling params, such as top_p=0.9,top_k=40,min_p=0.05.",
    ),
]
Seed = Annotated[
    int | None,
    number("N", 0, LAST_SEED, "Random seed: the same seed gives the same text. [default: random]"),
]
Raw = Annotated[
    bool, flag("--raw", help="Skip the model's chat template; prompts may contain control tokens.")
]
Compare = Annotated[
    bool,
    flag(
        "--compare",
        help="Answer twice, with and without the draft, and show both. A service without a draft "
        "answers the second time without draft tokens from the text.",
    ),
]
Json = Annotated[bool, flag("--json", help="Print one JSON object on stdout.")]
DtypeOption = Annotated[
    Dtype | None,
    option(
        metavar="DTYPE", help=f"Numeric type of target and draft: {DTYPES}. [default: the YAML's]"
    ),
]
THREADS_HELP = (
    "Threads of the target. [default: the YAML's; or, with placement Auto, what is fastest]"
)
Quick = Annotated[
    bool, flag("--quick", help="Time passes alone, and predict from them; do not run the service.")
]
SplitGpus = Annotated[
    int | None,
    number(
        "N",
        2,
        MAX_DEVICES,
        "Recommend how to split this many GPUs between target and draft.",
        "--gpus",
    ),
]
SplitRanks = Annotated[
    int | None,
    number(
        *("N", 2, MAX_DEVICES),
        "Recommend the same for ranks of one thread on processors.",
        "--ranks",
    ),
]
SplitTable = Annotated[
    Path | None,
    option(
        "--table",
        metavar="FILE",
        help="Take step costs from this JSON, as --json prints them, instead of measuring.",
    ),
]
SplitService = Annotated[
    Path | None,
    option("--write", metavar="FILE", help="Write the service with the recommended split."),
]
Threads = Annotated[int | None, number("N", 1, MAX_THREADS, THREADS_HELP)]
HttpPort = Annotated[
    int | None,
    number(
        *("PORT", 0, LAST_PORT),
        "Port of the OpenAI-compatible API; 0 takes any free one. [default: 8000]",
        "--port",
        panel=NETWORK,
    ),
]
GrpcPort = Annotated[
    int | None,
    number(
        *("PORT", 0, LAST_PORT),
        "Port of the first target's gRPC API; 0 takes any free one, as further targets do. "
        "[default: 50051; any free one for `run` with prompts]",
        panel=NETWORK,
    ),
]
ApiKeys = Annotated[
    Path | None,
    option(
        "--api-keys",
        metavar="FILE",
        rich_help_panel=NETWORK,
        help="File of API keys, one per line; requests must send one. [default: no keys]",
    ),
]


def _hosts(names: list[str] | None) -> list[str] | None:
    for name in names or ():
        if problem := allowed_host_problem(name):
            raise BadParameter(f"{problem}.")
    return names


AllowHost = Annotated[
    list[str] | None,
    option(
        "--allow-host",
        metavar="NAME",
        callback=_hosts,
        rich_help_panel=NETWORK,
        help="Accept requests from web pages of this host or origin, such as app://obsidian.md, "
        "and, without API keys, requests for this host name, as behind a proxy. * accepts all. "
        "May be repeated. [default: localhost and IP addresses]",
    ),
]
TlsCert = Annotated[
    Path | None,
    option(
        "--tls-cert",
        metavar="FILE",
        rich_help_panel=NETWORK,
        help="PEM certificate; targets then accept TLS only.",
    ),
]
TlsKey = Annotated[
    Path | None,
    option(
        "--tls-key", metavar="FILE", rich_help_panel=NETWORK, help="PEM private key of --tls-cert."
    ),
]
KeyVariable = Annotated[
    str | None,
    option(
        "--api-key-env",
        metavar="VARIABLE",
        rich_help_panel=NETWORK,
        help="Environment variable with the API key.",
    ),
]
TlsRoots = Annotated[
    str | None,
    option(
        "--tls-ca",
        metavar="FILE|system",
        rich_help_panel=NETWORK,
        help="Use TLS, and trust the PEM certificates in this file, or the system's.",
    ),
]
TlsName = Annotated[
    str | None,
    option(
        "--tls-name",
        metavar="NAME",
        rich_help_panel=NETWORK,
        help="Host name in the server's certificate. [default: the address's]",
    ),
]
Plot = Annotated[
    Path | None,
    option("--plot", metavar="FILE", help="Plot the target's step costs as a .png, .svg or .pdf."),
]
SimulationFile = Annotated[
    Path, Argument(metavar="FILE", help="YAML of the simulation (docs/reference/simulation.md).")
]
SimulationSeed = Annotated[
    int | None,
    number(
        "N",
        0,
        LAST_SIMULATION_SEED,
        "Random seed: the same seed gives the same figures. [default: the YAML's]",
    ),
]
SimulationPlot = Annotated[
    Path | None,
    option("--plot", metavar="FILE", help="Plot load and decisions as a .png, .svg or .pdf."),
]


def _addresses(text: str) -> str:
    for one in text.split(","):
        if not is_address(one.strip()):
            raise BadParameter(f"{one.strip()!r} is not allowed; allowed: host:port.")
    return text


Address = Annotated[
    str,
    option(
        metavar="HOST:PORT",
        callback=_addresses,
        rich_help_panel=NETWORK,
        help="gRPC address of the target; separate several by commas.",
    ),
]
System = Annotated[
    str | None,
    option("--system", metavar="TEXT", help="System prompt."),
]
Stop = Annotated[
    list[str] | None,
    option("--stop", metavar="TEXT", help="End an answer before this text. May be repeated."),
]
Prediction = Annotated[
    Path | None,
    option(
        metavar="FILE",
        help="File whose text the answer will mostly repeat, such as the file that is edited; "
        "answers then come faster.",
    ),
]
NoDraft = Annotated[bool, flag("--no-draft", help="Answer without the draft.")]
RunNoDraft = Annotated[bool, flag("--no-draft", help="Start no draft.")]
Host = Annotated[
    str | None,
    option(
        "--host",
        metavar="ADDRESS",
        rich_help_panel=NETWORK,
        help="IP address that targets listen at, such as 0.0.0.0 for all. Other addresses than "
        "loopback need --api-keys, --tls-cert and --tls-key. [default: 127.0.0.1]",
    ),
]
ServedDraft = Annotated[
    str | None,
    option(
        "--draft",
        metavar="MODEL",
        rich_help_panel=MODEL,
        help="The draft, in the same forms. [default: none]",
    ),
]
BorrowEmbedding = Annotated[
    bool,
    flag(
        "--borrow-embedding",
        rich_help_panel=MODEL,
        help="The draft has no embedding of its own and uses the target's, as drafts made by "
        "`outrider distil` do. A draft in a local folder needs no such option.",
    ),
]
Context = Annotated[
    int | None,
    number(
        *("N", MIN_CONTEXT, MAX_CONTEXT),
        "Maximum number of tokens of prompt and answer. [default: the model's, at most 4096]",
        "--context",
        panel=MODEL,
    ),
]
MaxRunning = Annotated[
    int | None,
    number(
        *("N", 1, MAX_RUNNING),
        "Maximum number of requests that run at once; others wait. [default: 8]",
        panel=SPEED,
    ),
]
ServeThreads = Annotated[
    int | None,
    number(
        *("N", 1, MAX_THREADS),
        "Threads of the target. [default: with a draft, the fastest number; without, all "
        "processors, or on a Mac the performance cores]",
        panel=SPEED,
    ),
]
ServeDtype = Annotated[
    Dtype | None,
    option(
        "--dtype",
        metavar="DTYPE",
        rich_help_panel=MODEL,
        help=f"Numeric type of both models: {DTYPES}. [default: auto]",
    ),
]
PlacementOption = Annotated[
    str | None,
    option(
        "--placement",
        metavar="PLACE",
        rich_help_panel=SPEED,
        help="Placement of the draft: Auto, Separate or Colocated. [default: Auto, the fastest on "
        "this machine]",
    ),
]
PrintYaml = Annotated[
    bool, flag("--print-yaml", help="Print the YAML of the service instead of serving it.")
]
TurnTokens = Annotated[
    int | None,
    number(
        *("N", 1, MAX_CONTEXT),
        "Maximum number of tokens of each answer. [default: the room left in the context]",
        "--max-tokens",
    ),
]
NoPage = Annotated[
    bool,
    flag(
        "--no-page",
        rich_help_panel=NETWORK,
        help="Do not serve the chat page at /.",
    ),
]


def sampling_of(temperature: float | None, seed: int | None, others: str | None) -> "Sampling":
    """Return the sampling params of each request; None leaves the target's default.

    Raises `BadParameter` for names and values in `others` that cannot be such params.
    """
    from outrider.client import Sampling

    given: dict[str, Any] = {"temperature": temperature, "seed": seed}
    for pair in others.split(",") if others else ():
        name, _, value = (part.strip() for part in pair.partition("="))
        kind = SAMPLING.get(name)
        if kind is None:
            raise BadParameter(f"--sampling {name}: unknown; allowed: {', '.join(SAMPLING)}.")
        try:
            given[name] = kind(value)
        except ValueError:
            raise BadParameter(f"--sampling {name}: {value!r} is not a number.") from None
    return Sampling(**given)
