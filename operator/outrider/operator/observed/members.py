"""Pods of replicas that span several of them: what incomplete ones lack, and which are to drain.

Pure. A replica of several pods serves once all of them are ready; its pods are stages of a
pipelined target, or machines that share its ranks.
"""

from collections.abc import Iterator

from outrider.contract.settings import Role
from outrider.operator.observed.pods import Pod
from outrider.operator.observed.service import Observed

MAX_NAMED = 3
"""Missing pods that a message names."""
FIRST_STEP = 10
"""Seconds without readiness that are reported first; each next number is twice the last."""


def missing(observed: Observed, role: Role, word: str) -> str:
    """Name the pods that replicas lack or wait for: `word` and number, name, and why, as "stage 3
    of 4 (chat-target-0-2): not ready for 40 s". Empty where all are ready."""
    found = list(_missing(observed, role, word))
    more = [f"and {len(found) - MAX_NAMED} more"] if len(found) > MAX_NAMED else []
    return "; ".join((*found[:MAX_NAMED], *more))


def _missing(observed: Observed, role: Role, word: str) -> Iterator[str]:
    present = {(pod.group, pod.number): pod for pod in observed.members_of(role)}
    for group, names in observed.groups_of(role).items():
        for number, name in enumerate(names):
            pod = present.get((group, number))
            if pod is None or not pod.ready:
                name = name if pod is None else pod.name
                yield f"{word} {number + 1} of {len(names)} ({name}): {_lack(pod)}"


def _lack(pod: Pod | None) -> str:
    if pod is None:
        return "there is no pod"
    return pod.trouble or f"not ready{_for(pod.unready)}"


def _for(seconds: float) -> str:
    """Return a time in steps that double: a status is written where it differs, and seldom."""
    if seconds < FIRST_STEP:
        return ""
    step = FIRST_STEP
    while 2 * step <= seconds:
        step *= 2
    return f" for {step} s"


def leaders_to_drain(observed: Observed, role: Role) -> Iterator[Pod]:
    """Yield the leaders that serve, and of whose replica another pod is being deleted: it waits for
    them to finish, and knows no way to tell them."""
    every = (pod for pod in observed.followers if pod.role is role)
    ending = {pod.group for pod in every if pod.leaving}
    yield from (p for p in observed.pods_of(role) if p.ready and p.running and p.group in ending)
