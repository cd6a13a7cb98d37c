"""`outrider serve --host 0.0.0.0`, asked at another address than loopback's, in a network namespace
of its own: python -m tests.process.beyond_loopback TARGET HOME. Prints what was found as JSON.
"""

import json
import sys
from pathlib import Path

from tests.kube.pod_network import enter

ADDRESS = "10.64.3.4"
KEY, NAME = "key", "outrider.test"


def main(target: str, home: str) -> None:
    """Serve, ask with a key and without, and ask for what is not for clients."""
    enter()  # before anything is imported that starts threads
    from outrider.client import Client, ClientError
    from tests.certificate_files import ELSEWHERE_CERT, ELSEWHERE_KEY
    from tests.process.service_run import serving_command
    from tests.process.workers import ANSWER_SECONDS, PROMPT

    keys = Path(home) / "keys"
    keys.write_text(f"{KEY}\n")
    guard = ("--api-keys", str(keys), "--tls-cert", str(ELSEWHERE_CERT))
    guard += ("--tls-key", str(ELSEWHERE_KEY))
    small = ("--dtype", "fp32", "--context", "256", "--max-running", "1", "--threads", "1")
    found = {}
    with serving_command(Path(home), "serve", target, "--host", "0.0.0.0", *guard, *small) as run:
        port = run.address.rpartition(":")[2]
        found["address"] = run.address
        for name, key in (("with a key", KEY), ("without", None)):
            with Client(
                f"{ADDRESS}:{port}",
                timeout=ANSWER_SECONDS,
                api_key=key,
                tls=ELSEWHERE_CERT.read_bytes(),
                tls_name=NAME,
            ) as client:
                for call in (lambda c: c.complete(PROMPT, max_tokens=4), lambda c: c.state()):
                    try:
                        words = type(call(client)).__name__
                    except ClientError as error:
                        words = error.status.name
                    found.setdefault(name, []).append(words)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
