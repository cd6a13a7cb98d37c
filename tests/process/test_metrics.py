"""`/metrics` of a real target and a real draft: values are those of the requests that were made."""

from collections.abc import Mapping
from dataclasses import dataclass

import httpx
import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

from outrider.client import ClientError, Sampling
from outrider.contract import metrics
from outrider.contract.metrics import Metric, MetricKind
from outrider.contract.settings import Role
from tests.process import workers
from tests.process.conftest import MortalDraft
from tests.process.workers import (
    PROMPT,
    Worker,
    answer,
    assert_speculated,
    let_grow,
    pair_with,
    wait_until,
)

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
COUNT = 600
SHOWN_WITH_A_DRAFT_INSIDE = (
    metrics.DRAFT_MEMORY_STATE,
    metrics.MEMORY_BYTES,
    metrics.KV_EXPANSIONS,
    metrics.KV_CONTRACTIONS,
    metrics.KV_MOVED_BLOCKS,
)
SHOWN_BY_PIPELINES = tuple(
    metric for metric in metrics.ALL if metric.name.startswith(f"{metrics.PREFIX}pipeline_")
)


@dataclass(frozen=True, slots=True)
class Scrape:
    """All values of one scrape, by name and labels."""

    values: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def __call__(self, metric: Metric, suffix: str = "", **labels: str) -> float:
        """The sum of a metric's values that have these labels."""
        found = [
            value
            for (name, own), value in self.values.items()
            if name == metric.name + suffix and own >= set(labels.items())
        ]
        assert found, f"{metric.name}{suffix} {labels} is not shown"
        return sum(found)


def scrape(worker: Worker, accept: str = "text/plain") -> Scrape:
    """What a worker shows now."""
    answered = httpx.get(f"{worker.url}/metrics", headers={"Accept": accept}, trust_env=False)
    assert answered.status_code == 200
    assert answered.headers["content-type"].startswith(accept.partition(";")[0])
    parse = openmetrics if accept == OPEN_METRICS else parser
    families = parse.text_string_to_metric_families(answered.text)
    samples = [sample for family in families for sample in family.samples]
    return Scrape({(s.name, frozenset(s.labels.items())): s.value for s in samples})


def grown(before: Scrape, after: Scrape, metric: Metric, suffix: str = "", **labels: str) -> float:
    """What a counter has counted between two scrapes."""
    return after(metric, suffix, **labels) - before(metric, suffix, **labels)


def settled(worker: Worker) -> Scrape:
    """A scrape of a worker that runs nothing: its engine has reported all."""
    worker.until(lambda state: state.running == state.waiting == 0)
    return scrape(worker)


@pytest.mark.parametrize("accept", ["text/plain", OPEN_METRICS])
def test_a_target_shows_what_a_request_was(
    target: Worker, two_drafts: tuple[MortalDraft, MortalDraft], accept: str
) -> None:
    pair_with(target, two_drafts[0].address)
    before = settled(target)
    made = answer(target, COUNT, {COUNT // 2: lambda: let_grow(target, two_drafts[0].worker)})
    assert_speculated(made)
    settled(target)
    after = scrape(target, accept)

    def counted(metric: Metric, suffix: str = "", **labels: str) -> float:
        return grown(before, after, metric, suffix, **labels)

    usage, timing = made.result.usage, made.result.timing
    assert counted(metrics.PROMPT_TOKENS) == usage.prompt_tokens
    assert counted(metrics.PREFIX_CACHE_HITS) == usage.cached_prompt_tokens
    assert counted(metrics.GENERATION_TOKENS) == COUNT
    assert counted(metrics.VERIFIED_TOKENS) == COUNT - 1
    assert counted(metrics.VERIFY_PASSES) == usage.passes
    assert counted(metrics.NUM_DRAFT_TOKENS) == usage.draft_rows
    assert counted(metrics.NUM_ACCEPTED_TOKENS) == usage.accepted_rows
    assert counted(metrics.NUM_ACCEPTED_TOKENS_PER_POS) == usage.accepted_rows
    first = counted(metrics.NUM_ACCEPTED_TOKENS_PER_POS, position="0")
    assert (
        usage.accepted_rows >= first >= counted(metrics.NUM_ACCEPTED_TOKENS_PER_POS, position="1")
    )
    assert first <= counted(metrics.NUM_DRAFTS) <= usage.passes
    assert counted(metrics.NUM_FIRST_GUESSES) == usage.first_guesses
    assert counted(metrics.NUM_FIRST_HITS) == usage.first_hits
    assert counted(metrics.BLIND_PASSES) == usage.passes - usage.passes_with_nodes
    assert counted(metrics.RESTING_PASSES) == 0
    assert counted(metrics.HOST_SECONDS) > 0
    answered = counted(metrics.GROWTH_LATENCY, "_bucket", le="+Inf")
    assert 0 < answered == counted(metrics.GROWTH_LATENCY, "_count") <= usage.passes
    assert counted(metrics.GROWTH_LATENCY, "_sum") > 0
    assert counted(metrics.DRAFT_WAIT_SECONDS) >= 0
    assert counted(metrics.GAIN_SPENT_SECONDS) > 0
    assert counted(metrics.STEPS) >= usage.passes
    rows = counted(metrics.STEP_ROWS) - usage.passes - usage.draft_rows
    assert rows == pytest.approx(usage.prompt_tokens - usage.cached_prompt_tokens, abs=1)
    assert counted(metrics.REQUEST_SUCCESS, finished_reason="length") == 1
    assert counted(metrics.REQUEST_SUCCESS) == 1
    for histogram in (metrics.TIME_TO_FIRST_TOKEN, metrics.E2E_REQUEST_LATENCY):
        assert counted(histogram, "_count") == counted(histogram, "_bucket", le="+Inf") == 1
    assert counted(metrics.TIME_TO_FIRST_TOKEN, "_sum") >= timing.first_token_seconds
    assert counted(metrics.REQUEST_QUEUE_TIME, "_sum") == pytest.approx(timing.queued_seconds)
    assert counted(metrics.INTER_TOKEN_LATENCY, "_count") == COUNT - 1
    assert counted(metrics.REQUEST_PROMPT_TOKENS, "_sum") == usage.prompt_tokens
    assert counted(metrics.REQUEST_GENERATION_TOKENS, "_sum") == COUNT
    up = {"draft": two_drafts[0].address, "state": "up"}
    assert after(metrics.LINK_STATE, **up) == 1
    assert after(metrics.LINK_STATE) == 1
    carried = {"draft": two_drafts[0].address, "transport": "grpc"}
    assert after(metrics.LINK_TRANSPORT, **carried) == after(metrics.LINK_TRANSPORT) == 1
    assert after(metrics.DRAFTING_STATE, state="on") == after(metrics.DRAFTING_STATE) == 1
    assert after(metrics.NUM_REQUESTS_RUNNING) == after(metrics.NUM_REQUESTS_WAITING) == 0
    share = after(metrics.KV_CACHE_USED_SLOTS) / after(metrics.KV_CACHE_SLOTS)
    assert after(metrics.KV_CACHE_USAGE) == pytest.approx(share)


def test_a_draft_shows_its_sessions_and_rows(
    target: Worker, two_drafts: tuple[MortalDraft, MortalDraft]
) -> None:
    draft = two_drafts[0].worker
    pair_with(target, draft.address)
    before = settled(draft)
    assert_speculated(answer(target, COUNT, {COUNT // 2: lambda: let_grow(target, draft)}))
    wait_until(
        lambda: grown(before, scrape(draft), metrics.DRAFT_SESSIONS_CLOSED) == 1,
        workers.END_SECONDS,
        "the session's end is shown",
    )
    after = settled(draft)
    assert 0 < grown(before, after, metrics.DRAFT_TOKENS) <= COUNT
    assert 0 < grown(before, after, metrics.DRAFT_PASSES) < grown(before, after, metrics.DRAFT_ROWS)
    assert grown(before, after, metrics.PREFIX_CACHE_QUERIES) >= len(PROMPT)
    assert after(metrics.DRAFT_SESSIONS) == 0
    assert after(metrics.KV_CACHE_SLOTS) > 0
    for path, text in (("healthz", "alive\n"), ("readyz", "ready\n")):
        assert httpx.get(f"{draft.url}/{path}", trust_env=False).text == text


def test_every_name_and_no_other_is_shown(
    target: Worker, two_drafts: tuple[MortalDraft, MortalDraft]
) -> None:
    pair_with(target, two_drafts[0].address)
    for worker in (target, two_drafts[0].worker):
        role = worker.settings.role
        assert httpx.get(f"{worker.url}/nothing", trust_env=False).status_code == 404
        if role is Role.TARGET:
            with pytest.raises(ClientError, match="model"):
                worker.client.complete("a", model="unknown")
        wanted = {
            m.name + "_bucket" * (m.kind is MetricKind.HISTOGRAM)
            for m in metrics.ALL
            if role in m.roles and m not in (*SHOWN_BY_PIPELINES, *SHOWN_WITH_A_DRAFT_INSIDE)
        }
        if role is Role.TARGET:
            wanted |= {
                name + "_bucket" * (m.kind is MetricKind.HISTOGRAM)
                for m, others in metrics.VLLM.items()
                for name in others
            }
        shown = scrape(worker)
        names = {name for name, _ in shown.values}
        assert {n for n in names if not n.endswith(("_sum", "_count"))} == wanted
        common = {"model_name": "tiny", "engine": "0", "role": str(role)}
        own = (labels for name, labels in shown.values if name.startswith(metrics.PREFIX))
        assert all(labels >= set(common.items()) for labels in own)
        assert shown(metrics.HTTP_REQUESTS, code="404") >= 1


def test_refusals_and_ends_are_told_apart(target: Worker) -> None:
    before = settled(target)
    with pytest.raises(ClientError):
        target.client.complete("a", sampling=Sampling(temperature=-1.0))
    whole = answer(target, 40, speculate=False).result.text
    stopped = target.client.complete(PROMPT, max_tokens=40, ignore_end=True, stop=(whole[8:10],))
    assert len(stopped.token_ids) < 40
    with target.client.generate(PROMPT, max_tokens=1500, ignore_end=True) as stream:
        next(iter(stream))
    wait_until(
        lambda: grown(before, scrape(target), metrics.REQUEST_FAILURES) == 1,
        workers.END_SECONDS,
        "the cancelled request is shown",
    )
    after = settled(target)
    assert after(metrics.REQUESTS_REFUSED, reason="invalid_field") >= 1
    assert grown(before, after, metrics.REQUEST_SUCCESS, finished_reason="stop") == 1
    assert grown(before, after, metrics.REQUEST_SUCCESS, finished_reason="length") == 1
    assert grown(before, after, metrics.REQUEST_FAILURES, reason="cancelled") == 1
