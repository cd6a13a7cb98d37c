"""Channels to workers: opening them, metadata of every call, and spreading calls over targets.

Leaves the spreading to gRPC itself: its `round_robin` policy, its health watch and its retries
(gRFC A6, A17), set up by one service config. Control calls are never spread: they are meant for
one worker, also for one that does not serve yet.
"""

import json
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

import grpc

from outrider.client.errors import InvalidRequest, Unavailable
from outrider.contract.addresses import host_of, ip_address
from outrider.protos.v1 import inference_pb2
from outrider.protos.v1.inference_pb2_grpc import InferenceStub
from outrider.protos.v1.internal.control_pb2_grpc import ControlStub

Options = tuple[tuple[str, Any], ...]
Tls = bool | bytes
"""True trusts the system's roots, bytes are the PEM certificates of the roots to trust."""

OPTIONS: Options = (
    ("grpc.enable_http_proxy", 0),  # a worker is on loopback or in the cluster: no proxy is between
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 10_000),
)
MAX_ATTEMPTS = 5
"""Most attempts of one call, the first included; gRPC allows no more."""
SPREADING = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "healthCheckConfig": {"serviceName": ""},
    "methodConfig": [
        {
            "name": [{"service": inference_pb2.DESCRIPTOR.services_by_name["Inference"].full_name}],
            "retryPolicy": {
                "maxAttempts": MAX_ATTEMPTS,
                "initialBackoff": "0.02s",
                "maxBackoff": "0.2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
            },
        }
    ],
}
"""Service config of gRPC: round robin over healthy connections, retries before the first token.

A call that has had a message is committed, so that gRPC never tries it again.
"""
SPREAD: Options = (
    *OPTIONS,
    ("grpc.service_config", json.dumps(SPREADING)),
    ("grpc.dns_min_time_between_resolutions_ms", 5_000),
    ("grpc.per_rpc_retry_buffer_size", 64 << 20),  # a longer request is never tried again
)


class CallTarget(NamedTuple):
    """Where a client's calls go."""

    uri: str
    """The gRPC target, one address or several."""
    options: Options
    """Options of the channel for inference; the one for control has `OPTIONS`."""
    hosts: tuple[str, ...]
    """Each host once, as it was given."""


def place(address: str | Sequence[str]) -> CallTarget:
    """The place of one address or several, each host:port, in a list or with commas between.

    One name is left to gRPC, which looks it up again as connections are lost; names among several
    are looked up here and now. Raises `InvalidRequest` for what is no host:port, and `Unavailable`
    if no name of several is known.
    """
    listed = address.split(",") if isinstance(address, str) else address
    each = list(dict.fromkeys(one.strip() for one in listed))
    hosts = tuple(dict.fromkeys(map(host_of, each)))
    if len(each) == 1:
        return CallTarget(each[0], OPTIONS if ip_address(hosts[0]) else SPREAD, hosts)
    found = list(dict.fromkeys(pair for one in each for pair in _resolved(*_split(one))))
    if not found:
        names = ", ".join(each) or "no address was given"
        raise Unavailable(f"nothing is known by these names: {names}", grpc.StatusCode.UNAVAILABLE)
    return CallTarget(_uri(found), SPREAD, hosts)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        text = f"address: {address!r} is not allowed; allowed: host:port, port from 1 to 65535"
        raise InvalidRequest(text, grpc.StatusCode.INVALID_ARGUMENT)
    return host.strip("[]"), int(port)


def _resolved(host: str, port: int) -> Iterator[tuple[str, int]]:
    """The IP addresses behind a host; none for a name that is not known."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:  # others of the list may be known
        return
    for *_, place_of_host in found:
        yield str(place_of_host[0]), port


def _uri(pairs: Sequence[tuple[str, int]]) -> str:
    """A gRPC target of several addresses, which must be of one family: IPv4's are mapped."""
    if all("." in host and ":" not in host for host, _ in pairs):
        return "ipv4:" + ",".join(f"{host}:{port}" for host, port in pairs)
    mapped = ((host if ":" in host else f"::ffff:{host}", port) for host, port in pairs)
    return "ipv6:" + ",".join(f"[{host}]:{port}" for host, port in mapped)


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A certificate that tells a server who calls, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    """Its private key."""


def credentials(tls: Tls, own: ClientCertificate | None = None) -> grpc.ChannelCredentials | None:
    """Return the certificates that a channel checks its server with, and shows it; None: it speaks
    no TLS."""
    if tls is False:
        return None
    roots = tls if isinstance(tls, bytes) else None
    if own is None:
        return grpc.ssl_channel_credentials(roots)
    return grpc.ssl_channel_credentials(roots, own.key, own.certificate)


def name_option(where: CallTarget, tls: Tls, tls_name: str | None) -> Options:
    """The option that says which name a certificate must hold; none where gRPC knows.

    gRPC checks one name for each channel. Raises `InvalidRequest` for a name without TLS, and for
    several hosts without a name.
    """
    if tls is False:
        if tls_name is None:
            return ()
        raise InvalidRequest(
            f"tls_name: {tls_name!r} is not allowed without tls", grpc.StatusCode.INVALID_ARGUMENT
        )
    if tls_name is None and len(where.hosts) > 1:
        names = ", ".join(where.hosts)
        raise InvalidRequest(
            f"address: several hosts with TLS ({names}) need tls_name, a name that is in the "
            "certificates of all",
            grpc.StatusCode.INVALID_ARGUMENT,
        )
    name = tls_name or (where.hosts[0] if "," in where.uri else None)
    return () if name is None else (("grpc.ssl_target_name_override", name),)


def open_channel(
    library: ModuleType, uri: str, options: Options, checked: grpc.ChannelCredentials | None
) -> Any:
    """Return a channel of `grpc` or `grpc.aio`, with TLS if there is something to check its server
    with."""
    if checked is None:
        return library.insecure_channel(uri, options=options)
    return library.secure_channel(uri, checked, options=options)


class Connected:
    """Connections of a client: a channel for inference, with calls spread, and one for control.

    Raises what `place` and `name_option` raise.
    """

    LIBRARY: ModuleType
    """`grpc`, or `grpc.aio`."""

    def __init__(
        self,
        address: str | Sequence[str],
        *,
        timeout: float | None = None,
        api_key: str | None = None,
        tls: Tls = False,
        tls_name: str | None = None,
        certificate: ClientCertificate | None = None,
        largest_answer: int = -1,
    ) -> None:
        """`largest_answer`: bytes of one message that is taken; -1: of any size, as a client trusts
        its server with its own answer."""
        where, checked = place(address), credentials(tls, certificate)
        largest = ("grpc.max_receive_message_length", largest_answer)
        more = (largest, *name_option(where, tls, tls_name))
        self._channels = [
            open_channel(self.LIBRARY, where.uri, (*options, *more), checked)
            for options in (where.options, OPTIONS)
        ]
        self._inference: Any = InferenceStub(self._channels[0])
        self._control: Any = ControlStub(self._channels[1])
        self._metadata = () if api_key is None else (("authorization", f"Bearer {api_key}"),)
        self._timeout = timeout

    def _call_options(self, timeout: float | None) -> dict[str, Any]:
        """Return what every call carries beside its message."""
        seconds = self._timeout if timeout is None else timeout
        return {"timeout": seconds, "metadata": self._metadata}
