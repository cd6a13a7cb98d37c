"""Draft tokens without a draft's passes: with no draft, beside one, and while it is down."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from outrider.client import Client, Sampling, State
from outrider.contract.settings import PolicySettings, Role
from outrider.contract.sources import POLICY_SOURCES, SOURCES, SourceKind
from outrider.worker.speculation.local_sources import ADVANCE_TOKENS, EARNED_SHARE
from tests.process import workers
from tests.process.conftest import Folders, MortalDraft
from tests.process.workers import (
    ANSWER_SECONDS,
    PROMPT,
    START_SECONDS,
    Answer,
    Worker,
    answer,
    let_grow,
    pair_with,
    wait_until,
)

COUNT = 300
TOKEN_SECONDS = 0.01
"""More than a token of the tests' target takes."""
FEW = dict.fromkeys(range(40, 46), 40.0)
"""Logit bias: six tokens and no others, so what comes has been there before."""

REPETITIVE = Sampling(logit_bias=FEW)
SAMPLINGS = (
    REPETITIVE,
    Sampling(temperature=0.3, seed=11, logit_bias=FEW),
    Sampling(repetition_penalty=1.05, logit_bias=FEW | {11: 1.5, 12: -100.0}),
)


def until_helped(target: Worker, plain: Answer, **options: Any) -> int:
    """Answers until draft tokens were accepted, and returns how many: a source that has lost time
    rests for a while."""
    found: list[int] = []

    def helped() -> bool:
        given = answer(target, COUNT, **options)
        assert given.tokens == plain.tokens[:COUNT]
        found.append(given.result.usage.accepted_rows)
        return found[-1] > 0

    wait_until(
        helped, START_SECONDS + TOKEN_SECONDS * ADVANCE_TOKENS / EARNED_SHARE, "a source that helps"
    )
    return found[-1]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_text_without_a_draft_changes_no_token(target: Worker, sampling: Sampling) -> None:
    source = SourceKind.SUFFIX

    def accepted(state: State) -> int:
        return state.counters.source_accepted[SOURCES.index(source)]

    before = accepted(target.client.state())
    pair_with(target, sources=(source,))
    plain = answer(target, COUNT, sampling=sampling, speculate=False)
    assert plain.result.usage.draft_rows == 0
    given = answer(target, COUNT, sampling=sampling)
    assert given.tokens == plain.tokens
    pair_with(target, sources=(source,))
    expected = given.result.usage.accepted_rows + until_helped(target, plain, sampling=sampling)
    target.until(lambda state: accepted(state) - before == expected)


def test_all_sources_change_no_token_whether_the_draft_is_up_or_down(
    target: Worker, draft: MortalDraft
) -> None:
    """Each is counted by itself."""
    pair_with(target, draft.address, sources=POLICY_SOURCES)
    plain = answer(target, 2 * COUNT, sampling=REPETITIVE, speculate=False)

    def lose() -> None:
        draft.kill()
        target.until(lambda state: all(link.state != "up" for link in state.links))

    events = {100: lambda: let_grow(target, draft.worker), COUNT: lose}
    given = answer(target, 2 * COUNT, events, sampling=REPETITIVE)
    assert given.tokens == plain.tokens
    pair_with(target, sources=POLICY_SOURCES)
    assert until_helped(target, plain, sampling=REPETITIVE) > 0
    counters = target.client.state().counters
    assert sum(counters.source_rows) == counters.draft_rows
    assert sum(counters.source_accepted) == counters.accepted_rows


@pytest.fixture
def closed(folders: Folders) -> Iterator[Worker]:
    """A target with two API keys and finished answers as its only source; its client has the
    first."""
    file = folders.logs / "keys"
    file.write_text("first\nsecond\n")
    policy = PolicySettings(off_below_percent=0, sources=(SourceKind.ANSWERS,))
    worker = workers.launch(
        folders.settings(Role.TARGET, api_keys_file=str(file), policy=policy), folders.logs
    )
    worker.client.close()
    worker.client = Client(worker.address, api_key="first")
    try:
        worker.until(lambda state: state.ready)
        yield worker
    finally:
        workers.stop(worker)


def test_finished_answers_help_their_own_key_over_grpc_and_http(closed: Worker) -> None:
    first = answer(closed, COUNT)
    assert first.result.usage.draft_rows == 0
    until_helped(closed, first)
    closed.client.close()
    closed.client = Client(closed.address, api_key="second")
    other = answer(closed, COUNT)
    assert other.tokens == first.tokens
    assert other.result.usage.draft_rows == 0
    assert http_answer(closed, "third").status_code == 401
    for key in ("first", "second"):
        wait_until(lambda key=key: helped_over_http(closed, key, other), START_SECONDS, key)


def test_all_callers_of_a_target_on_loopback_without_keys_share_their_answers(
    target: Worker,
) -> None:
    pair_with(target, sources=(SourceKind.ANSWERS,))
    plain = answer(target, COUNT, speculate=False)
    assert answer(target, COUNT).result.usage.draft_rows == 0
    until_helped(target, plain)


def helped_over_http(target: Worker, key: str, expected: Answer) -> bool:
    """Whether draft tokens were accepted for the same answer over HTTP."""
    given = http_answer(target, key).json()
    assert given["choices"][0]["text"] == expected.result.text
    return bool(given["outrider"]["choices"][0]["accepted_rows"] > 0)


def http_answer(target: Worker, key: str) -> httpx.Response:
    """Ask for the same answer over HTTP, with an API key."""
    return httpx.post(
        f"{target.url}/v1/completions",
        json={"prompt": PROMPT, "max_tokens": COUNT, "temperature": 0, "ignore_eos": True},
        headers={"Authorization": f"Bearer {key}"},
        timeout=ANSWER_SECONDS,
        trust_env=False,
    )
