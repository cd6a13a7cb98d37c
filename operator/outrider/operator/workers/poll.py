"""Polls of one service's workers, and the control loop's inputs that follow from them. Pure.

Joins the watch caches with the workers' reports; leaves asking to `background`, decisions to
`control`.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.contract.process import GRPC_PORT
from outrider.contract.settings import PolicySettings, Role
from outrider.contract.sources import SourceKind
from outrider.contract.state import INSIDE, Link, LinkState, State
from outrider.operator.cluster.differences import digest
from outrider.operator.control.inputs import ControlInputs, Decision
from outrider.operator.control.memory import PolicyInForce
from outrider.operator.control.samples import Sample, agreed_version
from outrider.operator.control.scrapes import Scrapes
from outrider.operator.control.settings import stale_after
from outrider.operator.manifests.settings import SAME_POD_DRAFT
from outrider.operator.naming import PROBE_ANNOTATION
from outrider.operator.observed.pods import Pod
from outrider.operator.observed.service import Observed
from outrider.operator.plan import policy as described
from outrider.operator.spec.service import SpeculativeService
from outrider.operator.workers.sample import is_plausible, sample

LINKING_SECONDS = 60.0
"""Time after a change of the workers in which links are expected to come up."""
SOON_SECONDS = 1.0
"""Seconds between two polls in that time."""
MIN_WAIT = 0.05
"""Least seconds between two passes, for clocks with coarse steps."""


@dataclass(frozen=True, slots=True)
class PodReport:
    """Answer of one worker, and its time."""

    at: float
    """Seconds of the clock that the caller reads with `time.time`."""
    state: State | None
    problem: str = ""
    """Why there is no state; empty if there is one."""


@dataclass(frozen=True, slots=True)
class PollQuestion:
    """What is asked in one poll."""

    pods: tuple[Pod, ...]
    """Pods that are asked for their state."""
    is_scrape: bool
    """True if an interval has passed: the answers begin or end a window."""
    at: float
    """When it was asked, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class PollAnswer:
    """What the pods of a poll have answered."""

    question: PollQuestion
    reports: Mapping[str, PodReport]
    """Reports by the pods' uids; a pod that is silent has one that says so."""


@dataclass(slots=True)
class WorkerPoll:
    """Reports of one service's workers, kept between passes and lost with the process."""

    scrapes: Scrapes = field(default_factory=Scrapes)
    states: Mapping[str, State] = field(default_factory=dict)
    """The last state of each pod that has answered, by uid."""
    scraped_at: float = 0.0
    """When the last scrape began, of those that windows are made of."""
    polled_at: float = 0.0
    """When workers were asked last."""
    changed_at: float = 0.0
    """When the pods to ask last changed."""
    pods: frozenset[tuple[str, bool]] = frozenset()
    """Pods that were asked, by uid and readiness."""
    unacknowledged: set[str] = field(default_factory=set)
    """Targets that did not take a policy, by uid: logged once, and again when it is over."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why a pod's state could not be used, by its name."""
    _subject: tuple[SpeculativeService, str] | None = None
    """The service as it was last read, and its digest."""

    @property
    def uids(self) -> frozenset[str]:
        """Uids of the pods that were asked."""
        return frozenset(uid for uid, _ in self.pods)

    def subject(self, service: SpeculativeService) -> str:
        """Return a digest of what the gain of drafting depends on, and of the wish for a probe."""
        if self._subject is None or self._subject[0] is not service:
            self._subject = service, _subject(service)
        return self._subject[1]

    def learn(self, pod: Pod, state: State) -> None:
        """Record a pod's answer to a policy."""
        self.states = {**self.states, pod.uid: state}

    def due(self, observed: Observed, service: SpeculativeService, now: float) -> bool:
        """True if workers are to be asked again: after an interval, or if their pods changed."""
        if now - self.scraped_at >= _interval(service) or _asked_pods(observed) != self.pods:
            return True
        return now - self.polled_at >= SOON_SECONDS and self.expects_links(observed, service, now)

    def expects_links(self, observed: Observed, service: SpeculativeService, now: float) -> bool:
        """True if links, or answers of workers that start, are expected any moment."""
        if now - self.changed_at > LINKING_SECONDS:
            return False
        targets, drafts = observed.serving(Role.TARGET), observed.serving(Role.DRAFT)
        silent = any(pod.uid not in self.states for pod in (*targets, *drafts))
        expected = len(targets) * len(draft_addresses(observed, service))
        return silent or links_up(self, observed, service) < expected

    def wait(self, observed: Observed, service: SpeculativeService, now: float) -> float:
        """Return seconds until the next poll: passes between two polls do not delay it, and
        services whose pods change together do not poll together from then on."""
        seconds = _interval(service)
        if self.expects_links(observed, service, now):
            return min(SOON_SECONDS, seconds)
        return min(seconds, max(MIN_WAIT, self.scraped_at + seconds - now))

    def question(self, observed: Observed, service: SpeculativeService, now: float) -> PollQuestion:
        """Return what is asked now, and record that it is; after an interval it is a scrape."""
        pods, is_scrape = _asked_pods(observed), now - self.scraped_at >= _interval(service)
        if pods != self.pods:
            self.changed_at = now
        self.pods, self.polled_at = pods, now
        if is_scrape:
            self.scraped_at = now
        return PollQuestion(
            pods=tuple(pod for pod in observed.pods if pod.running),
            is_scrape=is_scrape,
            at=now,
        )

    def record(self, observed: Observed, answer: PollAnswer) -> None:
        """Record what pods have answered; it counts as a scrape where it was to be one."""
        samples, self.problems = _samples(observed, answer.reports)
        if answer.question.is_scrape:
            uids = {pod.uid for pod in observed.pods}
            self.scrapes = self.scrapes.add(samples, uids, answer.question.at)
        answers = answer.reports.items()
        self.states = {uid: one.state for uid, one in answers if one.state is not None}


def control_inputs(
    observed: Observed, service: SpeculativeService, poll: WorkerPoll, contested: bool, now: float
) -> ControlInputs:
    """Return the control loop's inputs; `contested`: another owner writes the drafts' number."""
    stale = float(stale_after(service.spec.speculation.control.interval_seconds))
    targets = observed.serving(Role.TARGET)
    drafts, addresses = observed.serving(Role.DRAFT), draft_addresses(observed, service)
    draft, target = observed.workload(Role.DRAFT), observed.workload(Role.TARGET)
    versions = [_version(poll, pod) for pod in targets]
    return ControlInputs(
        window=poll.scrapes.window([pod.uid for pod in targets], now, stale),
        starting=poll.scrapes.starting,
        targets=service.spec.target.first_replicas if target is None else target.replicas,
        drafts_desired=_initial_drafts(service) if draft is None else draft.replicas,
        drafts_actual=len(observed.pods_of(Role.DRAFT)),
        drafts_ready=len(observed.drafts),
        links_up=links_up(poll, observed, service),
        links_expected=len(targets) * len(addresses),
        sessions=poll.scrapes.sessions([pod.uid for pod in drafts], now, stale),
        acknowledged=agreed_version(versions),
        followed_by_all=min(versions, default=0),
        rolling_out=any(live is not None and live.rolling_out for live in (draft, target)),
        stopped=draft is not None and bool(draft.failed),
        contested=contested,
        others=_others(described(service), addresses),
        gains=poll.scrapes.gains,
        subject=poll.subject(service),
    )


def policy_for(
    observed: Observed, service: SpeculativeService, decision: Decision
) -> PolicySettings:
    """Return the policy that targets are to follow."""
    drafts = draft_addresses(observed, service)
    return decision.policy(described(service), drafts)


def outdated(poll: WorkerPoll, pod: Pod, wanted: PolicySettings) -> bool:
    """True if a target that answers follows an older policy; others start from the stored one."""
    return pod.uid in poll.states and _version(poll, pod) < wanted.version


def policy_in_force(observed: Observed, poll: WorkerPoll) -> PolicyInForce | None:
    """Return the newest policy that any target follows; None where none is known."""
    known = (poll.states.get(pod.uid) for pod in observed.pods_of(Role.TARGET))
    found = [state.policy for state in known if state is not None]
    newest = max(found, key=lambda policy: policy.version, default=None)
    if newest is None or newest.version == 0:
        return None
    drafts = not newest.sources or SourceKind.DRAFT in newest.sources  # none: it knows drafts alone
    drafting = newest.speculate and drafts
    return PolicyInForce(version=newest.version, speculate=drafting, max_rows=newest.max_rows)


def metrics_age(observed: Observed, poll: WorkerPoll, now: float) -> float | None:
    """Return the age of the oldest metrics of a target that serves; None where there are none."""
    known = (poll.scrapes.later.get(pod.uid) for pod in observed.serving(Role.TARGET))
    times = [sample.at for sample in known if sample is not None]
    return now - min(times) if times else None


def draft_addresses(observed: Observed, service: SpeculativeService) -> tuple[str, ...]:
    """Return the addresses of the drafts that each target pairs with: those of ready pods, another
    service's too, or that of the draft in its own pod, which is the same in every pod."""
    if service.spec.same_pod:
        return (SAME_POD_DRAFT,)
    return tuple(pod.at(GRPC_PORT) for pod in observed.drafts)


def links_up(poll: WorkerPoll, observed: Observed, service: SpeculativeService) -> int:
    """Return the links between ready targets and the drafts that they pair with that work."""
    return sum(link.state is LinkState.UP for link in links(poll, observed, service))


def links(poll: WorkerPoll, observed: Observed, service: SpeculativeService) -> tuple[Link, ...]:
    """Return the links of ready targets to the drafts that they pair with, as they report them;
    those to drafts in their own processes where they are refused."""
    known = (poll.states.get(pod.uid) for pod in observed.serving(Role.TARGET))
    states = (state for state in known if state is not None)
    addresses = (*draft_addresses(observed, service), INSIDE)
    return tuple(link for state in states for link in state.links if link.address in addresses)


def _interval(service: SpeculativeService) -> float:
    """Return the seconds between two polls."""
    return float(service.spec.speculation.control.interval_seconds)


def _initial_drafts(service: SpeculativeService) -> int | None:
    """Return the drafts of a new service; None: the service has no pods of drafts."""
    draft = service.spec.draft
    return draft.first_replicas if draft is not None and draft.has_pods else None


@functools.lru_cache(maxsize=1024)
def _others(policy: PolicySettings, drafts: tuple[str, ...]) -> str:
    """Return a digest of what a policy says beside the loop's decisions; that of a service is the
    same in nearly all of its passes."""
    return digest([policy.to_json(), drafts])


def _subject(service: SpeculativeService) -> str:
    """Return a digest of what the gain of drafting depends on, and of the wish for a probe."""
    parts = {"model", "engine", "parallelism", "pipeline", "image", "resources", "pod_template"}
    spec, speculation = service.spec, service.spec.speculation
    roles = [
        one and one.model_dump(mode="json", include=parts) for one in (spec.target, spec.draft)
    ]
    bounds = speculation.model_dump(mode="json", include={"disable", "enable"})
    asked = service.metadata.annotations.get(PROBE_ANNOTATION, "")
    return digest([roles, described(service).to_json(), bounds, asked])


def _samples(
    observed: Observed, reports: Mapping[str, PodReport]
) -> tuple[list[Sample], dict[str, str]]:
    samples: list[Sample] = []
    problems: dict[str, str] = {}
    for pod in observed.pods:
        report = reports.get(pod.uid)
        if report is None:
            continue
        if report.state is None:
            problems[pod.name] = report.problem
        elif is_plausible(report.state):
            samples.append(sample(report.state, pod.uid, report.at))
        else:
            problems[pod.name] = "its state has a number or a word that cannot be"
    return samples, problems


def _version(poll: WorkerPoll, pod: Pod) -> int:
    state = poll.states.get(pod.uid)
    return 0 if state is None else state.policy.version


def _asked_pods(observed: Observed) -> frozenset[tuple[str, bool]]:
    return frozenset((pod.uid, pod.ready) for pod in observed.pods if pod.running)
