"""The control loop of one service in a cluster: what it sees, in the loop's own words. Pure.

Joins what the watches know with what the workers said; `control` decides.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.client.state import LinkState, State
from outrider.contract.ports import GRPC
from outrider.contract.settings import PolicySettings, Role
from outrider.operator import state_mapping
from outrider.operator.control import exposition
from outrider.operator.control.exposition import ExpositionError
from outrider.operator.control.inputs import Decision, Seen
from outrider.operator.control.memory import Present
from outrider.operator.control.samples import Sample
from outrider.operator.control.scrapes import Looks
from outrider.operator.differences import digest
from outrider.operator.observed import Observed, Pod
from outrider.operator.plan import policy as described
from outrider.operator.spec import Placement, SpeculativeService
from outrider.operator.worker_client import PodReport

SETTLING_SECONDS = 60.0
"""For so long after workers came or went, links are expected any moment."""
SOON_SECONDS = 1.0
"""Between two questions meanwhile."""
MIN_WAIT = 0.05
"""Seconds, so that a clock of coarse steps makes no pass follow the other."""


@dataclass(slots=True)
class Looking:
    """What the loop knows of one service between two passes, and loses with the process."""

    looks: Looks = field(default_factory=Looks)
    reports: Mapping[str, PodReport] = field(default_factory=dict)
    """The last ones, by the pods' uids."""
    asked_at: float = 0.0
    """When the last look began, of those that windows are made of."""
    looked_at: float = 0.0
    """When workers were asked last."""
    changed_at: float = 0.0
    """When others were there to be asked."""
    pods: frozenset[tuple[str, bool]] = frozenset()
    """Who was asked, by uid and readiness."""
    deaf: set[str] = field(default_factory=set)
    """Targets that did not take a policy, by uid: said once, and again when it is over."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why a pod's metrics could not be used, by its name."""

    @property
    def uids(self) -> frozenset[str]:
        """The pods that were asked."""
        return frozenset(uid for uid, _ in self.pods)

    def learn(self, pod: Pod, state: State) -> None:
        """What a pod answered to a policy."""
        at = time_of(self.reports.get(pod.uid))
        self.reports = {**self.reports, pod.uid: PodReport(at, state, None)}

    def due(self, seen: Observed, now: float, seconds: float) -> bool:
        """Whether the workers are to be asked again: time has passed, or others are there."""
        if now - self.asked_at >= seconds or _who(seen) != self.pods:
            return True
        return now - self.looked_at >= SOON_SECONDS and self.settling(seen, now)

    def settling(self, seen: Observed, now: float) -> bool:
        """Whether links, or answers of workers that start, are expected any moment."""
        if now - self.changed_at > SETTLING_SECONDS:
            return False
        targets, drafts = ready(seen, Role.TARGET), ready(seen, Role.DRAFT)
        addresses = {address(pod) for pod in drafts}
        up = sum(_links_up(self, pod, addresses) for pod in targets)
        silent = any(_silent(self, pod) for pod in (*targets, *drafts))
        return silent or up < len(targets) * len(drafts)

    def wait(self, seen: Observed, now: float, seconds: float) -> float:
        """Seconds until the next look: passes between two looks do not put it off, and services
        whose pods change together do not look together from then on."""
        if self.settling(seen, now):
            return min(SOON_SECONDS, seconds)
        return min(seconds, max(MIN_WAIT, self.asked_at + seconds - now))

    def take(
        self, seen: Observed, reports: Mapping[str, PodReport], now: float, whole: bool
    ) -> None:
        """New reports; `whole`: a window's time has passed, so that this is one look."""
        if _who(seen) != self.pods:
            self.changed_at = now
        self.pods, self.looked_at = _who(seen), now
        samples, self.problems = _samples(seen, reports)
        self.reports = {  # the text is large, and needed no more
            uid: dataclasses.replace(report, metrics=None) for uid, report in reports.items()
        }
        if whole:
            self.looks = self.looks.add(samples, {pod.uid for pod in seen.pods})
            self.asked_at = now


def seen_by_loop(
    seen: Observed, service: SpeculativeService, looking: Looking, contested: bool, now: float
) -> Seen:
    """What one pass of the loop sees; `contested`: somebody else writes the drafts' number."""
    stale = float(service.spec.metrics.stale_after_seconds)
    targets = ready(seen, Role.TARGET)
    drafts = ready(seen, Role.DRAFT)
    draft, target = seen.workload(Role.DRAFT), seen.workload(Role.TARGET)
    addresses = {address(pod) for pod in drafts}
    return Seen(
        window=looking.looks.window([pod.uid for pod in targets], now, stale),
        starting=looking.looks.starting,
        drafts_desired=_first(service) if draft is None else draft.replicas,
        drafts_actual=len(seen.pods_of(Role.DRAFT)),
        drafts_ready=len(drafts),
        links_up=sum(_links_up(looking, pod, addresses) for pod in targets),
        links_expected=len(targets) * len(drafts),
        sessions=looking.looks.sessions([pod.uid for pod in drafts], now, stale),
        acknowledged=min((_version(looking, pod) for pod in targets), default=0),
        rolling_out=any(live is not None and live.rolling_out for live in (draft, target)),
        stopped=draft is not None and bool(draft.failed),
        contested=contested,
        others=_others(seen, service),
    )


def policy_for(seen: Observed, service: SpeculativeService, decision: Decision) -> PolicySettings:
    """What targets are told."""
    return state_mapping.policy(described(service), decision, _drafts(seen))


def outdated(looking: Looking, pod: Pod, wanted: PolicySettings) -> bool:
    """Whether a target that answers follows an older policy; others start from the stored one."""
    report = looking.reports.get(pod.uid)
    answers = report is not None and report.state is not None
    return answers and _version(looking, pod) < wanted.version


def present(seen: Observed, looking: Looking) -> Present | None:
    """The newest policy that any target follows; None where none is known."""
    reports = (looking.reports.get(pod.uid) for pod in seen.pods_of(Role.TARGET))
    found = [r.state.policy for r in reports if r is not None and r.state is not None]
    newest = max(found, key=lambda policy: policy.version, default=None)
    if newest is None or newest.version == 0:
        return None
    return Present(version=newest.version, speculate=newest.speculate, max_rows=newest.max_rows)


def age(seen: Observed, looking: Looking, now: float) -> float | None:
    """Age of the oldest metrics of a target that serves; None where none serves."""
    known = (looking.reports.get(pod.uid) for pod in ready(seen, Role.TARGET))
    times = [time_of(report) for report in known if report is not None]
    return now - min(times) if times else None


def time_of(report: PodReport | None) -> float:
    """When a worker was asked; 0: never."""
    return 0.0 if report is None else report.at


def ready(seen: Observed, role: Role) -> tuple[Pod, ...]:
    """A role's pods that take requests or sessions."""
    return tuple(pod for pod in seen.pods_of(role) if pod.ready and pod.running)


def address(pod: Pod) -> str:
    """Where a draft's pod listens, as targets are told."""
    return pod.at(GRPC)


def _first(service: SpeculativeService) -> int | None:
    """Drafts that are wanted before there is anything; None: the service has no pods of drafts."""
    draft = service.spec.draft
    separate = draft is not None and draft.placement is Placement.SEPARATE
    return draft.first_replicas if draft is not None and separate else None


def _others(seen: Observed, service: SpeculativeService) -> str:
    """A digest of what a policy says beside what the loop decides."""
    return digest([described(service).to_json(), _drafts(seen)])


def _drafts(seen: Observed) -> tuple[str, ...]:
    return tuple(address(pod) for pod in ready(seen, Role.DRAFT))


def _samples(
    seen: Observed, reports: Mapping[str, PodReport]
) -> tuple[list[Sample], dict[str, str]]:
    samples: list[Sample] = []
    problems: dict[str, str] = {}
    for pod in seen.pods:
        report = reports.get(pod.uid)
        if report is None or report.metrics is None:
            if report is not None:
                problems[pod.name] = report.problem
            continue
        try:
            samples.append(exposition.parse(report.metrics, pod.uid, report.at))
        except ExpositionError as error:
            problems[pod.name] = str(error)
    return samples, problems


def _links_up(looking: Looking, pod: Pod, addresses: set[str]) -> int:
    report = looking.reports.get(pod.uid)
    if report is None or report.state is None:
        return 0
    links = report.state.links
    return sum(1 for link in links if link.state is LinkState.UP and link.address in addresses)


def _silent(looking: Looking, pod: Pod) -> bool:
    report = looking.reports.get(pod.uid)
    return report is None or report.state is None or bool(report.problem)


def _version(looking: Looking, pod: Pod) -> int:
    report = looking.reports.get(pod.uid)
    return 0 if report is None or report.state is None else report.state.policy.version


def _who(seen: Observed) -> frozenset[tuple[str, bool]]:
    return frozenset((pod.uid, pod.ready) for pod in seen.pods if pod.running)
