"""Pair of processes in torch.distributed: bytes from one to the other, by gloo or NCCL.

NCCL carries them where both compute on GPUs, two different ones, else gloo. Receives are for bytes
that the other has announced: one that is posted earlier would keep a GPU busy until they come
(docs/decisions/0018). Loads torch.
"""

import contextlib
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from outrider.worker.errors import LinkBroken, PeerLeft
from outrider.worker.host.rendezvous import gloo, prefix_store

INTERFACE = "GLOO_SOCKET_IFNAME"
"""Environment variable, torch's own: the network interface that gloo takes."""
LOST_PEER = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
"""Environment variable, torch's own: 0 keeps a peer that is gone from ending this process."""
TRANSFER = timedelta(seconds=30)
"""Longest that announced bytes are on their way."""
AT_ONCE = timedelta(milliseconds=1)
"""The shortest that a wait can be."""
BYTES, NEVER = 0, 1
"""Tags: of bytes, and of an array that never comes."""
GPU = "cuda:0"

Groups = tuple[Any, Any]
"""Groups of the two: from number 0 to 1, and back."""


class Backend(NamedTuple):
    """Library that carries bytes."""

    open: Callable[[Any, int, str, timedelta], Groups]
    device: str
    """Device that holds the bytes, as torch calls it."""
    end: Callable[[Any, int], None]
    """Ends a group's connections, given the number of the other."""


def own_gpu() -> str:
    """Return the id of the GPU that this process computes on; empty: it computes on none."""
    return str(torch.cuda.get_device_properties(GPU).uuid) if torch.cuda.is_initialized() else ""


def open_gloo(store: Any, number: int, host: str, wait: timedelta) -> Groups:
    """Return one group for both ways; raises `RuntimeError`."""
    options = gloo._Options()
    options._timeout, options._threads = wait, 1
    interface = os.environ.get(INTERFACE, "")
    where = {"interface": interface} if interface else {"hostname": host}
    options._devices = [gloo.create_device(**where)]
    group = gloo(store, number, 2, options)
    return group, group


def open_nccl(store: Any, number: int, host: str, wait: timedelta) -> Groups:
    """Return a group for each way: in one, a send and a receive would wait for each other."""
    os.environ.setdefault(LOST_PEER, "0")
    nccl: Any = dist.ProcessGroupNCCL
    ways = (prefix_store(way, store) for way in ("there", "back"))
    there, back = (nccl(way, number, 2, nccl.Options()) for way in ways)
    return there, back


def end_gloo(group: Any, other: int) -> None:
    """Let a wait run out, with which all of a group ends; gloo offers nothing else that does."""
    with contextlib.suppress(RuntimeError):
        group.recv([torch.zeros(1)], other, NEVER).wait(AT_ONCE)


def end_nccl(group: Any, other: int) -> None:
    """Abort what is on its way."""
    group.abort()


BACKENDS = {
    False: Backend(open_gloo, "cpu", end_gloo),
    True: Backend(open_nccl, GPU, end_nccl),
}
"""Backends, by whether each side has a GPU of its own."""


class ProcessPair:
    """This process and one other; a thread may send while another receives."""

    def __init__(
        self,
        store: Any,
        number: int,
        host: str,
        seconds: float,
        gpu: str | None = None,
        backends: Mapping[bool, Backend] = BACKENDS,
    ) -> None:
        """Meet the other in `store`, one of torch's, as number 0 or 1; both must come in time.

        `host`: this process's own address that the other can reach, unless `GLOO_SOCKET_IFNAME`
        names an interface. `gpu`: as `own_gpu`, which None asks. Raises `LinkBroken`.
        """
        own = own_gpu() if gpu is None else gpu
        try:
            store.set(f"gpu {number}", own)
            other = bytes(store.get(f"gpu {1 - number}")).decode()
            backend = backends[bool(own and other and own != other)]
            groups = backend.open(store, number, host, timedelta(seconds=seconds))
        except RuntimeError as error:
            raise LinkBroken(f"no group of torch.distributed came up: {reason(error)}") from None
        self._out, self._in = groups[number], groups[1 - number]
        self._other, self._backend = 1 - number, backend

    def send(self, payload: bytes) -> None:
        """Send bytes that were announced, and wait for their end; raise `PeerLeft`."""
        data = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
        self._transfer(self._out.send, data.to(self._backend.device))

    def receive(self, size: int) -> bytes:
        """Wait for announced bytes; raise `PeerLeft`."""
        data = torch.empty(size, dtype=torch.uint8, device=self._backend.device)
        self._transfer(self._in.recv, data)
        return data.cpu().numpy().tobytes()

    def close(self) -> None:
        """End the connections, with which every wait of either process ends, by `PeerLeft`."""
        for group in {self._out, self._in}:
            self._backend.end(group, self._other)

    def _transfer(self, verb: Any, data: torch.Tensor) -> None:
        try:
            verb([data], self._other, BYTES).wait(TRANSFER)
        except RuntimeError as error:
            raise PeerLeft(reason(error)) from None


def reason(error: RuntimeError) -> str:
    """Return the first sentence of an error of torch, without the place in its source."""
    return str(error).rpartition("] ")[2].split(". ")[0] or "no reason was given"
