"""The control loop of a local run: the same decisions as in a cluster, done to processes.

Asks every worker, decides, tells the targets, and rests or wakes drafts. Level-triggered: a change
only wakes it, and everything is read from the supervisors then. Decisions are `control`'s.
"""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

from outrider.cli.terminal.progress import StageReporter
from outrider.cli.workers.supervisor import Supervisor
from outrider.client.errors import ClientError
from outrider.contract.settings import Role
from outrider.contract.state import Link, LinkState, State
from outrider.operator.control import memory, policy
from outrider.operator.control.inputs import ControlInputs, Decision
from outrider.operator.control.memory import PolicyInForce
from outrider.operator.control.scrapes import Scrapes
from outrider.operator.control.settings import ControlSettings
from outrider.operator.workers.sample import sample

ASK_TIMEOUT = 5.0
AGAIN_SECONDS = 0.5
POLL_SECONDS = 0.05

States = Mapping[str, State]
"""What each worker that serves has said, by its name."""


class LocalControlLoop:
    """One plan's policy and drafts, while it runs."""

    def __init__(
        self,
        supervisors: Sequence[Supervisor],
        settings: ControlSettings,
        progress: StageReporter,
        grace: float,
    ) -> None:
        """`grace`: seconds that a draft has to end."""
        self._supervisors = supervisors
        self._settings = settings
        self._progress = progress
        self._grace = grace
        self._wake = asyncio.Event()
        self._scrapes = Scrapes()
        self._looked_at = -math.inf
        in_force = PolicyInForce(version=0, speculate=True, max_rows=settings.max_rows)
        self._memory = memory.new_memory(settings, time.monotonic(), in_force)

    def changed(self) -> None:
        """Some worker's health or address changed."""
        self._wake.set()

    async def keep(self) -> NoReturn:
        """A pass after each change and each interval; ends only by cancellation."""
        while True:
            seconds = AGAIN_SECONDS
            self._wake.clear()
            if await self._pass():
                seconds = float(self._settings.interval_seconds)
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _pass(self) -> bool:
        """Observe, decide and apply; False if a target did not take the policy."""
        now = time.monotonic()
        states = await self._ask()
        self._look(states, now)
        decision = policy.decide(self._settings, self._memory, self._seen(states, now), now)
        self._memory = decision.memory
        for happened in decision.transitions:
            self._progress.note(happened.sentence)
        targets = [s for s in self._of(Role.TARGET) if s.worker.links and s.serving]
        done = all([await self._tell(target, states, decision) for target in targets])
        await self._scale(decision)
        return done

    async def _ask(self) -> States:
        """The state of each worker that serves and answers."""
        asked = [s for s in self._supervisors if s.serving]
        answers = await asyncio.gather(*(s.state(ASK_TIMEOUT) for s in asked))
        pairs = zip(asked, answers, strict=True)
        return {s.worker.name: state for s, state in pairs if state is not None}

    def _look(self, states: States, now: float) -> None:
        if now - self._looked_at >= self._settings.interval_seconds:
            samples = [sample(state, name, now) for name, state in states.items()]
            names = {s.worker.name for s in self._supervisors}
            self._scrapes = self._scrapes.add(samples, names, now)
            self._looked_at = now

    def _seen(self, states: States, now: float) -> ControlInputs:
        targets = [s for s in self._of(Role.TARGET) if s.serving]
        drafts = self._of(Role.DRAFT)
        serving = [s for s in drafts if s.serving]
        addresses = {s.address for s in serving}
        stale = float(self._settings.stale_after_seconds)
        known = [states[s.worker.name] for s in targets if s.worker.name in states]
        links = [link for state in known for link in state.links if link.address in addresses]
        return ControlInputs(
            window=self._scrapes.window([s.worker.name for s in targets], now, stale),
            gains=self._scrapes.gains,
            starting=self._scrapes.starting,
            targets=len(self._of(Role.TARGET)),
            drafts_desired=sum(s.wanted for s in drafts),
            drafts_actual=sum(s.wanted or s.serving for s in drafts),
            drafts_ready=len(serving),
            links_up=sum(link.state is LinkState.UP for link in links),
            links_expected=sum(s.worker.name in t.worker.links for t in targets for s in serving),
            sessions=self._scrapes.sessions([s.worker.name for s in serving], now, stale),
            acknowledged=min((state.policy.version for state in known), default=0),
            others=" ".join(sorted(addresses)),
        )

    async def _tell(self, target: Supervisor, states: States, decision: Decision) -> bool:
        """Give a target the policy in force; False if it serves and did not take it."""
        version = decision.memory.version
        state = states.get(target.worker.name)
        if state is not None and state.policy.version >= version:
            return True
        wanted = decision.policy(target.worker.settings.policy, self._drafts(target))
        async with target.client(ASK_TIMEOUT) as client:
            try:
                await client.set_policy(wanted)
            except ClientError as error:
                if not target.serving:  # it died meanwhile; its next life wakes us again
                    return True
                self._progress.note(f"{target.worker.name} did not take its policy: {error}")
                return False
        self._wake.set()  # to see that it was taken
        return True

    async def _scale(self, decision: Decision) -> None:
        """Let as many drafts run as are wanted, the first ones."""
        if decision.draft_replicas is None:
            return
        for place, draft in enumerate(self._of(Role.DRAFT)):
            if place < decision.draft_replicas:
                draft.resume()
            elif draft.wanted:
                await draft.rest(self._grace)

    def _drafts(self, target: Supervisor) -> tuple[str, ...]:
        """Return the addresses of the drafts of this target that serve now."""
        names = target.worker.links
        return tuple(s.address for s in self._supervisors if s.worker.name in names and s.serving)

    def _of(self, role: Role) -> list[Supervisor]:
        return [s for s in self._supervisors if s.worker.role is role]

    async def linked(self, target: Supervisor, seconds: float) -> tuple[Link, ...]:
        """Wait until each draft of a target is linked or refused, at most `seconds`; the links."""
        deadline = time.monotonic() + seconds
        links: tuple[Link, ...] = ()
        async with target.client(seconds) as client:
            while time.monotonic() < deadline:
                links = (await client.state()).links
                settled = sum(link.state in (LinkState.UP, LinkState.REFUSED) for link in links)
                if settled >= len(target.worker.links):
                    break
                await asyncio.sleep(POLL_SECONDS)
        return links
