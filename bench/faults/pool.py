"""Pool of real targets and drafts on loopback, every draft behind a proxy of its own.

Each worker has one thread, and links are gRPC: shared memory would go past the proxies.
"""

import contextlib
import dataclasses
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.faults.plan import Fault, Kind
from bench.swiftspec.sides import settings_of
from outrider.contract.settings import Dtype, LinkTransport, PolicySettings, Role, WorkerSettings
from outrider.contract.sources import SourceKind
from outrider.operator.spec import Placement, SpeculativeService
from tests.ports import free_port
from tests.process import workers
from tests.process.proxy import Proxy
from tests.process.workers import Worker

START_SECONDS = 900.0
"""Longest that a worker may take to start: the first of a clone compiles and times its kernels."""


@dataclass(slots=True)
class PooledDraft:
    """One draft, the way to it, and what can happen to both."""

    worker: Worker
    proxy: Proxy
    folder: Path
    """Folder of settings and logs."""

    def begin(self, fault: Fault) -> None:
        """Let a fault happen."""
        match fault.kind:
            case Kind.KILLED:
                self.worker.kill_all()
            case Kind.STOPPED:
                self.worker.signal_all(signal.SIGSTOP)
            case Kind.PARTITIONED:
                self.proxy.partition()
            case Kind.DELAYED:
                self.proxy.delay = fault.delay

    def end(self, fault: Fault) -> None:
        """Undo it; return once the draft is back: one that was killed is ready."""
        match fault.kind:
            case Kind.KILLED:
                self.worker.client.close()
                self.worker = workers.launch(self.worker.settings, self.folder)
                self.worker.until(lambda state: state.ready, START_SECONDS)
            case Kind.STOPPED:
                self.worker.signal_all(signal.SIGCONT)
            case Kind.PARTITIONED:
                self.proxy.heal()
            case Kind.DELAYED:
                self.proxy.delay = 0.0

    def stop(self) -> None:
        """End it, whatever has happened to it."""
        if self.worker.process.poll() is None:
            self.worker.signal_all(signal.SIGCONT)
        workers.stop(self.worker)


@dataclass(frozen=True, slots=True)
class Pool:
    """Targets and drafts that run."""

    targets: tuple[Worker, ...]
    drafts: tuple[PooledDraft, ...]

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where targets reach the drafts, in their order."""
        return tuple(draft.proxy.address for draft in self.drafts)

    def pair(self) -> None:
        """Link every target to every draft; drafting stays on, and nothing else is a source."""
        for target in self.targets:
            policy = target.settings.policy
            target.client.set_policy(
                dataclasses.replace(
                    policy,
                    version=target.client.state().policy.version + 1,
                    drafts=self.addresses,
                    off_below_percent=0,
                    sources=(SourceKind.DRAFT,),
                )
            )
        for target in self.targets:
            target.until(lambda state: len(workers.up_links(state)) == len(self.drafts))


@contextlib.contextmanager
def running(
    service: SpeculativeService, targets: int, drafts: int, users: int, folder: Path
) -> Iterator[Pool]:
    """Start a pool, unpaired, until the block is left; `users`: of each target at once.

    All targets take the numeric path that the first has chosen: their texts are compared.
    """
    settings = settings_of(service, Placement.SEPARATE, 1)
    own = settings[Role.TARGET]
    with contextlib.ExitStack() as stack:
        first = _target(stack, alone(own, users), folder)
        dtype = Dtype(first.client.state().dtype)
        like = dataclasses.replace(own, model=dataclasses.replace(own.model, dtype=dtype))
        others = [_target(stack, alone(like, users), folder) for _ in range(targets - 1)]
        pooled = [
            _draft(stack, alone(settings[Role.DRAFT], targets * users), folder)
            for _ in range(drafts)
        ]
        yield Pool((first, *others), tuple(pooled))


def alone(settings: WorkerSettings, running: int) -> WorkerSettings:
    """Return settings of a worker on ports of its own, with room for so many, linked to nothing."""
    return dataclasses.replace(
        settings,
        listen=f"127.0.0.1:{free_port()}",
        http_listen=f"127.0.0.1:{free_port()}",
        link=LinkTransport.GRPC,
        link_dir=None,
        threads=1,
        processors=(),
        other_processors=(),
        max_running=running,
        policy=dataclasses.replace(settings.policy, drafts=())
        if settings.role is Role.TARGET
        else PolicySettings(),
    )


def _target(stack: contextlib.ExitStack, settings: WorkerSettings, folder: Path) -> Worker:
    worker = stack.enter_context(workers.started(settings, folder, ready=False))
    worker.until(lambda state: state.ready, START_SECONDS)
    return worker


def _draft(stack: contextlib.ExitStack, settings: WorkerSettings, folder: Path) -> PooledDraft:
    worker = workers.launch(settings, folder)
    proxy = Proxy(worker.address)
    draft = PooledDraft(worker, proxy, folder)
    stack.callback(draft.stop)
    stack.enter_context(proxy)
    worker.until(lambda state: state.ready, START_SECONDS)
    return draft
