"""`outrider run`: its options; the work is `outrider.cli.run.run`'s, imported when it is needed."""

import sys

from outrider.cli.commands import options
from outrider.cli.failures import BadInput
from outrider.cli.machine.ports import checked_host
from outrider.cli.terminal.text import read_text


def run(
    file: options.File,
    prompt: options.Prompts = None,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    seed: options.Seed = None,
    sampling: options.SamplingParams = None,
    dtype: options.DtypeOption = None,
    threads: options.Threads = None,
    raw: options.Raw = False,
    compare: options.Compare = False,
    json: options.Json = False,
    host: options.Host = None,
    port: options.HttpPort = None,
    grpc_port: options.GrpcPort = None,
    no_draft: options.RunNoDraft = False,
    no_page: options.NoPage = False,
    allow_host: options.AllowHost = None,
    api_keys: options.ApiKeys = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
) -> None:
    """Run a target and its draft on this machine: answer prompts, or serve until Ctrl-C.

    Where draft.placement is Auto, the first run measures the pair here and takes what is fastest.

    Examples:

    ```
    outrider run -f examples/smollm2.yaml --prompt "Why is the sky blue?"
    outrider run -f examples/smollm2.yaml --prompt "Hello!" --compare
    outrider run -f examples/smollm2.yaml --prompt "Tell a story." --no-draft
    outrider run -f examples/smollm2.yaml    # serves
    ```
    """
    _refuse_together(bool(prompt), compare=compare, json=json, port=port, host=host)
    text, address = read_text(file), checked_host(host)
    from outrider.cli.service.file import located_service

    service = located_service(text, file)
    # What is refused above is so at once: what follows takes a second to import.
    from outrider.cli.run.prompts import PromptSet, with_stdin
    from outrider.cli.run.run import RunOptions
    from outrider.cli.run.run import run as run_service
    from outrider.cli.terminal import interrupts
    from outrider.operator.plan import PlanOptions

    questions = None
    if prompt:
        questions = PromptSet(
            prompts=with_stdin(prompt, sys.stdin.buffer),
            sampling=options.sampling_of(temperature, seed, sampling),
            max_tokens=max_tokens,
            raw=raw,
            compare=compare,
        )
    plan = PlanOptions(
        dtype=dtype,
        threads=threads,
        allowed_hosts=tuple(allow_host or ()),
        api_keys_file=options.absolute(api_keys),
        tls_cert=options.absolute(tls_cert),
        tls_key=options.absolute(tls_key),
    )
    interrupts.run(
        run_service(
            RunOptions(
                service=service,
                plan=plan,
                questions=questions,
                as_json=json,
                host=address,
                draft=not no_draft,
                page=not no_page,
                http_port=port,
                grpc_port=grpc_port,
            )
        )
    )


def _refuse_together(
    asks: bool, *, compare: bool, json: bool, port: int | None, host: str | None
) -> None:
    """Raise `BadInput` for options that need --prompt, or that do not go with it."""
    for name, given in (("--port", port), ("--host", host)):
        if asks and given is not None:
            raise BadInput(f"{name} needs a run without --prompt: only that serves HTTP.")
    if compare and not asks:
        raise BadInput("--compare needs --prompt.")
    if json and not asks:
        raise BadInput("--json needs --prompt: without a prompt, run serves until it is stopped.")
