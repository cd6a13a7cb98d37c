"""Listening sockets, the same for every process: those of clusters with IPv4, IPv6 or both."""

import socket

from outrider.contract.addresses import ip_address


def listen(host: str, port: int, backlog: int = 128) -> socket.socket:
    """Return a socket that listens at a host's port; raises `OSError`.

    0.0.0.0, :: and an empty host stand for all addresses of this machine, of both families, as they
    do for gRPC: a kubelet asks the pod's first address, which may be of either. A machine without
    IPv6 has IPv4's alone.
    """
    address = ip_address(host)
    everywhere = not host or (address is not None and address.is_unspecified)
    both = everywhere and socket.has_dualstack_ipv6()
    if everywhere:
        host = "::" if both else "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=backlog, dualstack_ipv6=both)
