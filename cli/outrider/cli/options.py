"""The options that commands share: their types, limits and help.

Limits here only save the user a start-up; the target checks every request again.
"""

from pathlib import Path
from typing import Annotated

from typer import Option

from outrider.contract.settings import Dtype

LAST_SEED = 2**64 - 1

File = Annotated[Path, Option("-f", "--file", metavar="FILE", help="YAML of the service.")]
Prompts = Annotated[
    list[str] | None,
    Option(metavar="TEXT", help="Answer this and exit; may be repeated. Without it, serve."),
]
MaxTokens = Annotated[
    int | None, Option(metavar="N", min=1, help="Most tokens of each answer. [default: 256]")
]
Temperature = Annotated[
    float | None,
    Option(metavar="X", min=0, max=100, help="0 always takes the likeliest token. [default: 0]"),
]
TopP = Annotated[
    float | None,
    Option(metavar="X", min=0, max=1, help="Keep the likeliest tokens up to this share."),
]
TopK = Annotated[
    int | None, Option(metavar="N", min=0, help="Keep the k likeliest tokens; 0 keeps all.")
]
MinP = Annotated[
    float | None,
    Option(metavar="X", min=0, max=1, help="Drop tokens rarer than this share of the likeliest."),
]
Seed = Annotated[
    int | None,
    Option(metavar="N", min=0, max=LAST_SEED, help="Same seed, same text. [default: random]"),
]
Raw = Annotated[bool, Option("--raw", help="Skip the model's chat template.")]
Compare = Annotated[bool, Option("--compare", help="Answer again without the draft; show both.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object on stdout.")]
DtypeOption = Annotated[
    Dtype | None, Option(help="Numeric path of target and draft. [default: the YAML's]")
]
Quick = Annotated[
    bool, Option("--quick", help="Only step costs, and what they promise; no trial runs.")
]
Threads = Annotated[
    int | None,
    Option(metavar="N", min=1, max=1024, help="Threads of the target. [default: the YAML's]"),
]
GrpcPort = Annotated[
    int | None,
    Option(
        metavar="PORT",
        min=0,
        max=65535,
        help="Port of the first target; more targets take free ones. "
        "[default: 50051; any free one with --prompt]",
    ),
]
