"""A target cut over stages answers as one in one piece does, whatever its draft does."""

import contextlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from outrider.client import Client, Sampling
from outrider.contract import metrics
from outrider.contract.settings import PipelineSettings, Role, StageLink
from tests.process import workers
from tests.process.conftest import Folders, MortalDraft
from tests.process.test_top import top
from tests.process.workers import PROMPT, Worker, answer, pair_with

COUNT = 200
REQUESTS = 5
"""At once."""
SILENCE_MS = 60_000
"""For tests in which no stage is to be given up: machines may be busy."""
CUTS = ((1, 49), (1, 1, 48))
"""The model's first two layers, which alone are not idle, are on different stages."""
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.8, seed=11),
    Sampling(temperature=0.7, repetition_penalty=1.05, frequency_penalty=0.2, seed=5),
)

SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "integer", "maximum": 9, "minimum": 0}},
    "required": ["x"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", params=CUTS, ids=len)
def pipelined(request: pytest.FixtureRequest, folders: Folders) -> Iterator[Worker]:
    with pipeline_of(request.param, StageLink.GRPC, folders) as worker:
        yield worker


@contextlib.contextmanager
def pipeline_of(cut: tuple[int, ...], link: StageLink, folders: Folders) -> Iterator[Worker]:
    """A target whose stages have the layers of `cut`."""
    pipeline = PipelineSettings(stages=len(cut), cut=cut, link=link, silence_ms=SILENCE_MS)
    settings = folders.settings(Role.TARGET, pipeline=pipeline, max_running=3)
    with workers.started(settings, folders.logs) as worker:
        yield worker


@pytest.fixture(scope="module")
def whole(target: Worker) -> list[tuple[int, ...]]:
    """The text of one piece, with each of the samplings."""
    return [answer(target, COUNT, sampling=s, speculate=False).tokens for s in SAMPLINGS]


@pytest.mark.parametrize("number", range(len(SAMPLINGS)))
def test_a_draft_on_off_or_refused_writes_the_text_of_one_piece(
    whole: list[tuple[int, ...]], pipelined: Worker, draft: MortalDraft, number: int
) -> None:
    sampling = SAMPLINGS[number]
    pair_with(pipelined, draft.address)
    drafted = answer(pipelined, COUNT, sampling=sampling)
    refused = answer(pipelined, COUNT, sampling=sampling, speculate=False)
    pair_with(pipelined, draft.address, speculate=False)
    switched_off = answer(pipelined, COUNT, sampling=sampling)
    assert drafted.tokens == refused.tokens == switched_off.tokens == whole[number]
    assert refused.result.usage.draft_rows == switched_off.result.usage.draft_rows == 0
    assert drafted.result.usage.accepted_rows > 0


def test_a_killed_draft_costs_no_token(
    plain: tuple[int, ...], pipelined: Worker, draft: MortalDraft
) -> None:
    pair_with(pipelined, draft.address)
    given = answer(pipelined, 2 * COUNT, {COUNT: draft.kill})
    assert given.tokens == plain[: 2 * COUNT]
    assert given.accepted(end=COUNT) > 0


def test_stages_of_one_machine_are_cut_by_measured_times(
    plain: tuple[int, ...], folders: Folders
) -> None:
    pipeline = PipelineSettings(stages=2, silence_ms=SILENCE_MS)
    settings = folders.settings(Role.TARGET, pipeline=pipeline)
    with workers.started(settings, folders.logs) as worker:
        assert answer(worker, 20).tokens == plain[:20]
        found = re.search(r"cut into (\d+) \+ (\d+) layers by measured", worker.log.read_text())
        assert found
        counts = [int(number) for number in found.groups()]
        assert sum(counts) == 50
        held = re.findall(r"holds layers \d+ to (\d+) of 50", worker.log.read_text())
        assert str(counts[0] - 1) in held


def ask(worker: Worker, number: int) -> tuple[int, ...]:
    """The answer to one of several requests."""
    with Client(worker.address) as client:
        sampling = Sampling(temperature=0.3 * (number % 3), seed=number)
        prompt = f"{PROMPT} {'long, ' * (30 * number)}"
        return client.complete(
            prompt, max_tokens=COUNT // 2, ignore_end=True, sampling=sampling
        ).token_ids


@pytest.fixture(scope="module")
def alone(target: Worker) -> list[tuple[int, ...]]:
    """The answers to these requests one by one, of the model in one piece."""
    return [ask(target, number) for number in range(REQUESTS)]


def test_several_requests_at_once_are_answered_as_one_by_one(
    alone: list[tuple[int, ...]], pipelined: Worker, draft: MortalDraft
) -> None:
    pair_with(pipelined, draft.address)
    with ThreadPoolExecutor(REQUESTS) as pool:
        together = list(pool.map(lambda number: ask(pipelined, number), range(REQUESTS)))
    assert together == alone
    counters = pipelined.client.state().counters
    assert counters.plain_seconds > 0
    assert counters.spent_seconds > 0


def test_its_stages_are_seen_in_state_metrics_top_and_on_a_timeline(
    pipelined: Worker, draft: MortalDraft
) -> None:
    pair_with(pipelined, draft.address)
    answer(pipelined, COUNT)
    state = pipelined.until(lambda state: state.running == 0)
    group, cut = state.stages, pipelined.settings.pipeline.cut
    assert group is not None
    assert cut is not None
    assert group.up
    assert group.link == pipelined.settings.pipeline.link.value
    assert [one.layers for one in group.each] == list(cut)
    assert group.pruned_rows > 0
    for stage in group.each:
        assert 0 < stage.segments <= group.segments
        assert 0 < stage.busy_seconds < group.segment_seconds
        assert stage.row_seconds >= stage.busy_seconds
    shown = httpx.get(f"{pipelined.url}/metrics", trust_env=False).text
    for metric in metrics.ALL:
        if metric.name.startswith(f"{metrics.PREFIX}pipeline_"):
            assert f"\n{metric.name}{{" in shown, metric.name
    for number, stage in enumerate(group.each):
        found = re.search(rf'{metrics.PIPELINE_STAGE_ROWS.name}{{.*stage="{number}"}} (.+)', shown)
        assert found
        assert float(found[1]) >= stage.rows > 0  # dead segments may have come back since
    spans = pipelined.client.timeline()
    lanes = {span.lane for span in spans}
    assert lanes == {f"stage {number}" for number in range(len(cut))}
    assert any(span.prompt_rows for span in spans)
    assert any(span.committed_rows for span in spans)
    assert any(span.pruned_rows for span in spans)
    segments = {(span.lane, span.number): span for span in spans}
    for span in spans:
        assert span.came <= span.began <= span.ended
        earlier = segments.get((f"stage {int(span.lane[-1]) - 1}", span.number))
        assert earlier is None or earlier.ended <= span.came
    done = top("--address", pipelined.address)
    assert done.returncode == 0, done.stderr
    assert pipelined.address in done.stdout


def test_logprobs_are_those_of_one_piece(
    target: Worker, pipelined: Worker, draft: MortalDraft
) -> None:
    pair_with(pipelined, draft.address)
    asked = {"max_tokens": 40, "ignore_end": True, "logprobs": 3}
    cut = pipelined.client.complete(PROMPT, **asked)
    whole = target.client.complete(PROMPT, **asked, speculate=False)
    assert cut.logprobs == whole.logprobs
    assert len(cut.logprobs) == 40


def test_a_response_format_is_followed_to_the_end(
    target: Worker, pipelined: Worker, draft: MortalDraft
) -> None:
    pair_with(pipelined, draft.address)
    form = {"type": "json_schema", "json_schema": {"schema": SCHEMA, "name": "point"}}
    body = {
        "model": pipelined.settings.name,
        "messages": [{"role": "user", "content": "A point, please."}],
        "response_format": form,
        "max_tokens": 60,
        "seed": 3,
    }
    texts = []
    for worker in (target, pipelined):
        answered = httpx.post(f"{worker.url}/v1/chat/completions", json=body, timeout=120.0)
        assert answered.status_code == 200, answered.text
        choice = answered.json()["choices"][0]
        texts.append((choice["message"]["content"], choice["finish_reason"]))
    assert texts[0] == texts[1]
    assert json.loads(texts[0][0])["x"] in range(10)
