"""Warnings about a description that is allowed but probably not meant.

Nothing is refused: the definitions and `spec` do that. `reconcile` posts the warnings as events and
writes them into the status; those of `advice_rules` the API server says at once.
"""

import json
from collections.abc import Iterable, Iterator, Mapping

from outrider.contract.settings import Role
from outrider.operator.admission.advice_rules import ADVICE
from outrider.operator.admission.rule import broken
from outrider.operator.control.break_even import LEAST_PERCENT, break_even
from outrider.operator.control.settings import SpeculationMode
from outrider.operator.manifests.certificates import former_secret
from outrider.operator.manifests.desired import role_spec, roles
from outrider.operator.naming import restart_command
from outrider.operator.observed.live_workloads import LiveWorkloads
from outrider.operator.observed.owner import Owner
from outrider.operator.plan import control, sessions
from outrider.operator.spec.accelerators import NO_PRICES, Prices
from outrider.operator.spec.roles import Draft
from outrider.operator.spec.service import SpeculativeService
from outrider.operator.spec.surroundings import Automatic

REASON = "Advice"
"""Reason of the events."""
MAX_TEMPLATE = 32 << 10
"""Most bytes of a `podTemplate` as JSON; etcd keeps objects and their histories whole."""
HIGH_BREAK_EVEN = 150
"""Derived break-even, in percent, that surprises: many a draft that is worth having gains less."""


def on_unknown(fields: Iterable[str]) -> Iterator[str]:
    """Yield one sentence for each field that this program does not know."""
    for path in fields:
        yield f"{path}: this version of the operator does not know the field and ignores it"


def on_rival(rival: str) -> Iterator[str]:
    """Yield a sentence where another operator wants the namespace too."""
    if rival:
        words = "manages this namespace too, and is refused: let only one of them have it"
        yield f"the operator {rival} {words}"


def on_unasked(privileges: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each privilege that nobody asked the service's author about."""
    for one in privileges:
        yield f"{one}; stored before that was asked, it stays until spec is edited"


def on_unguarded(service: SpeculativeService, certified: bool) -> Iterator[str]:
    """Yield a sentence where nothing keeps strangers from workers; `certified`: certificates do."""
    if not certified and service.spec.network_policy.mode is Automatic.DISABLED:
        words = "Disabled, and the operator gives workers no certificates"
        yield f"spec.networkPolicy.mode: {words}: whoever reaches a pod may tell it what to do"


def on_former_secrets(
    owner: Owner, wanted: Mapping[Role, str], current: Mapping[Role, LiveWorkloads]
) -> Iterator[str]:
    """Yield a sentence for each role whose pods keep a certificate of whoever signed before;
    `wanted`: names of the Secrets that their certificates are to be in."""
    for role, name in wanted.items():
        live = current.get(role, LiveWorkloads())
        if former := former_secret(owner.name, role, live, name):
            words = f"pods of {role} keep the certificate in the Secret {former}, which this"
            words += " operator does not renew, and with which it does not reach them"
            command = restart_command(owner.namespace, owner.name)
            yield f"{words}: have them replaced before it expires: {command}"


def on(service: SpeculativeService, prices: Prices = NO_PRICES) -> Iterator[str]:
    """Yield one sentence for each thing that is probably not meant; `prices` are those of GPUs."""
    yield from broken(service, ADVICE)
    for role in roles(service):
        size = len(json.dumps(role_spec(service, role).pod_template or {}))
        if size > MAX_TEMPLATE:
            words = f"{size} bytes; more than {MAX_TEMPLATE} make every change slow"
            yield f"spec.{role}.podTemplate: {words}"
    if service.spec.draft is not None:
        yield from _sessions(service, service.spec.draft)
        yield from _gain(service, service.spec.draft, prices)


def _sessions(service: SpeculativeService, draft: Draft) -> Iterator[str]:
    if draft.has_pods and draft.engine.max_running is None:
        capacity, running = sessions(service, draft), _max_running(service)
        if capacity < running:
            words = f"left out, a draft holds {capacity} of {running} sessions"
            yield f"spec.draft.engine.maxRunning: {words}"


def _gain(service: SpeculativeService, draft: Draft, prices: Prices) -> Iterator[str]:
    speculation = service.spec.speculation
    adaptive = speculation.mode is SpeculationMode.ADAPTIVE
    if not adaptive or speculation.disable.gain_below_percent is not None:
        return
    settings, targets = control(service, prices=prices), service.spec.target.first_replicas
    pays = break_even(settings, draft.first_replicas, targets)
    if pays.off_below >= HIGH_BREAK_EVEN:
        words = f"left out, drafting goes off under {pays.off_below}, which pays for its GPUs"
        keeps = f"{LEAST_PERCENT} keeps it for any gain"
        yield f"spec.speculation.disable.gainBelowPercent: {words}; {keeps}"


def _max_running(service: SpeculativeService) -> int:
    target = service.spec.target
    return target.engine.max_running * target.first_replicas
