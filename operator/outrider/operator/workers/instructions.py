"""Questions and instructions of a pass to the workers of one service."""

import logging
from collections.abc import Callable

from outrider.client.errors import ClientError
from outrider.contract.settings import PolicySettings, Role
from outrider.contract.state import State
from outrider.operator.manifests.replicas import replicas_of_spec, shrinks
from outrider.operator.observed.members import leaders_to_drain
from outrider.operator.observed.pods import Pod
from outrider.operator.observed.service import Observed
from outrider.operator.spec.service import SpeculativeService
from outrider.operator.workers.interfaces import PolledWorkers
from outrider.operator.workers.poll import WorkerPoll, outdated

log = logging.getLogger(__name__)


async def ask_states(
    workers: PolledWorkers,
    poll: WorkerPoll,
    observed: Observed,
    service: SpeculativeService,
    now: float,
) -> None:
    """Ask workers for their states where that is due, as it is before targets shrink; wait a little
    for the answers."""
    targets = replicas_of_spec(observed, service, Role.TARGET)
    if shrinks(observed, targets) or poll.due(observed, service, now):
        before = poll.uids
        await workers.ask(observed.key, poll.question(observed, service, now))
        await workers.forget(before - poll.uids)


def push_policy(
    workers: PolledWorkers, poll: WorkerPoll, observed: Observed, wanted: PolicySettings
) -> bool:
    """Push a policy to every target that follows an older one; return whether there is any."""
    pods = [pod for pod in observed.pods_of(Role.TARGET) if pod.running]
    poll.unacknowledged &= {pod.uid for pod in pods}
    behind = [pod for pod in pods if outdated(poll, pod, wanted)]
    for pod in behind:
        workers.push(pod, wanted, _learning(poll, pod, wanted))
    return bool(behind)


def drain_leaders(
    workers: PolledWorkers, poll: WorkerPoll, observed: Observed, seconds: float
) -> None:
    """Have targets of whose replica another pod is about to end finish within `seconds`."""
    for pod in leaders_to_drain(observed, Role.TARGET):
        state = poll.states.get(pod.uid)
        if state is not None and not state.draining:
            workers.drain(pod, state.incarnation, seconds)


def _learning(
    poll: WorkerPoll, pod: Pod, policy: PolicySettings
) -> Callable[[State | ClientError], None]:
    """Return what records the outcome of a push; it logs the first failure and its end."""

    def learn(result: State | ClientError) -> None:
        known = pod.uid in poll.unacknowledged
        if isinstance(result, State):
            poll.learn(pod, result)
            poll.unacknowledged.discard(pod.uid)
            if known:
                log.info("%s takes policies again: %d", pod.name, policy.version)
            return
        poll.unacknowledged.add(pod.uid)
        if not known:
            log.warning("%s did not take policy %d: %s", pod.name, policy.version, result)

    return learn
