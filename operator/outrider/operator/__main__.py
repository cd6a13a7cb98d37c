"""`python -m outrider.operator`: watches SpeculativeServices and makes the cluster so.

Only parses arguments and ends the process; `app` does the work.
"""

import argparse
import asyncio
import logging
import math
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from outrider.contract.addresses import host_of, is_address
from outrider.operator.app import OperatorOptions, run
from outrider.operator.certificates.issuer import Issuer
from outrider.operator.cluster.access import Forbidden
from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.leadership import (
    LEASE_SECONDS,
    MAX_LEASE_SECONDS,
    MIN_LEASE_SECONDS,
    Term,
)
from outrider.operator.manifests.pods import PodRules
from outrider.operator.naming import CLAIM_NAME
from outrider.operator.server.health import SILENCE_SECONDS
from outrider.operator.spec.pods import read_template

EPILOG = """examples:
  python -m outrider.operator                             all namespaces
  python -m outrider.operator --namespace a --namespace b these two, with namespaced permissions
"""
NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


def main() -> int:
    """Run until SIGTERM, SIGINT or loss of the lease; return the exit status."""
    options = parse(sys.argv[1:])
    try:
        return asyncio.run(run(options))
    except (ClusterError, Forbidden, OSError) as error:
        print(f"outrider operator: {error}", file=sys.stderr)
        return 1


def flags() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="python -m outrider.operator",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--namespace", action="append", default=[], help="watch only this one; may be repeated")
    add("--worker-image", required=True, help="image of workers whose role names none")
    below = "pod template, as JSON, that lies under each podTemplate: what the cluster wants of all"
    add("--worker-template", default="{}", metavar="JSON", help=below)
    user = "user of workers. fixed: 65532, as their image has it; assigned: the platform's (fixed)"
    add("--worker-user", choices=("fixed", "assigned"), default="fixed", help=user)
    where = "host:port of /healthz, /readyz and /metrics; 0.0.0.0 is every address, IPv6 too"
    add("--listen", default="0.0.0.0:8080", help=where)
    add(
        "--lease-namespace",
        help="where the leader's Lease is: the first that is watched, or the pod's",
    )
    add("--lease-name", default="outrider-operator", help="name of the leader's Lease")
    life = "seconds after which another process replaces a leader that is gone, 8 to 60 (15)"
    add("--lease-seconds", type=lease_seconds, default=LEASE_SECONDS, help=life)
    add("--identity", default=socket.gethostname(), help="name in the Lease; a pod's is its own")
    silence = "seconds without an event of any watch after which /healthz fails (90)"
    add("--silence-seconds", type=seconds, default=SILENCE_SECONDS, help=silence)
    picks = "label of services' PodMonitors by which a Prometheus picks them; may be repeated"
    add("--pod-monitor-label", action="append", default=[], metavar="KEY=VALUE", help=picks)
    price = "price of a GPU for an hour, by its resource, or by its model as nodeSelector's"
    price += " nvidia.com/gpu.product names it; may be repeated"
    add("--gpu-price", action="append", default=[], metavar="NAME=PRICE", help=price)
    mutual = "on: workers know each other, and the operator, by certificates that it signs (on)"
    add("--peer-certificates", choices=("on", "off"), default="on", help=mutual)
    signs = "issuer of cert-manager's that signs those certificates in the operator's place"
    add("--peer-issuer", metavar="KIND[.GROUP]/NAME", help=signs)
    own = "folder with the operator's own tls.crt, tls.key and ca.crt, which --peer-issuer signed"
    add("--peer-folder", type=Path, metavar="FOLDER", help=own)
    shape = "text: a line for each message of the log; json: an object (text)"
    add("--log-format", choices=("text", "json"), default="text", help=shape)
    add("--verbose", action="store_true", help="log what kopf does as well")
    return parser


def parse(arguments: Sequence[str]) -> OperatorOptions:
    """Return the options of a command line."""
    parser = flags()
    found = parser.parse_args(arguments)
    host, port = address(parser, "--listen", found.listen)
    namespace = own_namespace()
    lease_namespace = found.lease_namespace or (found.namespace or [namespace or "default"])[0]
    if found.lease_name == CLAIM_NAME:
        parser.error(f"--lease-name: {CLAIM_NAME!r} is not allowed: claims of namespaces have it")
    if found.namespace and lease_namespace not in found.namespace:  # its changes show life
        allowed = ", ".join(found.namespace)
        parser.error(f"--lease-namespace: {lease_namespace!r} is not allowed; allowed: {allowed}")
    start_logging(found.verbose, as_json=found.log_format == "json")
    return OperatorOptions(
        namespaces=tuple(found.namespace),
        own_namespace=namespace,
        certificates=found.peer_certificates == "on",
        issuer=issuer(parser, found),
        peer_folder=found.peer_folder,
        worker_image=found.worker_image,
        pods=PodRules(
            template=pod_template(parser, found.worker_template),
            fixed_user=found.worker_user == "fixed",
        ),
        host=host,
        port=port,
        silence_seconds=found.silence_seconds,
        gpu_prices=prices(parser, "--gpu-price", found.gpu_price),
        monitor_labels=labels(parser, "--pod-monitor-label", found.pod_monitor_label),
        term=Term(
            lease_namespace,
            found.lease_name,
            f"{found.identity}-{os.getpid()}",
            found.lease_seconds,
        ),
    )


def address(parser: argparse.ArgumentParser, flag: str, text: str) -> tuple[str, int]:
    """Split host:port; end with an error for anything else."""
    if not is_address(text):
        allowed = "host:port, such as 0.0.0.0:8080 or [::1]:8080"
        parser.error(f"{flag}: {text!r} is not allowed; allowed: {allowed}")
    return host_of(text), int(text.rpartition(":")[2])


def pod_template(parser: argparse.ArgumentParser, text: str) -> dict[str, Any]:
    """Read a pod template; end with an error if it is none."""
    try:
        return read_template(text)
    except ValueError:
        allowed = "JSON of a pod template, whose metadata and spec are mappings"
        parser.error(f"--worker-template: {text!r} is not allowed; allowed: {allowed}")


def labels(parser: argparse.ArgumentParser, flag: str, texts: Sequence[str]) -> dict[str, str]:
    """Split each key=value; end with an error if one is none, or is there twice."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals or key in found:
            parser.error(f"{flag}: {text!r} is not allowed; allowed: key=value, each key once")
        found[key] = value
    return found


def prices(parser: argparse.ArgumentParser, flag: str, texts: Sequence[str]) -> dict[str, float]:
    """Split each name=price; end with an error if one is none, or is there twice."""
    read = {}
    for name, text in labels(parser, flag, texts).items():
        try:
            read[name] = float(text)
        except ValueError:
            read[name] = math.nan
        if not 0 < read[name] < math.inf:
            parser.error(f"{flag}: {name}={text} is not allowed; allowed: prices above 0")
    return read


def issuer(parser: argparse.ArgumentParser, found: argparse.Namespace) -> Issuer | None:
    """Return who signs the certificates of workers, if the operator does not."""
    if (found.peer_issuer is None) != (found.peer_folder is None):
        parser.error("--peer-issuer and --peer-folder: each needs the other")
    if found.peer_issuer is None:
        return None
    if found.peer_certificates == "off":
        parser.error("--peer-issuer: nothing is signed with --peer-certificates off")
    try:
        return Issuer.read(found.peer_issuer)
    except ValueError as error:
        parser.error(f"--peer-issuer: {error}")


def seconds(text: str, least: int = 1, most: float = math.inf) -> int:
    """Parse a number of seconds."""
    if not text.isdecimal() or not least <= int(text) <= most:
        allowed = f"whole seconds from {least}" + (f" to {most}" if most < math.inf else "")
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: {allowed}")
    return int(text)


def lease_seconds(text: str) -> int:
    """Parse the life of a lease: long enough for a leader to renew several times, and far shorter
    than a claim's."""
    return seconds(text, MIN_LEASE_SECONDS, MAX_LEASE_SECONDS)


def own_namespace() -> str:
    """Return the pod's namespace; empty outside of pods."""
    try:
        with open(NAMESPACE_FILE, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def start_logging(verbose: bool, as_json: bool) -> None:
    """Log to stderr, one line for each message; as JSON a traceback is a field of its line."""
    handler = logging.StreamHandler(sys.stderr)
    names = {"levelname": "level", "name": "logger"}
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    fields = ("levelname", "name", "message")
    handler.setFormatter(
        JsonFormatter(fields, timestamp="time", rename_fields=names) if as_json else plain
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("kopf").setLevel(logging.INFO if verbose else logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
