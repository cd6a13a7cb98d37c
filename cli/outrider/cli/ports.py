"""Loopback ports of workers: which are free, and what to say of one that is not.

Knows nothing of the servers that listen on them.
"""

import socket
from collections.abc import Callable
from typing import NamedTuple

from outrider.cli.failures import BadInput

HOST = "127.0.0.1"
GRPC_OPTION, HTTP_OPTION = "--grpc-port", "--port"


def is_taken(port: int) -> bool:
    """True if a loopback port is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
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


def refuse_taken(wanted: WantedPorts) -> None:
    """Raise `BadInput` for a port that was asked for and is taken."""
    Port(wanted.grpc, GRPC_OPTION, wanted.choose).refuse_if_lost()
    if wanted.http is not None:
        Port(wanted.http, HTTP_OPTION, wanted.choose).refuse_if_lost()


class Port:
    """One port of a worker: the user's own, or any that is free."""

    def __init__(self, number: int, option: str, choose: Callable[[], int] = free_port) -> None:
        """`number` 0 leaves the choice to `choose`; `option` is what sets it."""
        self.number = number or choose()
        self._fixed = number != 0
        self._option = option
        self._choose = choose

    @property
    def address(self) -> str:
        """host:port."""
        return f"{HOST}:{self.number}"

    @property
    def taken(self) -> bool:
        """True if the port is taken."""
        return is_taken(self.number)

    def refuse_if_lost(self) -> None:
        """Raise `BadInput` if it has to be this one and it is taken."""
        if self._fixed and self.taken:
            raise self._in_use()

    def take_another(self) -> None:
        """After it was found taken; raises `BadInput` for one that has to be this one."""
        if self._fixed:
            raise self._in_use()
        self.number = self._choose()

    def _in_use(self) -> BadInput:
        return BadInput(f"{self.address} is in use; choose another with {self._option}.")
