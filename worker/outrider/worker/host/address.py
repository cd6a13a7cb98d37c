"""Address of this machine, as another one reaches it."""

import socket

ANY_PORT = 9
"""A route needs a port; nothing is sent there."""


def address_towards(host: str) -> str:
    """Return the address of this machine's interface towards a host; raises `OSError`."""
    family, kind, _, _, address = socket.getaddrinfo(host, ANY_PORT, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # sends nothing: it only finds the interface
        return str(probe.getsockname()[0])
