"""One pass over one service: observe, decide, desired, apply, report. Level-triggered, idempotent.

Reads watch caches and what workers have answered, and writes only what differs. Everything that
decisions depend on is stored in the cluster, so a pass may be interrupted after any step. Where
the last pass had nothing to do, one with the same inputs ends once it has decided. The work queue
calls it. Leaves asking workers to tasks that no pass waits for.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence

from outrider.contract.settings import Role
from outrider.operator.apply import deletion_costs
from outrider.operator.apply.applier import Applier
from outrider.operator.cluster.claim_gate import ClaimGate
from outrider.operator.cluster.claims import LOOK_SECONDS
from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.interfaces import ClaimReader, ClusterReader, ClusterWriter
from outrider.operator.cluster.kinds import ServiceKey
from outrider.operator.control import policy
from outrider.operator.manifests.desired import Platform, unproven, unserved
from outrider.operator.manifests.replicas import foreign_owners, seeds
from outrider.operator.manifests.termination import target_seconds
from outrider.operator.observed.service import Object, Observed
from outrider.operator.plan import control
from outrider.operator.server.metrics import OperatorMetrics
from outrider.operator.service_state import REST_SECONDS, Rest, ServiceState
from outrider.operator.spec.document import SpecError
from outrider.operator.spec.service import SpeculativeService
from outrider.operator.status.view import View
from outrider.operator.work_queue import Retry
from outrider.operator.workers.instructions import ask_states, drain_leaders, push_policy
from outrider.operator.workers.interfaces import PolledWorkers
from outrider.operator.workers.poll import control_inputs, policy_in_force

log = logging.getLogger(__name__)


class Reconciler:
    """Makes the cluster match the descriptions of its services."""

    def __init__(
        self,
        writer: ClusterWriter,
        reader: ClusterReader,
        workers: PolledWorkers,
        metrics: OperatorMetrics,
        platform: Platform,
        clock: Callable[[], float] = time.time,
        claims: ClaimReader | None = None,
    ) -> None:
        """`clock` gives seconds since the epoch; `claims` None: there is no other operator."""
        self._writer, self._reader, self._workers = writer, reader, workers
        self._metrics, self._platform, self._clock = metrics, platform, clock
        self._gate = ClaimGate(claims, writer)
        self._states: dict[ServiceKey, ServiceState] = {}
        metrics.services = lambda: {
            key: state.reporter.conditions for key, state in self._states.items()
        }

    def new(self, key: ServiceKey) -> bool:
        """True if a pass has every child to make: more requests than ten other passes."""
        return self._reader.service(key) is not None and not any(self._reader.children(key))

    async def prepare(self, key: ServiceKey) -> None:
        """Ask a service's workers where that is due, and wait a little for the answers: before a
        pass, whose place in the queue nobody holds who waits."""
        raw = self._service(key)
        if raw is None or self._workers.is_asked(key):
            return
        try:
            if not (await self._gate.claim(key)).is_ours:
                return
            state = self._state(key)
            await state.read_unwatched(raw)
            observed = state.observe(raw)
            service = state.reader.read(observed.raw)
        except (Retry, SpecError):  # the pass says it
            return
        await ask_states(self._workers, state.poll, observed, service, self._clock())

    async def reconcile(self, key: ServiceKey) -> float | None:
        """Run one pass; return seconds until the next at the latest, None where there is none.

        Raises `Retry` where the API server could not do all that was asked.
        """
        began = time.monotonic()
        try:
            seconds = await self._pass(key)
        except Exception as error:
            self._metrics.passes.labels(key[0], "error").inc()
            if not isinstance(error, Retry):
                self._metrics.errors.labels(key[0], type(error).__name__).inc()
                if key in self._states:
                    await self._states[key].report_broken(error)
            raise
        self._metrics.passes.labels(key[0], "ok").inc()
        self._metrics.seconds.observe(time.monotonic() - began)
        return seconds

    async def _pass(self, key: ServiceKey) -> float | None:
        raw = self._service(key)
        if raw is None:
            self._gate.forget(key)
            await self._forget(key)
            return None
        claim = await self._gate.claim(key)
        if not claim.is_ours:
            await self._forget(key)
            await self._gate.refuse(key, raw, claim.holder)
            return LOOK_SECONDS
        state = self._state(key)
        await state.read_unwatched(raw)
        observed = state.observe(raw)
        try:
            service = state.reader.read(observed.raw)
        except SpecError as error:
            await state.leave_invalid(observed, self._platform.signers, str(error))
            return REST_SECONDS if self._platform.certifies else None
        if (reports := self._workers.reports(key)) is not None:
            state.poll.record(observed, reports)
        await state.privileges.ask(self._writer, observed, self._clock())
        unwritten: Sequence[ClusterError] = ()
        view = self._decide(observed, service, state, claim.rival)
        rest = Rest.of(view)
        if not rest.continues(state.rest):
            state.rest, view = None, dataclasses.replace(view, wanted=view.desired)
            view = await self._apply(view, state)
            is_behind = await self._tell_workers(view, state)
            unwritten = await state.reporter.report(view)
            if view.has_done_nothing and state.reporter.is_current and not is_behind:
                state.rest = rest
        state.reporter.log(view)
        wait = state.end_pass(observed, service)
        state.reporter.check(observed, view.result.new_failures, unwritten, wait)
        return wait

    def _decide(
        self, observed: Observed, service: SpeculativeService, state: ServiceState, rival: str
    ) -> View:
        now, prices = self._clock(), self._platform.gpu_prices
        settings = control(service, prices=prices)
        owners = foreign_owners(observed, service, state.ownership, now)
        in_force = policy_in_force(observed, state.poll)
        memory, problem = policy.recall(observed.memory, settings, now, in_force)
        if problem is not None:
            log.warning("%s: %s; it starts anew", observed.owner.name, problem)
        inputs = control_inputs(observed, service, state.poll, Role.DRAFT in owners, now)
        return View(
            observed=observed,
            service=service,
            reader=state.reader,
            platform=self._platform,
            signers=self._platform.signers,
            rival=rival,
            admitted=state.privileges.admitted,
            unasked=state.privileges.unasked,
            poll=state.poll,
            foreign_owners=owners,
            decision=policy.decide(settings, memory, inputs, now),
            window=inputs.window,
            now=now,
        )

    async def _apply(self, view: View, state: ServiceState) -> View:
        """Apply the children, the ConfigMap with the decision among the first; return what is there
        afterwards, as far as the answers say it."""
        observed, failures = view.observed, state.failures
        await deletion_costs.write(self._writer, observed, view.replicas, state.poll.states)
        tried = unproven(view.service, self._platform)
        held = failures.held(observed.generation, self._clock())
        applier = Applier(self._writer, observed, state.applied, state.own_writes, tried, held)
        result = await applier.apply(view.wanted.objects, seeds(observed, view.service))
        result.refused |= unserved(view.service, self._platform)
        failures.learn(result.errors, result.held, observed.generation, self._clock())
        observed, now, failing = state.observe(observed.raw), self._clock(), failures.lasting
        return dataclasses.replace(view, observed=observed, now=now, result=result, failing=failing)

    async def _tell_workers(self, view: View, state: ServiceState) -> bool:
        """Tell the workers what is decided, once it is stored; return whether one was behind."""
        if not view.is_stored:
            return True
        is_behind = push_policy(self._workers, view.poll, view.observed, view.policy)
        seconds = target_seconds(view.service.spec.target.requests.max_seconds)
        drain_leaders(self._workers, view.poll, view.observed, seconds)
        await state.reporter.announce(view)
        return is_behind

    def _service(self, key: ServiceKey) -> Object | None:
        """Return a service that is there to stay."""
        raw = self._reader.service(key)
        return None if raw is None or "deletionTimestamp" in raw["metadata"] else raw

    def _state(self, key: ServiceKey) -> ServiceState:
        signs = self._platform.authorities is not None
        around = self._writer, self._reader, self._metrics, self._clock, signs
        return self._states.get(key) or self._states.setdefault(key, ServiceState(key, *around))

    async def _forget(self, key: ServiceKey) -> None:
        """Drop the state of a service that is gone; the cluster deletes what it owned."""
        state = self._states.pop(key, None)
        self._metrics.forget(*key)
        if state is not None:
            await self._workers.forget(state.poll.uids)
        await self._workers.forget_service(key)
