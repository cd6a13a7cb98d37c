"""Which processors each worker of a local run keeps to, so that drafting never takes the target's.

Pure but for `usable`. In a cluster this is the kubelet's to decide.
"""

import dataclasses
import os
from collections.abc import Collection

from outrider.contract.settings import Role
from outrider.operator.plan import Plan, WorkerPlan


def usable() -> frozenset[int]:
    """Processors that this process may use; empty where the system cannot keep a thread to some."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return frozenset(affinity(0)) if affinity else frozenset()


def count() -> int:
    """How many processors this process may use."""
    return len(usable()) or os.cpu_count() or 1


def share(plan: Plan, processors: Collection[int]) -> Plan:
    """The plan with the target's engine alone on as many processors as it has threads.

    Everything else shares what is left: the target's server and links, and the drafts. Nothing
    changes where nothing would be left, or where there is no draft beside the target.
    """
    target = plan.of(Role.TARGET)[0]
    threads = target.settings.threads
    if not plan.of(Role.DRAFT) or len(processors) <= threads:
        return plan
    ordered = tuple(sorted(processors))
    own, rest = ordered[:threads], ordered[threads:]
    return Plan(tuple(_keep(worker, own, rest) for worker in plan.workers))


def _keep(worker: WorkerPlan, own: tuple[int, ...], rest: tuple[int, ...]) -> WorkerPlan:
    engine = own if worker.role is Role.TARGET else rest
    settings = dataclasses.replace(worker.settings, processors=engine, other_processors=rest)
    return dataclasses.replace(worker, settings=settings)
