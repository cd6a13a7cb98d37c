"""Rooms: services of tiny models that are attacked, each in another arrangement; their processes.

Three are served by `outrider run`: draft and target in one process, in two, and a target of two
stages. The fourth is a target whose drafts are behind relays: those of `outrider run` share memory,
past any relay.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx

from bench.faults.pool import PooledDraft
from outrider.client import AsyncClient, ClientError, State
from outrider.contract.settings import LinkTransport, Role, WorkerSettings
from tests.process import workers
from tests.process.proxy import Proxy
from tests.process.service_run import serving
from tests.process.workers import Worker, pair_with, settings_for, up_links
from tests.tiny_models import write_draft_of, write_tiny

CONTEXT, RUNNING = 1024, 8
ANSWER_SECONDS = 10.0
"""Longest wait for what a worker says of itself: one that is stopped says nothing."""
QUEUE_SECONDS = 1200
"""So long that no request ends for having waited, on however busy a machine."""
SERVICE = f"""
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {{{{name: tiny}}}}
spec:
  target:
    model: {{{{uri: "file://{{target}}", servedName: tiny}}}}
    engine: {{{{dtype: fp32, threads: 1,
      maxRunning: {RUNNING}, maxContext: {CONTEXT}, kvMemory: {{memory}}}}}}
    requests: {{{{maxQueueSeconds: {QUEUE_SECONDS}, maxSeconds: {QUEUE_SECONDS}}}}}
    {{cut}}
  draft:
    model: {{{{uri: "file://{{draft}}"}}}}
    engine: {{{{dtype: fp32}}}}
    placement: {{placement}}
  speculation: {{{{mode: Static}}}}
"""
STAGES = "parallelism: {pipeline: 2}\n    pipeline: {cut: [1, 1]}"
SHORT, SHORT_WITH_DRAFT = "1Mi", "3Mi"
"""Memory for the KV of one or two whole contexts, the latter beside a draft and its own: of eight
requests, some give theirs back."""


class Models(NamedTuple):
    """Folders of the checkpoints that all rooms serve."""

    target: Path
    draft: Path

    @classmethod
    def write(cls, folder: Path) -> "Models":
        """Write both; the draft is often right."""
        target = write_tiny(folder / "target", tie_word_embeddings=False)
        return cls(target, write_draft_of(target, folder / "draft"))


class Figures(NamedTuple):
    """What one process holds of the system."""

    descriptors: int
    threads: int
    memory_files: int
    """Files of memory that it shares with others."""


@dataclass(frozen=True, slots=True)
class Links:
    """A target and the relays between it and its drafts."""

    target: Worker
    drafts: tuple[PooledDraft, ...]

    def pair(self, *others: str) -> None:
        """Link the target to its drafts, and to `others` first, without waiting."""
        relays = [draft.proxy.address for draft in self.drafts]
        pair_with(self.target, *others, *relays, up=False)


@dataclass(frozen=True, slots=True)
class Room:
    """One service that runs."""

    folder: Path
    """Its home; the folder of its temporary files, by which its processes are known, is in it."""
    http: str
    """Host and port of the HTTP API: `host:port`."""
    workers: Mapping[str, str]
    """Address of gRPC by name: `target`, and drafts."""
    links: Links | None = None
    names: set[str] = field(default_factory=set)
    """Names of all processes of the room, once it has been seen whole."""

    @property
    def base(self) -> str:
        """Where it answers HTTP."""
        return f"http://{self.http}"

    def processes(self) -> dict[str, int]:
        """Return the process ids of its workers, by name."""
        words = {pid: words for pid, words in marked(self.folder) if "outrider.worker" in words}
        names = {pid: self._name(given) for pid, given in words.items() if "--settings" in given}
        for pid, given in words.items():
            if pid not in names:
                verb = given[given.index("outrider.worker") + 1]
                names[pid] = f"{names.get(parent(pid), 'orphaned')} {verb}"
        return {name: pid for pid, name in names.items()}

    def _name(self, words: list[str]) -> str:
        file = Path(words[words.index("--settings") + 1])
        try:
            listen = WorkerSettings.from_json(file.read_text()).listen
        except FileNotFoundError:  # of a stage whose worker has ended
            listen = ""
        return next((name for name, at in self.workers.items() if at == listen), file.stem)

    def figures(self) -> dict[str, Figures]:
        """Return what each of its processes holds."""
        return {name: figures(pid) for name, pid in self.processes().items()}

    async def states(self) -> dict[str, State | None]:
        """Return what each worker says of itself; None: nothing."""
        return {name: await state(address) for name, address in self.workers.items()}

    async def missing(self, killed: int | None = None) -> str:
        """Say what is not as it should be; nothing: every process is there, ready and linked.

        The worker of one that was `killed` may not have noticed yet, and say that all is well.
        """
        processes = self.processes()
        if killed in processes.values():
            return f"the end of process {killed}"
        if self.names and (gone := self.names ^ processes.keys()):
            return f"processes {sorted(gone)}"
        states = await self.states()
        if silent := [name for name, said in states.items() if said is None or not said.ready]:
            return f"readiness of {silent}"
        target = states["target"]
        assert target is not None
        if len(up_links(target)) < len(self.workers) - 1:
            return f"links: {[(one.state.value, one.detail) for one in target.links]}"
        if target.stages is not None and not target.stages.up:
            return f"stages: {target.stages.detail}"
        return await self._unready()

    async def _unready(self) -> str:
        async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS) as client:
            try:
                answer = await client.get(f"{self.base}/readyz")
            except httpx.HTTPError as error:
                return f"/readyz: {error!r}"
        return "" if answer.is_success else f"/readyz: {answer.text}"


async def state(address: str) -> State | None:
    """Return the state of a worker; None where it says nothing."""
    host, _, port = address.rpartition(":")
    try:  # gRPC, once it was refused, asks again after a minute
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return None
    writer.close()
    async with AsyncClient(address) as client:
        with contextlib.suppress(ClientError):
            return await client.state(timeout=ANSWER_SECONDS)
    return None


def marked(folder: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield all processes, and their words, whose temporary files go to a room's folder."""
    mark = f"TMPDIR={temporary(folder)}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name), (entry / "cmdline").read_text().split("\0")


def parent(pid: int) -> int:
    """Return the process that started one; 0 if it has ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def figures(pid: int) -> Figures:
    """Return what a process holds; raises `OSError` if it has ended."""
    process = Path(f"/proc/{pid}")
    shared = re.findall(r" (\d+) +/memfd:outrider", (process / "maps").read_text())
    return Figures(
        len(list((process / "fd").iterdir())), len(list((process / "task").iterdir())),
        len(set(shared)),
    )  # fmt: skip


def temporary(folder: Path) -> Path:
    """Return where the processes of a room put temporary files."""
    return folder / "tmp"


@contextlib.contextmanager
def opened(name: str, models: Models, folder: Path) -> Iterator[Room]:
    """A room of `ROOMS`, until the block is left; raises `AssertionError` for an end that is not
    orderly."""
    temporary(folder).mkdir(parents=True)
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(temporary(folder))
    try:
        with ROOMS[name](models, folder) as room:
            yield room
    finally:
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before


@contextlib.contextmanager
def run(placement: str, memory: str, cut: str, models: Models, folder: Path) -> Iterator[Room]:
    """`outrider run`."""
    file = folder / "service.yaml"
    fields = {"placement": placement, "memory": memory, "cut": cut}
    file.write_text(SERVICE.format(target=models.target, draft=models.draft, **fields))
    with serving(file, folder) as service:
        found = re.findall(r"^ +tiny-(\w+)-0 +(\S+), process \d+$", service.said, re.MULTILINE)
        http = service.found(r"OpenAI API at http://(\S+)/v1\n")
        yield Room(folder, http, dict(found) | {"target": service.address})


@contextlib.contextmanager
def relayed(models: Models, folder: Path) -> Iterator[Room]:
    """Workers that nobody starts again, and a relay before each draft."""
    settings = {
        "max_context": CONTEXT,
        "max_running": RUNNING,
        "queue_seconds": QUEUE_SECONDS,
        "link": LinkTransport.GRPC,
    }
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(plain_target(models, folder, **settings))
        drafts = []
        for _ in range(2):
            worker = workers.launch(
                settings_for(Role.DRAFT, models.draft, folder / "cache", **settings), folder
            )
            relay = Proxy(worker.address)
            drafts.append(PooledDraft(worker, relay, folder))
            stack.callback(drafts[-1].stop)
            stack.enter_context(relay)
            worker.until(lambda state: state.ready)
        links = Links(target, tuple(drafts))
        links.pair()
        addresses = {f"draft {n}": one.worker.address for n, one in enumerate(drafts)}
        yield Room(
            folder, target.settings.http_listen, {"target": target.address} | addresses, links
        )


def plain_target(
    models: Models, folder: Path, **settings: object
) -> AbstractContextManager[Worker]:
    """Return a target alone."""
    return workers.started(
        settings_for(Role.TARGET, models.target, folder / "cache", **settings), folder
    )


ROOMS: Mapping[str, Callable[[Models, Path], AbstractContextManager[Room]]] = {
    "one process": partial(run, "Colocated", SHORT_WITH_DRAFT, ""),
    "two processes": partial(run, "Separate", SHORT, ""),
    "two stages": partial(run, "Separate", SHORT, STAGES),
    "relayed links": relayed,
}
