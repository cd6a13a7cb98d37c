"""The newest scrapes that a Prometheus has of a service's pods: the query, and its answer. Pure.

A range vector in an instant query gives the stored points themselves, with the times at which pods
were scraped (prometheus.io/docs/prometheus/latest/querying/api: Range vectors). All points of one
scrape have one time, so that a sample is as consistent as one from `/metrics`; how late it comes
shows in its time. Leaves the series of one scrape to `exposition`, and asking to its caller.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from outrider.contract import metrics as names
from outrider.contract.settings import Role
from outrider.operator.control.exposition import NEEDED, ExpositionError, Labels, Point, sample
from outrider.operator.control.samples import Sample

ASKED = NEEDED - {names.LINK_STATE.name}
"""Metrics that are asked for. Links are many series, and the workers' own states tell them."""
OWN_LABELS: Mapping[str, tuple[str, ...]] = {metric.name: metric.labels for metric in names.ALL}
"""Labels that tell the series of one metric of one worker apart."""
MAX_AHEAD_SECONDS = 5.0
"""Most seconds by which a scrape may lie in the future: clocks differ a little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesLabels:
    """Labels by which the series of a service's pods are found."""

    namespace: str = "namespace"
    """Label with the pod's namespace."""
    pod: str = "pod"
    """Label with the pod's name."""
    others: tuple[tuple[str, str], ...] = ()
    """Further labels and their values, such as that of a cluster."""


@dataclass(frozen=True, slots=True)
class ScrapedPod:
    """A pod whose samples are wanted."""

    uid: str
    name: str
    role: Role
    made_at: float
    """When it was made, in seconds since the epoch: what was scraped before is another pod's of the
    same name."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a Prometheus knows of a service's pods."""

    samples: tuple[Sample, ...] = ()
    """The newest of each pod."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why a pod has none, by its name."""
    failure: str = ""
    """Why nothing is known at all; empty: something is."""


class PrometheusError(Exception):
    """A Prometheus did not say what it was asked; the message says why."""


class _Series(BaseModel):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Data(BaseModel):
    type: Annotated[Literal["matrix"], Field(alias="resultType")]
    result: list[_Series]


class _Body(BaseModel):
    """An answer of the HTTP API."""

    status: str
    data: _Data | None = None
    error: str = ""
    warnings: list[str] = []


def query(namespace: str, pods: Iterable[ScrapedPod], labels: SeriesLabels, seconds: int) -> str:
    """Return the PromQL for the scrapes of pods in the last so many seconds."""
    wanted = {labels.namespace: namespace, **dict(labels.others)}
    matchers = [f"{label}={_text(value)}" for label, value in wanted.items()]
    matchers += [
        f"__name__=~{_one_of(sorted(ASKED))}",
        f"{labels.pod}=~{_one_of(sorted(pod.name for pod in pods))}",
    ]
    return f"{{{','.join(matchers)}}}[{seconds}s]"


def read(body: bytes, pods: Sequence[ScrapedPod], labels: SeriesLabels, now: float) -> Answer:
    """Return what an answer to `query` says; raise `PrometheusError` where it is none.

    `now` is the reader's time in seconds since the epoch.
    """
    parsed = _parsed(body)
    found: dict[str, list[_Series]] = defaultdict(list)
    for series in parsed.result:
        found[series.metric.get(labels.pod, "")].append(series)
    samples: list[Sample] = []
    problems: dict[str, str] = {}
    for pod in pods:
        try:
            samples.append(_newest(found.get(pod.name, []), pod, now))
        except ExpositionError as error:
            problems[pod.name] = str(error)
    return Answer(tuple(samples), problems)


def failure(body: bytes) -> str:
    """Return why a Prometheus refused a query, in its own words; empty: it does not say."""
    try:
        return _Body.model_validate_json(body).error
    except ValidationError:
        return ""


def _parsed(body: bytes) -> _Data:
    try:
        parsed = _Body.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the answer"
        raise PrometheusError(f"no answer of a Prometheus: {where}: {first['msg']}") from None
    if parsed.status != "success" or parsed.data is None:
        raise PrometheusError(parsed.error or f"its status is {parsed.status!r}")
    if parsed.warnings and not parsed.data.result:
        raise PrometheusError(f"nothing was found: {parsed.warnings[0]}")
    return parsed.data


def _newest(series: Iterable[_Series], pod: ScrapedPod, now: float) -> Sample:
    """Return the sample of the newest whole scrape; raise `ExpositionError`.

    Of a scrape whose points have come in part, which remote writing may leave for a moment, the
    one before counts.
    """
    scrapes = sorted(_scrapes(series, pod), key=lambda scrape: -scrape[0])
    if not scrapes:
        raise ExpositionError("Prometheus has no scrape of it that is new enough")
    if (ahead := scrapes[0][0] - now) > MAX_AHEAD_SECONDS:
        raise ExpositionError(f"Prometheus scraped it {ahead:.0f} s in the future; mend its clock")
    problem: ExpositionError | None = None
    for at, points in scrapes:
        try:
            return sample(points, pod.uid, min(at, now))
        except ExpositionError as error:
            problem = problem or error
    assert problem is not None, "there is a scrape, and it made no sample"
    raise problem


def _scrapes(series: Iterable[_Series], pod: ScrapedPod) -> Iterator[tuple[float, list[Point]]]:
    """Yield the time and the points of each scrape since a pod was made.

    Two that scrape the same pod, as replicas of a Prometheus do, differ in some label: their points
    are kept apart.
    """
    found: dict[tuple[Labels, float], list[Point]] = defaultdict(list)
    for one in series:
        name = one.metric.get("__name__", "")
        if name not in ASKED or one.metric.get("role") != pod.role.value:
            continue
        labels = tuple(sorted(one.metric.items()))
        own = ("__name__", *OWN_LABELS[name])
        scraper = tuple(pair for pair in labels if pair[0] not in own)
        for at, value in one.values:
            if at >= pod.made_at:
                found[scraper, at].append((name, labels, _number(value)))
    for (_, at), points in found.items():
        yield at, points


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")  # refused with its metric's name


def _text(value: str) -> str:
    """Return a string of PromQL, which has the escapes of JSON."""
    return json.dumps(value)


def _one_of(words: Iterable[str]) -> str:
    """Return a pattern for names, which have no other special character than the dot."""
    return _text("|".join(word.replace(".", r"\.") for word in words))
