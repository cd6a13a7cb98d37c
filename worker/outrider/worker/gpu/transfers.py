"""Transfers between host and device, and their order: one copy in, one out, one wait.

The order of events of a pass, on a CUDA device:

    host     write hosts[i] ─┐                                  ┌─ wait(back)
    inward                   copy hosts[i] → staged[i], arrived[i]
    compute                      after arrived[i]: staged[i] → static, read[i] │ graphs │ done
    outward                                                   after done: results → host, back

Two hosts and two staged buffers are used alternately. So what comes in for a pass never waits for
the compute of the pass before it, only for its `read`, one pass earlier still. The host waits for
`arrived[i]` before it writes hosts[i] again, which was two passes ago: it never has to, as long as
it waits for results now and then. Leaves what the words mean to `input_layout`.
"""

import contextlib
from contextlib import AbstractContextManager

import torch
from torch import Tensor

HOSTS = 2
"""Buffers used alternately."""
NO_STREAM = contextlib.nullcontext()


class Transfers:
    """Copies without streams, done when the call returns. `static` is what passes read."""

    def __init__(self, words: int, device: str) -> None:
        self.device = device
        self.static = torch.zeros(words, dtype=torch.int32, device=device)
        self.hosts = [self.host(words, dtype=torch.int32) for _ in range(HOSTS)]
        self.sends = self.waits = 0
        """Copies to the device, and times that the host has waited for results."""
        self._turn = 0
        self._prefixes: dict[int, list[Tensor]] = {}
        """First words of all buffers, by their number."""

    def host(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Return a host tensor that copies can run to and from beside compute."""
        return torch.zeros(shape, dtype=dtype, pin_memory=self.device.startswith("cuda"))

    def synchronize(self) -> None:
        """Wait until the device has done all that it was asked to, on any stream."""

    def next_host(self) -> int:
        """Return the index of the host buffer that may be written now."""
        self._turn = (self._turn + 1) % HOSTS
        return self._turn

    def send(self, index: int, words: int) -> None:
        """Copy the first `words` of a host buffer to `static`, for compute that is launched
        afterwards."""
        self.sends += 1
        static, *hosts = self._first(words)
        static.copy_(hosts[index])

    @property
    def _buffers(self) -> list[Tensor]:
        return [self.static, *self.hosts]

    def _first(self, words: int) -> list[Tensor]:
        """Return the first words of `static`, and of each host and staged buffer."""
        found = self._prefixes.get(words)
        if found is None:
            found = self._prefixes[words] = [whole[:words] for whole in self._buffers]
        return found

    def computing(self) -> AbstractContextManager[object]:
        """Return the context in which launches belong."""
        return NO_STREAM

    def fetch(self, results: Tensor, host: Tensor) -> None:
        """Copy results of the compute so far to the host; `wait` says when they are there."""
        host.copy_(results)

    def wait(self) -> None:
        """Wait until everything that was fetched is there: a pass's one synchronisation."""
        self.waits += 1


class StreamedTransfers(Transfers):
    """Copies on streams of a CUDA device, in the order that the module describes."""

    def __init__(self, words: int, device: str) -> None:
        super().__init__(words, device)
        self._staged = [torch.empty_like(self.static) for _ in range(HOSTS)]
        self._compute, self._inward, self._outward = (torch.cuda.Stream(device) for _ in range(3))
        self._arrived = [torch.cuda.Event() for _ in range(HOSTS)]
        self._read = [torch.cuda.Event() for _ in range(HOSTS)]
        self._done, self._back = torch.cuda.Event(), torch.cuda.Event()

    def synchronize(self) -> None:
        """Wait for every stream: for the default one too, on which tensors are filled."""
        torch.cuda.synchronize(self.device)

    def next_host(self) -> int:
        """Return the index of the next host buffer; waits while it is still read."""
        index = super().next_host()
        if not self._arrived[index].query():
            self._arrived[index].synchronize()
        return index

    def send(self, index: int, words: int) -> None:
        """Copy from host to staged to static, as above."""
        self.sends += 1
        static, *others = self._first(words)
        host, staged = others[index], others[HOSTS + index]
        with torch.cuda.stream(self._inward):
            self._inward.wait_event(self._read[index])
            staged.copy_(host, non_blocking=True)
            self._arrived[index].record()
        with torch.cuda.stream(self._compute):
            self._compute.wait_event(self._arrived[index])
            static.copy_(staged)
            self._read[index].record()

    @property
    def _buffers(self) -> list[Tensor]:
        return [self.static, *self.hosts, *self._staged]

    def computing(self) -> AbstractContextManager[object]:
        """Return the compute stream's context."""
        return torch.cuda.stream(self._compute)

    def fetch(self, results: Tensor, host: Tensor) -> None:
        """Copy on the outward stream, after the compute so far."""
        self._done.record(self._compute)
        with torch.cuda.stream(self._outward):
            self._outward.wait_event(self._done)
            host.copy_(results, non_blocking=True)
            self._back.record()

    def wait(self) -> None:
        """Wait for the last copy out."""
        self._back.synchronize()
        self.waits += 1


def copies_for(words: int, device: str) -> Transfers:
    """Return copies on streams where the device has them."""
    return (StreamedTransfers if device.startswith("cuda") else Transfers)(words, device)
