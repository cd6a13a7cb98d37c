"""The options of `outrider top`, checked before any worker is asked.

The watching itself is `outrider.cli.top`'s.
"""

from typing import Annotated

from outrider.cli.commands.options import (
    Address,
    KeyVariable,
    TlsName,
    TlsRoots,
    flag,
    number,
    silence_grpc,
)
from outrider.contract import process


def top(
    address: Address = f"127.0.0.1:{process.GRPC_PORT}",
    interval: Annotated[
        float, number("SECONDS", 0, 3600, "Time between two frames.", above=True)
    ] = 1.0,
    once: Annotated[bool, flag("--once", help="Show one frame, of one interval, and exit.")] = (
        False
    ),
    json: Annotated[
        bool, flag("--json", help="Print one JSON object for each interval on stdout.")
    ] = False,
    api_key_env: KeyVariable = None,
    tls_ca: TlsRoots = None,
    tls_name: TlsName = None,
) -> None:
    """Watch a running service, a row for each worker: speed, what drafting brings, KV.

    The API key and the TLS options are for targets; their drafts are found through them. Rates
    cover the last interval. A worker that does not answer is shown as down. In a cluster only the
    operator may call `Control`: use the metrics there.

    Examples:

    ```
    outrider top
    outrider top --address 127.0.0.1:50051,127.0.0.1:41235 --interval 5
    outrider top --tls-ca cert.pem --api-key-env KEY
    outrider top --once
    outrider top --json | jq .workers[0].now.tokens_per_second
    ```
    """
    silence_grpc()
    from outrider.cli.access import access_from
    from outrider.cli.terminal import interrupts
    from outrider.cli.top import watch

    given = tuple(dict.fromkeys(one.strip() for one in address.split(",")))
    access = access_from(api_key_env, tls_ca, tls_name)
    interrupts.run(watch(given, access, interval, once=once, as_json=json))
