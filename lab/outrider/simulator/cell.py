"""Cell: targets, their drafts, and the links between them, in virtual time.

A whole service, or the part of a fleet that is simulated. Leaves building workers to `workers`,
requests to `clients`, the control loop to `control_loop`, and what it all comes to to `figures`.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from outrider.contract.settings import PolicySettings, Role
from outrider.simulator.clock import Clock
from outrider.simulator.costs import pass_times
from outrider.simulator.description import Simulation
from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.language import Pair
from outrider.simulator.workers import DraftWorker, StartSelector, TargetWorker, WorkerParts
from outrider.worker.link.wire import FromDraft, FromTarget
from outrider.worker.messages import Drain, FromPeer, LinkDown, LinkUp, SetPolicy
from outrider.worker.target.selection import RowSelector

DRAIN_SECONDS = 1.0
"""Seconds from the wish to stop a draft to its end."""


class Cell:
    """The workers of one cell and their links; all drafts are linked at the start."""

    def __init__(
        self,
        simulation: Simulation,
        policy: PolicySettings,
        folder: Path,
        hear: Callable[[Any], None],
        number: int = 0,
        start_selector: StartSelector = RowSelector.start,
    ) -> None:
        """Make cell `number`; step costs are taken from `folder`. Raises `SpecError`.

        `hear` is told what targets send to their clients. `start_selector` makes what selects the
        node rows of each target.
        """
        self.clock, draft = Clock(), simulation.draft
        self._start_seconds = 0.0 if draft is None else draft.start_seconds
        self._lag = 0.0 if draft is None else draft.link.microseconds / 1e6
        self._contention = 1.0 if draft is None else draft.contention
        self._numbers, self._links = itertools.count(), itertools.count(1)
        self._routes: dict[int, tuple[TargetWorker, DraftWorker]] = {}
        self._blueprint = WorkerParts(
            clock=self.clock,
            pair=Pair.of(**simulation.pair.model_dump()),
            target=simulation.target,
            target_times=pass_times(simulation.target, Role.TARGET, folder),
            draft=draft,
            draft_times=None if draft is None else pass_times(draft, Role.DRAFT, folder),
            policy=policy,
            seed=simulation.seed,
            start_selector=start_selector,
        )
        first = number * simulation.cell_targets
        self.targets = [
            self._blueprint.target_worker(first + n, self._send_to_draft, hear)
            for n in range(simulation.cell_targets)
        ]
        self.drafts: list[DraftWorker] = []
        """All lives of drafts so far."""
        if self._contention > 1:
            for target in self.targets:
                target.engine.slow_beside(self._draft_engines, self._contention)
        for _ in range(simulation.cell_drafts):
            self._link(self._new_draft())

    @property
    def present_drafts(self) -> list[DraftWorker]:
        """Drafts that have been asked for and have not ended."""
        return [draft for draft in self.drafts if draft.ended_at is None]

    def scale(self, wanted: int) -> None:
        """Start or stop drafts until so many are asked for."""
        alive = [draft for draft in self.present_drafts if not draft.stopping]
        for draft in alive[wanted:]:
            draft.stopping = True
            draft.engine.receive(Drain())
            self.clock.after(DRAIN_SECONDS, self._end, draft)
        for _ in range(wanted - len(alive)):
            self.clock.after(self._start_seconds, self._link, self._new_draft())

    def push(self, policy: PolicySettings) -> None:
        """Give all targets a policy."""
        for target in self.targets:
            target.engine.receive(SetPolicy(policy))

    def _new_draft(self) -> DraftWorker:
        draft = self._blueprint.draft_worker(next(self._numbers), self._send_to_target)
        self.drafts.append(draft)
        if self._contention > 1:
            draft.engine.slow_beside(self._target_engines, self._contention)
        return draft

    def _draft_engines(self) -> Iterator[SimulatedEngine]:
        return (draft.engine for draft in self.drafts)

    def _target_engines(self) -> Iterator[SimulatedEngine]:
        return (target.engine for target in self.targets)

    def _link(self, draft: DraftWorker) -> None:
        """Link a draft that is ready with every target."""
        if draft.stopping:
            return
        draft.ready, allowed = True, self._blueprint.all_tokens
        for target in self.targets:
            number = next(self._links)
            self._routes[number] = target, draft
            draft.links[number] = target
            target.links += 1
            draft.engine.receive(LinkUp(number, allowed))
            target.engine.receive(LinkUp(number, allowed, draft.room))

    def _end(self, draft: DraftWorker) -> None:
        """End a draft: its targets lose their links to it."""
        draft.ended_at, draft.ready = self.clock.now, False
        draft.engine.stop()
        for number, target in draft.links.items():
            del self._routes[number]
            target.links -= 1
            target.engine.receive(LinkDown(number))
        draft.links.clear()

    def _send_to_draft(self, link: int, message: FromTarget) -> None:
        self.clock.after(self._lag, self._deliver, link, 1, (message,))

    def _send_to_target(self, link: int, messages: Sequence[FromDraft]) -> None:
        self.clock.after(self._lag, self._deliver, link, 0, messages)

    def _deliver(
        self, link: int, side: int, messages: Sequence[FromTarget] | Sequence[FromDraft]
    ) -> None:
        route = self._routes.get(link)
        if route is not None:
            route[side].engine.receive(FromPeer(link, messages, self.clock.now))
