"""`outrider generate`: its options; asking is `outrider.cli.run`'s, imported when it is needed."""

import sys
from typing import Annotated

import typer

from outrider.cli.commands import options
from outrider.contract import process


def generate(
    prompt: Annotated[
        list[str],
        typer.Argument(
            metavar="PROMPT", help="Prompts, each of which gets an answer; - reads standard input."
        ),
    ],
    address: options.Address = f"127.0.0.1:{process.GRPC_PORT}",
    system: options.System = None,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    seed: options.Seed = None,
    sampling: options.SamplingParams = None,
    stop: options.Stop = None,
    prediction: options.Prediction = None,
    no_draft: options.NoDraft = False,
    raw: options.Raw = False,
    json: options.Json = False,
    api_key_env: options.KeyVariable = None,
    tls_ca: options.TlsRoots = None,
    tls_name: options.TlsName = None,
) -> None:
    """Ask a running service; text streams to stdout, figures go to stderr.

    Examples:

    ```
    outrider generate "Why is the sky blue?"
    outrider generate - < question.txt
    outrider generate --system "Be brief." --no-draft "What is a tree?"
    outrider generate --prediction app.py "Rename f to total: $(cat app.py)"
    outrider generate --temperature 0.8 --seed 7 "Tell a story."
    outrider generate --address llm.example.com:443 --tls-ca system "Hello!"
    outrider generate --address 10.0.0.7:50051 --api-key-env KEY "Hello!"
    ```
    """
    options.silence_grpc()
    from rich.console import Console

    from outrider.cli.access import access_from
    from outrider.cli.run import run as running
    from outrider.cli.run.prompts import PromptSet, with_stdin
    from outrider.cli.terminal import interrupts
    from outrider.cli.terminal.text import read_text

    questions = PromptSet(
        prompts=with_stdin(prompt, sys.stdin.buffer),
        system=system,
        sampling=options.sampling_of(temperature, seed, sampling),
        stop=tuple(stop or ()),
        prediction=None if prediction is None else read_text(prediction),
        speculate=not no_draft,
        max_tokens=max_tokens,
        raw=raw,
    )
    access = access_from(api_key_env, tls_ca, tls_name)
    answers = interrupts.run(running.answer(address, questions, json, access))
    running.show(answers, json, Console(stderr=True))
