"""Loads: what is asked, when it is sent, and how it is summed up."""

import asyncio
import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import pytest

from outrider.cli.failures import BadInput
from outrider.cli.load.exchange import Exchange, Job, Status
from outrider.cli.load.prompts import bundled, read
from outrider.cli.load.run import LoadRun, jobs
from outrider.cli.load.summary import compare, percentiles, summary


class Waiting(LoadRun):
    """Requests that end once as many as the barrier wants are on their way."""

    barrier: asyncio.Barrier

    async def send(self, exchange: Exchange) -> None:
        exchange.sent = exchange.due
        await self.barrier.wait()
        exchange.status = Status.COMPLETED


def load(together: int, **most: Any) -> Waiting:
    endless: itertools.count[int] = itertools.count()
    made = Waiting(httpx.AsyncClient(), ((n, {}) for n in endless), **most)
    made.barrier = asyncio.Barrier(together)
    return made


def finish(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def ended(job: Job = (0, {}), text: str = "a b", **changes: Any) -> Exchange:
    one = Exchange(job, 0.0, sent=1.0, ended=2.0, status=Status.COMPLETED)
    one.texts[0], one.times = text, [1.25, 1.75][: len(text.split(" "))]
    for name, value in changes.items():
        setattr(one, name, value)
    return one


def test_an_open_loop_does_not_wait_for_answers() -> None:
    run = load(5, requests=5)
    finish(run.open_loop(1e6, 0))
    assert sorted(one.job[0] for one in run.ended) == [0, 1, 2, 3, 4]


def test_an_open_loop_sends_at_its_rate_and_nothing_after_its_end() -> None:
    run = load(1, seconds=0.2)
    finish(run.open_loop(1000.0, 3))
    assert run.sent == len(run.ended) == pytest.approx(200, abs=60)
    assert all(one.due < 0.2 for one in run.ended)


@pytest.mark.parametrize("together", [3, 1])
def test_a_closed_loop_sends_as_many_as_asked(together: int) -> None:
    run = load(together, requests=9)
    finish(run.closed_loop(together))
    assert sorted(one.job[0] for one in run.ended) == list(range(9))


def test_a_closed_loop_keeps_no_more_running() -> None:
    run = load(4, requests=4)

    async def watched() -> None:
        task = asyncio.ensure_future(run.closed_loop(3))
        for _ in range(20):
            await asyncio.sleep(0)
        assert (run.sent, len(run.ended)) == (3, 0)
        task.cancel()
        await asyncio.wait([task])

    finish(watched())
    assert [one.status for one in run.ended] == [Status.INTERRUPTED] * 3


def test_every_prompt_is_asked_before_any_is_asked_again_with_its_own_seed() -> None:
    prompts = [one.fields() for one in bundled()]
    asked = list(itertools.islice(jobs(prompts, {"max_tokens": 5}, 7), 2 * len(prompts)))
    first, second = asked[: len(prompts)], asked[len(prompts) :]
    assert sorted(number for number, _ in first) == list(range(len(prompts)))
    assert first != second
    assert dict(first) == dict(second)
    assert len({body["seed"] for _, body in first}) == len(prompts)


def test_own_prompts_are_read_in_every_form(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "c"}]
    entries: list[dict[str, Any]] = [{"prompt": "b", "max_tokens": 9}, {"messages": messages}]
    (tmp_path / "own").write_text("\n\n".join(map(json.dumps, entries)))
    question = [{"role": "user", "content": "b"}]
    assert read(tmp_path / "own") == [{"messages": question, "max_tokens": 9}, entries[1]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no prompt"),
        ('{"prompt": "a"}\n{"prompt": ', 'line 2 is {"prompt": ; allowed: {"prompt": text}'),
        ("5", "line 1 is 5"),
        ('{"text": "a"}', "line 1 is"),
        ('{"prompt": ""}', "line 1 is"),
        ('{"prompt": "a", "max_tokens": 0}', "line 1 is"),
        ('{"messages": [{"role": "user"}]}', "line 1 is"),
        ('{"messages": [{"role": "user", "content": 5}]}', "line 1 is"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "own").write_text(text)
    with pytest.raises(BadInput, match=r"--prompts .*own") as refused:
        read(tmp_path / "own")
    assert words in str(refused.value)


def test_latencies_are_those_of_completed_requests() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    failed = ended(status=Status.FAILED, problem="cut", ended=9.0)
    found = summary([ended(usage=usage), failed])
    assert (found["sent"], found["completed"], found["failed"]) == (2, 1, 1)
    assert (found["ttft"]["p50"], found["itl"]["p50"], found["tpot"]["p50"]) == (0.25, 0.5, 0.25)
    assert (found["latency"]["p99"], found["behind_schedule"]["mean"]) == (1.0, 1.0)
    assert (found["duration"], found["completion_tokens"]) == (9.0, 5)
    assert found["problems"] == {"cut": 1}


def test_a_percentile_is_the_least_figure_that_so_many_do_not_exceed() -> None:
    found = percentiles(range(1, 101))
    assert found == {"mean": 50.5, "p50": 50, "p90": 90, "p99": 99, "n": 100}
    assert percentiles([]) is None


@pytest.mark.parametrize(
    ("others", "compared", "differing"),
    [
        ([], 0, 0),
        ([ended(text="a b")], 1, 0),
        ([ended(text="a c")], 1, 1),
        ([ended(text="a")], 1, 1),
        ([ended(text="a", status=Status.FAILED)], 1, 0),
        ([ended(text="b", status=Status.INTERRUPTED)], 1, 1),
        ([ended(text="b", status=Status.REJECTED), ended((1, {}), "other")], 0, 0),
        ([ended(ends={0: "stop"})], 1, 1),
        ([ended(usage={"completion_tokens": 2})], 1, 1),
        ([ended(texts=defaultdict(str, {0: "a b", 1: "c"}))], 1, 1),
    ],
)
def test_answers_to_one_prompt_are_the_same(
    others: list[Exchange], compared: int, differing: int
) -> None:
    found = compare([ended(), *others])
    assert (found["compared"], len(found["differences"])) == (compared, differing)


def test_choices_and_calls_of_a_stream_are_kept_apart() -> None:
    chunks = (
        ({"content": "a"}, 1, None),
        ({"content": "b"}, 0, None),
        ({"content": "c"}, 1, "stop"),
        ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{"}}]}, 0, None),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}, 0, "tool_calls"),
    )
    choices = ({"delta": delta, "index": at, "finish_reason": end} for delta, at, end in chunks)
    stream = "".join(f"data: {json.dumps({'choices': [one]})}\n\n" for one in choices)
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=stream))
    client = httpx.AsyncClient(transport=transport, base_url="http://server")
    one = Exchange((0, {}), 0.0)
    finish(one.run(client, lambda: 0.0))
    assert (one.status, one.problem) == (Status.COMPLETED, "")
    assert one.texts == {0: "bf{}", 1: "ac"}
    assert one.ends == {0: "tool_calls", 1: "stop"}
