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
        help="Answer this and exit; - is standard input. May be repeated; without it, serve.",
    ),
]
MaxTokens = Annotated[
    int | None, number("N", 1, MAX_CONTEXT, "Most tokens of each answer. [default: 256]")
]
Temperature = Annotated[
    float | None,
    number("X", 0, MAX_TEMPERATURE, "0 always takes the likeliest token. [default: 0]"),
]
SamplingParams = Annotated[
    str | None,
    option(
        "--sampling",
        metavar="NAME=X,…",
        help="Further sampling params, such as top_p=0.9,top_k=40,min_p=0.05.",
    ),
]
Seed = Annotated[int | None, number("N", 0, LAST_SEED, "Same seed, same text. [default: random]")]
Raw = Annotated[
    bool, flag("--raw", help="Skip the model's chat template; control tokens in prompts count.")
]
Compare = Annotated[
    bool,
    flag(
        "--compare",
        help="Answer again without the draft, or with it; show both. Without a draft, the other "
        "answers come without guesses from the text.",
    ),
]
Json = Annotated[bool, flag("--json", help="Print one JSON object on stdout.")]
DtypeOption = Annotated[
    Dtype | None,
    option(
        metavar="DTYPE", help=f"Numeric path of target and draft: {DTYPES}. [default: the YAML's]"
    ),
]
THREADS_HELP = (
    "Threads of the target. [default: the YAML's; or, with placement Auto, what is fastest]"
)
Quick = Annotated[
    bool, flag("--quick", help="Only passes, and what they promise; no runs of the service.")
]
SplitGpus = Annotated[
    int | None,
    number(
        "N", 2, MAX_DEVICES, "Say how to split so many GPUs between target and draft.", "--gpus"
    ),
]
SplitRanks = Annotated[
    int | None,
    number(
        *("N", 2, MAX_DEVICES),
        "The same for ranks on processors, of one thread each.",
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
        help="One key a line; requests must bring one. [default: anyone may ask]",
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
        help="Let web pages of this host or origin (app://obsidian.md) ask, too, and without API "
        "keys whoever asks by this host, such as a proxy; * is all. May be repeated. "
        "[default: localhost and IP addresses]",
    ),
]
TlsCert = Annotated[
    Path | None,
    option(
        "--tls-cert",
        metavar="FILE",
        rich_help_panel=NETWORK,
        help="PEM certificate; targets then speak TLS only.",
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
        help="Environment variable that holds the key.",
    ),
]
TlsRoots = Annotated[
    str | None,
    option(
        "--tls-ca",
        metavar="FILE|system",
        rich_help_panel=NETWORK,
        help="Speak TLS, and trust the PEM certificates of this file alone, or the system's.",
    ),
]
TlsName = Annotated[
    str | None,
    option(
        "--tls-name",
        metavar="NAME",
        rich_help_panel=NETWORK,
        help="Name in the certificate. [default: the address's]",
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
    number("N", 0, LAST_SIMULATION_SEED, "Same seed, same figures. [default: the YAML's]"),
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
        help="The target's gRPC address; several with commas between.",
    ),
]
System = Annotated[
    str | None,
    option("--system", metavar="TEXT", help="What the model is told before the conversation."),
]
Stop = Annotated[
    list[str] | None,
    option("--stop", metavar="TEXT", help="End an answer before this text; may be repeated."),
]
Prediction = Annotated[
    Path | None,
    option(
        metavar="FILE",
        help="Text that the answers should have, as when it is edited: they come sooner.",
    ),
]
NoDraft = Annotated[bool, flag("--no-draft", help="Answer by plain decoding.")]
RunNoDraft = Annotated[bool, flag("--no-draft", help="Start no draft: the target decodes plainly.")]
Host = Annotated[
    str | None,
    option(
        "--host",
        metavar="ADDRESS",
        rich_help_panel=NETWORK,
        help="IP address that targets listen at, such as 0.0.0.0 for all; beyond loopback they "
        "need --api-keys, --tls-cert and --tls-key. [default: 127.0.0.1]",
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
        help="The draft holds no embedding and borrows the target's, as those of `outrider distil` "
        "do; a folder on this machine says so itself.",
    ),
]
Context = Annotated[
    int | None,
    number(
        *("N", MIN_CONTEXT, MAX_CONTEXT),
        "Most tokens of prompt and answer together. [default: the model's, at most 4096]",
        "--context",
        panel=MODEL,
    ),
]
MaxRunning = Annotated[
    int | None,
    number(
        "N", 1, MAX_RUNNING, "Requests that run at once; others wait. [default: 8]", panel=SPEED
    ),
]
ServeThreads = Annotated[
    int | None,
    number(
        *("N", 1, MAX_THREADS),
        "Threads of the target. [default: with a draft what is fastest, else all processors, on a "
        "Mac its performance cores]",
        panel=SPEED,
    ),
]
ServeDtype = Annotated[
    Dtype | None,
    option(
        "--dtype",
        metavar="DTYPE",
        rich_help_panel=MODEL,
        help=f"Numeric path of both models: {DTYPES}. [default: auto]",
    ),
]
PlacementOption = Annotated[
    str | None,
    option(
        "--placement",
        metavar="PLACE",
        rich_help_panel=SPEED,
        help="Place of the draft: Auto, Separate or Colocated. [default: Auto, the fastest here]",
    ),
]
PrintYaml = Annotated[
    bool, flag("--print-yaml", help="Print the YAML of the service instead of serving it.")
]
TurnTokens = Annotated[
    int | None,
    number(
        *("N", 1, MAX_CONTEXT),
        "Most tokens of each answer. [default: what the context has room for]",
        "--max-tokens",
    ),
]
NoPage = Annotated[
    bool,
    flag(
        "--no-page",
        rich_help_panel=NETWORK,
        help="No page at / of the HTTP API: a chat with live figures.",
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
