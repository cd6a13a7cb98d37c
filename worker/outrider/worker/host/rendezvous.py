"""Rendezvous of processes: torch's store, in which those of a group find each other.

Loads torch. Leaves what they exchange to `parallel` and `link`.
"""

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from outrider.contract.listening import listen

tcp_store: Any = getattr(dist, "TCPStore", None)
prefix_store: Any = getattr(dist, "PrefixStore", None)
gloo: Any = getattr(dist, "ProcessGroupGloo", None)  # its methods have no types


def lacking() -> str:
    """Name what torch lacks for groups of processes over gloo; empty if nothing is missing."""
    if not dist.is_available():
        return "torch is built without torch.distributed"
    return "" if gloo is not None else "torch is built without gloo"


def open_store(host: str, port: int, size: int, seconds: float) -> tuple[Any, int]:
    """Open the store where `size` processes meet; return it and its port. Raises `OSError`.

    `port` 0: a free one. An empty host is any address of this machine. `seconds`: the longest wait
    for what another process has to say there.
    """
    listener = listen(host, port)
    port = listener.getsockname()[1]
    wait = timedelta(seconds=seconds)
    fd = listener.detach()  # the store's from now on
    store = tcp_store("127.0.0.1", port, size, True, wait, False, master_listen_fd=fd)
    return store, port


def join_store(host: str, port: int, size: int, seconds: float) -> Any:
    """Wait for another process's store; raises `RuntimeError`."""
    return tcp_store(host, port, size, False, timedelta(seconds=seconds), False)
