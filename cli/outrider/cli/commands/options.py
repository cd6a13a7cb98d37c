"""The options that commands share: their types, limits and help.

Limits here only save the user a start-up; the target checks every request again.
"""

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
LAST_PORT = 65535
LAST_SIMULATION_SEED = 2**63 - 1
MAX_DEVICES = 64


def absolute(file: Path | None) -> str | None:
    """Return a path as workers take it, which run elsewhere."""
    return None if file is None else str(file.absolute())


def number(metavar: str, low: int, high: int, words: str, *names: str, above: bool = False) -> Any:
    """An option for numbers from `low` to `high`, or `above` low; help and refusals say so.

    `names` are its names, if they are not its parameter's.
    """
    limits = f"{low}{'<' if above else '<='}x<={high}"
    check = _within(low, high, limits, above)
    return Option(*names, metavar=metavar, callback=check, help=f"{words} [{limits}]")


def _within(
    low: int, high: int, limits: str, above: bool
) -> Callable[[float | None], float | None]:
    def check(value: float | None) -> float | None:
        if value is None or (low <= value <= high and not (above and value == low)):
            return value
        raise BadParameter(f"{value} is not in the range {limits}.")

    return check


File = Annotated[Path, Option("-f", "--file", metavar="FILE", help="YAML of the service.")]
Prompts = Annotated[
    list[str] | None,
    Option(
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
    Option(
        "--sampling",
        metavar="NAME=X,…",
        help="Further sampling params, such as top_p=0.9,top_k=40,min_p=0.05.",
    ),
]
Seed = Annotated[int | None, number("N", 0, LAST_SEED, "Same seed, same text. [default: random]")]
Raw = Annotated[
    bool, Option("--raw", help="Skip the model's chat template; control tokens in prompts count.")
]
Compare = Annotated[
    bool, Option("--compare", help="Answer again without the draft, or with it; show both.")
]
Json = Annotated[bool, Option("--json", help="Print one JSON object on stdout.")]
DtypeOption = Annotated[
    Dtype | None, Option(help="Numeric path of target and draft. [default: the YAML's]")
]
THREADS_HELP = (
    "Threads of the target. [default: the YAML's; or, with placement Auto, what is fastest]"
)
Quick = Annotated[
    bool, Option("--quick", help="Only passes, and what they promise; no runs of the service.")
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
    Option(
        "--table",
        metavar="FILE",
        help="Take step costs from this JSON, as --json prints them, instead of measuring.",
    ),
]
SplitService = Annotated[
    Path | None,
    Option("--write", metavar="FILE", help="Write the service with the recommended split."),
]
Threads = Annotated[int | None, number("N", 1, MAX_THREADS, THREADS_HELP)]
HttpPort = Annotated[
    int | None,
    number(
        *("PORT", 0, LAST_PORT),
        "Port of the OpenAI-compatible API; 0 takes any free one. [default: 8000]",
        "--port",
    ),
]
GrpcPort = Annotated[
    int | None,
    number(
        *("PORT", 0, LAST_PORT),
        "Port of the first target's gRPC API; 0 takes any free one, as further targets do. "
        "[default: 50051; any free one for `run` with prompts]",
    ),
]
ApiKeys = Annotated[
    Path | None,
    Option(
        "--api-keys",
        metavar="FILE",
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
    Option(
        "--allow-host",
        metavar="NAME",
        callback=_hosts,
        help="Let web pages of this host or origin (app://obsidian.md) ask, too, and without API "
        "keys whoever asks by this host, such as a proxy; * is all. May be repeated. "
        "[default: localhost and IP addresses]",
    ),
]
TlsCert = Annotated[
    Path | None,
    Option("--tls-cert", metavar="FILE", help="PEM certificate; targets then speak TLS only."),
]
TlsKey = Annotated[
    Path | None, Option("--tls-key", metavar="FILE", help="PEM private key of --tls-cert.")
]
KeyVariable = Annotated[
    str | None,
    Option("--api-key-env", metavar="VARIABLE", help="Environment variable that holds the key."),
]
TlsRoots = Annotated[
    str | None,
    Option(
        "--tls-ca",
        metavar="FILE|system",
        help="Speak TLS, and trust the PEM certificates of this file alone, or the system's.",
    ),
]
TlsName = Annotated[
    str | None,
    Option("--tls-name", metavar="NAME", help="Name in the certificate. [default: the address's]"),
]
Plot = Annotated[
    Path | None,
    Option("--plot", metavar="FILE", help="Plot the target's step costs as a .png, .svg or .pdf."),
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
    Option("--plot", metavar="FILE", help="Plot load and decisions as a .png, .svg or .pdf."),
]


def _addresses(text: str) -> str:
    for one in text.split(","):
        if not is_address(one.strip()):
            raise BadParameter(f"{one.strip()!r} is not allowed; allowed: host:port.")
    return text


Address = Annotated[
    str,
    Option(
        metavar="HOST:PORT",
        callback=_addresses,
        help="The target's gRPC address; several with commas between.",
    ),
]
System = Annotated[
    str | None,
    Option("--system", metavar="TEXT", help="What the model is told before the conversation."),
]
Stop = Annotated[
    list[str] | None,
    Option("--stop", metavar="TEXT", help="End an answer before this text; may be repeated."),
]
Prediction = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Text that the answers should have, as when it is edited: they come sooner.",
    ),
]
NoDraft = Annotated[bool, Option("--no-draft", help="Answer by plain decoding.")]
RunNoDraft = Annotated[
    bool, Option("--no-draft", help="Start no draft: the target decodes plainly.")
]
Host = Annotated[
    str | None,
    Option(
        "--host",
        metavar="ADDRESS",
        help="IP address that targets listen at, such as 0.0.0.0 for all; beyond loopback they "
        "need --api-keys, --tls-cert and --tls-key. [default: 127.0.0.1]",
    ),
]
ServedDraft = Annotated[
    str | None,
    Option("--draft", metavar="MODEL", help="The draft, in the same forms. [default: none]"),
]
BorrowEmbedding = Annotated[
    bool,
    Option(
        "--borrow-embedding",
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
    ),
]
MaxRunning = Annotated[
    int | None,
    number("N", 1, MAX_RUNNING, "Requests that run at once; others wait. [default: 8]"),
]
ServeThreads = Annotated[
    int | None,
    number(
        *("N", 1, MAX_THREADS),
        "Threads of the target. [default: with a draft what is fastest, else all processors, on a "
        "Mac its performance cores]",
    ),
]
ServeDtype = Annotated[
    Dtype | None, Option("--dtype", help="Numeric path of both models. [default: auto]")
]
PlacementOption = Annotated[
    str | None,
    Option(
        "--placement",
        metavar="PLACE",
        help="Place of the draft: Auto, Separate or Colocated. [default: Auto, the fastest here]",
    ),
]
PrintYaml = Annotated[
    bool, Option("--print-yaml", help="Print the YAML of the service instead of serving it.")
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
    bool, Option("--no-page", help="No page at / of the HTTP API: a chat with live figures.")
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
