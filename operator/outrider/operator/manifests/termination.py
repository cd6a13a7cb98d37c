"""Times in which the pods of a role end, which follow from the longest answer. Pure.

A kubelet sends SIGTERM and, once the pod's grace period is over, SIGKILL; between the two a worker
finishes what runs. Leaves that to the worker.
"""

from outrider.operator.spec.roles import Draft, Target

LAME_DUCK_SECONDS = 10
"""Seconds from SIGTERM to the first refusal of a target. The pod leaves EndpointSlices as it is
deleted; kube-proxies, and proxies that look at `/readyz`, which is asked every 2 seconds, follow
within seconds."""
CLOSE_SECONDS = 20
"""For a target's processes to end after its last answer."""
DRAFT_SECONDS = 60
"""For a draft, which ends its sessions at once: its targets go on without it."""


def target_seconds(max_seconds: int) -> int:
    """Return the longest time from SIGTERM to a target's last answer: `max_seconds` are those of
    one request, and the last begins at the end of the lame-duck time."""
    return LAME_DUCK_SECONDS + max_seconds


def pod_seconds(spec: Target | Draft) -> int:
    """Return the grace period of a role's pods."""
    if isinstance(spec, Draft):
        return DRAFT_SECONDS
    return target_seconds(spec.requests.max_seconds) + CLOSE_SECONDS
