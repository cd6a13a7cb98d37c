"""Which processors each worker of a local run keeps to, so that drafting never takes the target's.

Pure. In a cluster this is the kubelet's to decide.
"""

import dataclasses
from collections.abc import Collection, Iterator
from itertools import islice

from outrider.contract.settings import Role
from outrider.operator.plan import Plan, WorkerPlan


def share(plan: Plan, processors: Collection[int]) -> Plan:
    """The plan with each target's engine alone on as many processors as its ranks and stages
    have threads.

    Everything else shares what is left: the targets' servers and links, and the drafts. Nothing
    changes where nothing would be left, or where there is no draft beside the targets.
    """
    wanted = sum(_threads(worker) for worker in plan.of(Role.TARGET))
    if not plan.of(Role.DRAFT) or len(processors) <= wanted:
        return plan
    ordered = tuple(sorted(processors))
    own, rest = iter(ordered[:wanted]), ordered[wanted:]
    workers = tuple(_keep(worker, own, rest) for worker in plan.workers)
    return dataclasses.replace(plan, workers=workers)


def _keep(worker: WorkerPlan, own: Iterator[int], rest: tuple[int, ...]) -> WorkerPlan:
    """The worker with its engine on the next of `own`, or on the rest if it is a draft."""
    target = worker.role is Role.TARGET
    engine = tuple(islice(own, _threads(worker))) if target else rest
    settings = dataclasses.replace(worker.settings, processors=engine, other_processors=rest)
    return dataclasses.replace(worker, settings=settings)


def _threads(worker: WorkerPlan) -> int:
    """Return the threads of all ranks of all stages."""
    settings = worker.settings
    return settings.threads * settings.ranks
