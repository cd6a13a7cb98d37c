"""`outrider chat`: its options; the talk is `outrider.cli.chat`'s, imported when it is wanted."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.commands import options
from outrider.cli.failures import BadInput
from outrider.contract import process
from outrider.contract.settings import Dtype

if TYPE_CHECKING:
    from outrider.client import Client

ADDRESS = f"127.0.0.1:{process.GRPC_PORT}"
ELSEWHERE = "--address, --api-key-env, --tls-ca and --tls-name"
HERE = "--draft, --context and --dtype"


def chat(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            show_default=False,
            help="Serve this model for the chat, as `outrider serve` does, and end it with the "
            "chat. [default: the service at --address]",
        ),
    ] = None,
    draft: options.ServedDraft = None,
    context: options.Context = None,
    dtype: options.ServeDtype = None,
    address: options.Address = ADDRESS,
    system: options.System = None,
    max_tokens: options.TurnTokens = None,
    temperature: options.Temperature = None,
    seed: options.Seed = None,
    sampling: options.SamplingParams = None,
    stop: options.Stop = None,
    no_draft: options.NoDraft = False,
    api_key_env: options.KeyVariable = None,
    tls_ca: options.TlsRoots = None,
    tls_name: options.TlsName = None,
) -> None:
    """Talk with a model, turn by turn; `/help` shows the commands of a chat.

    On a terminal answers are shown as Markdown; else stdout has their text alone. Figures of each
    answer go to stderr, with all else. Ctrl-D ends the chat, and a MODEL that it serves.

    Examples:

    ```
    outrider chat HuggingFaceTB/SmolLM2-135M-Instruct
    outrider chat ./model.gguf --draft ./draft.gguf --system "Be brief."
    outrider chat --temperature 0.8
    outrider chat --address llm.example.com:443 --tls-ca system
    printf 'My name is Ada.\\nWhat is my name?\\n' | outrider chat
    ```
    """
    if model is None:  # workers log what gRPC says
        options.silence_grpc()
    elsewhere = address != ADDRESS or any((api_key_env, tls_ca, tls_name))
    if model is not None and elsewhere:
        raise BadInput(f"MODEL is served here; leave out {ELSEWHERE}.")
    if model is None and (draft, context, dtype) != (None, None, None):
        raise BadInput(f"{HERE} need MODEL.")
    from outrider.cli.access import access_from
    from outrider.cli.chat import session
    from outrider.cli.chat.commands import ChatState
    from outrider.cli.chat.conversation import Conversation
    from outrider.client import Options

    asking = Options(
        sampling=options.sampling_of(temperature, seed, sampling),
        max_tokens=max_tokens,
        stop=tuple(stop or ()),
    )
    talk = ChatState(Conversation(system), speculate=not no_draft)
    if model is None:
        reached = access_from(api_key_env, tls_ca, tls_name).blocking_client(address)
        with reached as client:
            session.chat(client, asking, talk, session.typed())
    else:
        with _served(model, draft, context, dtype) as client:
            session.chat(client, asking, talk, session.typed())


@contextlib.contextmanager
def _served(
    model: str, draft: str | None, context: int | None, dtype: Dtype | None
) -> Iterator["Client"]:
    """Serve a model, and yield a client of it."""
    from pathlib import Path

    from outrider.cli.chat.served import served
    from outrider.cli.machine.run_dir import told_cache
    from outrider.cli.models.argument import model_uri
    from outrider.cli.service.from_options import document, service_of
    from outrider.cli.terminal.progress import reporter
    from outrider.cli.terminal.stopwatch import Stopwatch
    from outrider.cli.workers.supervisor import StartOptions
    from outrider.client import Client
    from outrider.contract.processors import count
    from outrider.operator.plan import PlanOptions

    target = model_uri("MODEL", model)
    drafting = None if draft is None else model_uri("--draft", draft)
    threads = count() if draft is None else None
    described = document(target, draft=drafting, context=context, dtype=dtype, threads=threads)
    service = service_of(described)
    progress = reporter(Stopwatch(service.served_name, Path(told_cache())))
    with (
        served(service, StartOptions(PlanOptions(), progress)) as addresses,
        Client(addresses) as client,
    ):
        yield client
