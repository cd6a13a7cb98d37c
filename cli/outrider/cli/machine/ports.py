"""Ports of workers: which are free, what they listen at, and what to say of one that is taken.

Knows nothing of the servers that listen on them.
"""

import errno
import ipaddress
import socket
from collections.abc import Callable
from typing import NamedTuple

from outrider.cli.failures import BadInput

HOST = "127.0.0.1"
GRPC_OPTION, HTTP_OPTION, HOST_OPTION = "--grpc-port", "--port", "--host"


def is_taken(port: int, host: str = HOST) -> bool:
    """True if a port of an address is taken; raises `OSError` where this machine has no such
    address."""
    with socket.socket(_family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise
            return True
    return False


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class WantedPorts(NamedTuple):
    """Ports that a worker is to listen on; 0 leaves the choice to `choose`."""

    grpc: int = 0
    http: int | None = None
    """None: no HTTP."""
    choose: Callable[[], int] = free_port
    host: str = HOST
    """IP address that it listens at."""
    page: bool = False
    """Whether HTTP has the page at `/`."""

    @property
    def on_loopback(self) -> bool:
        """True if nobody beyond this machine reaches them."""
        return ipaddress.ip_address(self.host).is_loopback


def refuse_taken(wanted: WantedPorts) -> None:
    """Raise `BadInput` for a port that was asked for and is taken, or an address that this machine
    has not."""
    try:
        is_taken(0, wanted.host)  # any: is this an address of ours?
        Port(wanted.grpc, GRPC_OPTION, wanted).refuse_if_lost()
        if wanted.http is not None:
            Port(wanted.http, HTTP_OPTION, wanted).refuse_if_lost()
    except OSError as error:
        raise BadInput(
            f"{HOST_OPTION} {wanted.host}: {error.strerror}; allowed: an address of this machine"
        ) from None


class Port:
    """One port of a worker: the user's own, or any that is free."""

    def __init__(self, number: int, option: str, wanted: WantedPorts) -> None:
        """`number` 0 leaves the choice to `wanted`; `option` is what sets it."""
        self.number = number or wanted.choose()
        self._fixed = number != 0
        self._option = option
        self._wanted = wanted

    @property
    def listen(self) -> str:
        """host:port at which its server listens."""
        return _joined(self._wanted.host, self.number)

    @property
    def address(self) -> str:
        """host:port at which it is reached from here."""
        host = ipaddress.ip_address(self._wanted.host)
        if not host.is_unspecified:
            return self.listen
        return _joined(HOST if host.version == 4 else "::1", self.number)

    @property
    def taken(self) -> bool:
        """True if the port is taken."""
        return is_taken(self.number, self._wanted.host)

    def refuse_if_lost(self) -> None:
        """Raise `BadInput` if it has to be this one and it is taken."""
        if self._fixed and self.taken:
            raise self._in_use()

    def take_another(self) -> None:
        """After it was found taken; raises `BadInput` for one that has to be this one."""
        if self._fixed:
            raise self._in_use()
        self.number = self._wanted.choose()

    def _in_use(self) -> BadInput:
        return BadInput(f"{self.listen} is in use; choose another with {self._option}.")


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def checked_host(text: str | None) -> str:
    """Return the IP address of --host; raises `BadInput` for what is none."""
    if text is None or text == "localhost":
        return HOST
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        raise BadInput(
            f"{HOST_OPTION} {text!r} is not allowed; allowed: an IP address of this machine, or "
            "0.0.0.0 for all of them"
        ) from None
