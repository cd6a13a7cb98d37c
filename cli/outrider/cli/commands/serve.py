"""`outrider serve`: its options; what they describe is served as `outrider run` serves a file."""

import shlex
import sys
from typing import Annotated

import typer

from outrider.cli.commands import options
from outrider.cli.failures import BadInput
from outrider.cli.machine.ports import checked_host


def serve(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="The target: a folder of safetensors, a .gguf file, ORGANISATION/NAME at Hugging "
            "Face, or a URI as in the YAML.",
        ),
    ],
    draft: options.ServedDraft = None,
    borrow_embedding: options.BorrowEmbedding = False,
    context: options.Context = None,
    max_running: options.MaxRunning = None,
    dtype: options.ServeDtype = None,
    threads: options.ServeThreads = None,
    placement: options.PlacementOption = None,
    host: options.Host = None,
    port: options.HttpPort = None,
    grpc_port: options.GrpcPort = None,
    no_page: options.NoPage = False,
    allow_host: options.AllowHost = None,
    api_keys: options.ApiKeys = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    print_yaml: options.PrintYaml = False,
) -> None:
    """Serve a model, with a draft or without, until Ctrl-C: `outrider run` without a YAML file.

    The options stand for a YAML that `outrider run -f` and `kubectl apply -f` take; --print-yaml
    prints it instead. Each option can also be set by an environment variable: --grpc-port by
    OUTRIDER_SERVE_GRPC_PORT, and so on.

    Examples:

    ```
    outrider serve HuggingFaceTB/SmolLM2-135M-Instruct
    outrider serve ./my-model --draft ./my-draft --context 8192 --max-running 16
    outrider serve Qwen/Qwen3-4B --draft Qwen/Qwen3-0.6B --dtype int8
    outrider serve Qwen/Qwen3-4B --host 0.0.0.0 --port 9000 --api-keys keys \\
        --tls-cert cert.pem --tls-key key.pem
    outrider serve Qwen/Qwen3-4B --print-yaml > service.yaml
    ```
    """
    from outrider.cli.models.argument import borrows_embedding, model_uri

    address = checked_host(host)
    target = model_uri("MODEL", model)
    if borrows_embedding(target):
        raise BadInput(
            f"MODEL {model} is a draft that borrows its target's embedding: it serves as --draft."
        )
    drafting = None if draft is None else model_uri("--draft", draft)
    # What is refused above is so at once: what follows takes a second to import.
    from outrider.cli.service.from_options import document, service_of, yaml_of
    from outrider.cli.terminal import interrupts
    from outrider.contract.processors import count

    if threads is None and draft is None:
        threads = count()  # nothing beside the target wants a processor
    described = document(
        target,
        draft=drafting,
        borrow_embedding=borrow_embedding,
        context=context,
        max_running=max_running,
        dtype=dtype,
        threads=threads,
        placement=placement,
    )
    service = service_of(described)
    if print_yaml:
        sys.stdout.write(yaml_of(described, shlex.join(["outrider", *sys.argv[1:]])))
        return
    from outrider.cli.run.run import RunOptions, run
    from outrider.operator.plan import PlanOptions

    plan = PlanOptions(
        allowed_hosts=tuple(allow_host or ()),
        api_keys_file=options.absolute(api_keys),
        tls_cert=options.absolute(tls_cert),
        tls_key=options.absolute(tls_key),
    )
    running = RunOptions(
        service=service,
        plan=plan,
        host=address,
        page=not no_page,
        http_port=port,
        grpc_port=grpc_port,
    )
    interrupts.run(run(running))
