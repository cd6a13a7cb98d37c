"""The workers of a plan as processes on this machine.

Decides nothing: which workers there are is `outrider.operator.plan`'s.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar

from outrider.cli.failures import BadInput, WorkerFailed
from outrider.cli.machine import gpus
from outrider.cli.machine.ports import HOST, WantedPorts
from outrider.cli.machine.run_dir import RunFolder
from outrider.cli.models.pairing import pairing
from outrider.cli.undecided import Undecided
from outrider.cli.workers.compilation import beside, compile_kernels
from outrider.cli.workers.control_loop import LocalControlLoop
from outrider.cli.workers.output import ask_worker
from outrider.cli.workers.prepared_models import is_prepared, note_of, write_note
from outrider.cli.workers.process import NOTHING
from outrider.cli.workers.supervisor import Launch, StartOptions, Supervisor, cancel
from outrider.contract.settings import Role
from outrider.contract.state import EngineState, LinkState, State
from outrider.operator.plan import Plan

Done = TypeVar("Done")
GRACE_SECONDS = 12.0
"""Until SIGKILL; a worker gives running requests 10 seconds of its own."""
LINK_SECONDS = 10.0
"""Longest wait for the first links; answers go on without them."""
STATE_SECONDS = 2.0
"""Longest wait for what a worker says of itself."""
NO_HTTP = WantedPorts()
Decide = Callable[[Undecided, Undecided | None], Awaitable[Plan]]
"""Measures the first target and its draft, and returns the plan to go on with."""


class LocalWorkers:
    """The workers of one plan. Use as `async with`; inside, `run` keeps them alive."""

    def __init__(
        self,
        plan: Plan,
        start: StartOptions,
        *,
        ports: WantedPorts = NO_HTTP,
        grace: float = GRACE_SECONDS,
        decide: Decide | None = None,
    ) -> None:
        """`ports` are the first target's; others take free ones, for HTTP only if it has one.
        `grace`: seconds to finish requests. `decide`: the plan's workers await an arrangement by
        it."""
        self._decide = decide
        self._ports = ports
        self._progress = start.progress
        self._grace = grace
        self._command = start.command
        self.folder = RunFolder(start.folder)
        self.supervisors: list[Supervisor] = []
        self._take(plan)

    @property
    def targets(self) -> tuple[Supervisor, ...]:
        """The workers that answer."""
        return tuple(s for s in self.supervisors if s.worker.role is Role.TARGET)

    @property
    def target(self) -> Supervisor:
        """The first of them."""
        return self.targets[0]

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the targets answer, for a client that balances over them."""
        return tuple(s.address for s in self.targets)

    async def __aenter__(self) -> Self:
        """Prepare models and start the workers; all serve on return."""
        try:
            for supervisor in self.supervisors:
                supervisor.check_ports()  # first: models take a minute to load
            first = await self._prepare()
            if self._decide is not None:
                await self._settle(self._decide)
            if first or gpus.present():
                await self._start_in_turn()
            else:
                await self._start_together()
        except BaseException as error:
            await self._close(error)
            if isinstance(error, WorkerFailed):
                self._forget_prepared()
            raise
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        await self._close(error)

    async def run(self, work: Callable[[], Awaitable[Done]]) -> Done:
        """Do `work` once the links are up, while crashed workers are started again."""
        keepers = [asyncio.ensure_future(s.keep()) for s in self.supervisors]
        keepers.append(asyncio.ensure_future(self._control_loop.keep()))
        working = asyncio.ensure_future(self._linked_then(work))
        try:
            await asyncio.wait({working, *keepers}, return_when=asyncio.FIRST_COMPLETED)
            for keeper in keepers:
                if keeper.done():
                    keeper.result()  # raises: a keeper never returns
            return working.result()
        finally:
            await cancel(working, *keepers)

    async def target_state(self) -> State | None:
        """The state of the first target; None where it does not answer."""
        return await self.target.state(STATE_SECONDS)

    async def tell_paths(self) -> None:
        """Say which numeric path each model takes, and what the others would cost.

        Nothing of a worker that is down: it has been told of, and starts again.
        """
        for supervisor in self.supervisors:
            state = await supervisor.state(STATE_SECONDS)
            if state is not None and state.engine is not None and state.engine.path_seconds:
                self._progress.note(numeric_path(supervisor.worker.name, state.engine))

    async def _prepare(self) -> bool:
        """Prepare the models that were not prepared before, one after the other; kernels are
        compiled meanwhile, to no end if the draft cannot be used. Return whether there was one."""
        missing = False
        settings = [worker.settings for worker in self._plan.preparations]
        command, folder, progress = self._command, self.folder, self._progress
        async with beside(compile_kernels(settings, command, folder, progress)):
            for worker in self._plan.preparations:
                note = note_of(worker.settings, command)
                if not is_prepared(note):
                    missing = True
                    said = await ask_worker(
                        "prepare", worker.name, worker.settings, command, folder, progress
                    )
                    write_note(note, said)
            await self._pair()  # before kernels are compiled, which takes minutes
        return missing

    async def _pair(self) -> None:
        """Say how a draft of another tokenizer drafts; raise `BadInput` for one that cannot."""
        target = self.target.worker.settings
        others = (s.worker.settings for s in self.supervisors if s.worker.role is Role.DRAFT)
        draft = target.colocated or next((one.model for one in others), None)
        if draft is None:
            return
        found = await pairing(target.model, draft, target.cache, self._command, self.folder)
        if found.refused:
            raise BadInput(f"{found}.")
        if words := str(found):
            self._progress.note(f"{words}.")

    def _take(self, plan: Plan) -> None:
        """Supervise the workers of a plan; those that are supervised already stay what they are."""
        self._plan = plan
        first, known = plan.of(Role.TARGET)[0], {s.worker.name: s for s in self.supervisors}
        visible = gpus.share(plan, gpus.present(), os.environ)
        self.supervisors = [
            known.get(worker.name)
            or Supervisor(
                worker,
                Launch(self._command, self.folder, visible.get(worker.name, NOTHING)),
                self._ports if worker is first else further_ports(self._ports, worker.role),
                self._progress,
                lambda: self._control_loop.changed(),
            )
            for worker in plan.workers
        ]
        self._control_loop = LocalControlLoop(
            self.supervisors, plan.control, self._progress, self._grace
        )

    async def _settle(self, decide: Decide) -> None:
        """Start the workers, have them measured, and let those of the plan that follows serve, in
        its order; the others end."""
        waiting = {s.worker.name: Undecided.start(s) for s in self.supervisors}
        try:
            drafts = [one for one in waiting.values() if one.supervisor.worker.role is Role.DRAFT]
            plan = await decide(waiting[self.target.worker.name], drafts[0] if drafts else None)
            planned = {worker.name: worker for worker in plan.workers}
            for name in waiting.keys() - planned.keys():
                await waiting.pop(name).end(self._grace)
            self._take(plan)
            for supervisor in self.supervisors:
                name = supervisor.worker.name
                if name in waiting:
                    await waiting[name].arrange(planned[name])
        finally:
            await cancel(*(one.starting for one in waiting.values()))

    async def _start_in_turn(self) -> None:
        """Start one worker after the other, in the plan's order: a first start measures passes for
        seconds, beside which nothing else should run, and workers that share a GPU take what the
        one before has left of its memory."""
        for supervisor in self.supervisors:
            if not supervisor.serving:
                await supervisor.start()

    async def _start_together(self) -> None:
        """Start all workers that do not serve yet at once; end these starts where one fails."""
        try:
            async with asyncio.TaskGroup() as group:
                for supervisor in self.supervisors:
                    if not supervisor.serving:
                        group.create_task(supervisor.start())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    def _forget_prepared(self) -> None:
        """Have the next start prepare all models: one that fails may have lost a part of them."""
        for worker in self._plan.preparations:
            with contextlib.suppress(OSError):
                note_of(worker.settings, self._command).unlink()

    async def _linked_then(self, work: Callable[[], Awaitable[Done]]) -> Done:
        await asyncio.gather(*(self._link(s) for s in self.targets if s.worker.links))
        self._progress.started()
        return await work()

    async def _link(self, target: Supervisor) -> None:
        name = target.worker.name
        self._progress.stage(name, "linking")
        links = await self._control_loop.linked(target, LINK_SECONDS)
        self._progress.finish(name)
        for link in links:
            if link.state is not LinkState.UP:
                self._progress.note(f"{name} has no link to a draft: {link.state}. {link.detail}")

    async def _close(self, error: BaseException | None) -> None:
        """End all workers, targets first, so that what runs there finishes with its draft."""
        self._progress.clear()
        for role in (Role.TARGET, Role.DRAFT):
            group = [s for s in self.supervisors if s.worker.role is role]
            await asyncio.gather(*(s.stop(self._grace) for s in group))
        orderly = error is None or isinstance(error, asyncio.CancelledError | BadInput)
        if orderly and not any(s.restarts for s in self.supervisors):
            self.folder.remove()


def numeric_path(name: str, engine: EngineState) -> str:
    """One sentence on the numeric path that `dtype: auto` took, with what it was compared to."""
    by_cost = sorted(engine.path_seconds.items(), key=lambda item: item[1])
    costs = {path: f"{1e3 * seconds:.2f} ms" for path, seconds in by_cost}
    others = ", ".join(f"{path} {cost}" for path, cost in costs.items() if path != engine.dtype)
    others = others or "no other was eligible on this processor"
    taken = costs.get(engine.dtype, "not measured")
    return f"{name} computes in {engine.dtype} (a pass, when measured: {taken}; {others})."


def further_ports(ports: WantedPorts, role: Role) -> WantedPorts:
    """Return the ports of a worker that is not the first target: any free ones. Drafts have no
    clients, and stay on loopback."""
    free = ports._replace(grpc=0, http=None if ports.http is None else 0)
    return free if role is Role.TARGET else free._replace(host=HOST, page=False)
