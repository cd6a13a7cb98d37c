"""`outrider run`: its options; the work is `outrider.cli.run`'s, imported when it is needed."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.cli.commands.sampling import sampling
from outrider.cli.failures import BadInput
from outrider.cli.options import (
    ApiKeys,
    Compare,
    DtypeOption,
    File,
    GrpcPort,
    Host,
    HttpPort,
    Json,
    MaxTokens,
    MinP,
    NoPage,
    Prompts,
    Raw,
    Seed,
    Stop,
    System,
    Temperature,
    Threads,
    Timeline,
    TimelineSeconds,
    TlsCert,
    TlsKey,
    TopK,
    TopP,
    absolute,
)

if TYPE_CHECKING:
    from outrider.cli.timeline import TimelineFile


def run(
    file: File,
    prompt: Prompts = None,
    system: System = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    seed: Seed = None,
    stop: Stop = None,
    dtype: DtypeOption = None,
    threads: Threads = None,
    raw: Raw = False,
    compare: Compare = False,
    json: Json = False,
    timeline: Timeline = None,
    timeline_seconds: TimelineSeconds = 1.0,
    host: Host = None,
    port: HttpPort = None,
    grpc_port: GrpcPort = None,
    no_page: NoPage = False,
    api_keys: ApiKeys = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
) -> None:
    """Run a target and its draft on this machine: answer prompts, or serve until Ctrl-C.

    Where draft.placement is Auto, the first run measures the machine and tries what may pay.

    Examples:

    ```
    outrider run -f examples/smollm2.yaml --prompt "Why is the sky blue?"
    outrider run -f examples/smollm2.yaml --prompt "Tell a story." --temperature 0.8 --compare
    outrider run -f examples/pipeline.yaml --prompt "Tell a story." --timeline lanes.svg
    outrider run -f examples/smollm2.yaml    # serves
    ```
    """
    from outrider.cli import interrupts
    from outrider.cli.prompts import Questions, with_stdin
    from outrider.cli.run import RunOptions
    from outrider.cli.run import run as run_service
    from outrider.cli.service_file import read_service
    from outrider.operator.plan import PlanOptions

    questions = None
    if prompt:
        for name, given in (("--port", port), ("--host", host)):
            if given is not None:
                raise BadInput(f"{name} needs a run without --prompt: only that serves HTTP.")
        questions = Questions(
            prompts=with_stdin(prompt, sys.stdin.buffer),
            system=system,
            sampling=sampling(temperature, top_p, top_k, min_p, seed),
            stop=tuple(stop or ()),
            max_tokens=max_tokens,
            raw=raw,
            compare=compare,
        )
    elif compare:
        raise BadInput("--compare needs --prompt.")
    plan = PlanOptions(
        dtype=dtype,
        threads=threads,
        api_keys_file=absolute(api_keys),
        tls_cert=absolute(tls_cert),
        tls_key=absolute(tls_key),
    )
    interrupts.run(
        run_service(
            RunOptions(
                service=read_service(file),
                plan=plan,
                questions=questions,
                as_json=json,
                timeline=_timeline(timeline, timeline_seconds),
                host=host,
                page=not no_page,
                http_port=port,
                grpc_port=grpc_port,
            )
        )
    )


def _timeline(path: Path | None, seconds: float) -> "TimelineFile | None":
    from outrider.cli.timeline import TimelineFile

    return None if path is None else TimelineFile.checked(path, seconds, sys.argv[1:])
