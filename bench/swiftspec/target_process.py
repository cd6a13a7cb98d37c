"""A target of `bench.swiftspec`, in a process of its own that answers one JSON object a line.

`addresses`: drafts to link to, of which the last is the named side's. `text`: a chat to answer. It
says what the answer cost, and what its engine, the product's, ran meanwhile. Ends with its input.
"""

import json
import queue
import select
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import outrider.worker.link.shared_memory  # noqa: F401  # compiled before a link is up
from bench.swiftspec.answer import COLOCATED
from bench.swiftspec.process import (
    Traffic,
    finish,
    identity_of,
    on_thread,
    parse,
    read,
    say,
    spans_between,
)
from bench.swiftspec.target_sides import CountingCommitter, TargetSides, Use
from outrider.contract.inference import Message
from outrider.contract.settings import WorkerSettings
from outrider.contract.state import LinkState
from outrider.worker.api.text import Text
from outrider.worker.engine.loop import Engine
from outrider.worker.engine.pass_timeline import PassTimeline
from outrider.worker.engine.socket_channel import Channel, pair
from outrider.worker.engine.transport import TargetTransport
from outrider.worker.host.process import keep_to
from outrider.worker.launch import build_target
from outrider.worker.launch.build_colocated import build_colocated
from outrider.worker.launch.colocated import ColocatedScheduler
from outrider.worker.launch.loaded import LoadedModel
from outrider.worker.launch.prepare import Models, prepare_models, read_facts
from outrider.worker.link.payloads import for_draft
from outrider.worker.link.wire import FromTarget
from outrider.worker.messages import (
    AskTimeline,
    Finish,
    Finished,
    Identity,
    LinkStates,
    SetDrafts,
    Submit,
    Timeline,
    Tokens,
    ToPeer,
)
from outrider.worker.parallel.placement import engines_processors
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.scheduler import TargetScheduler


@dataclass(frozen=True, slots=True)
class Built:
    """An engine, and what counts beside it."""

    engine: Engine[Any, Any]
    loaded: LoadedModel
    counts: Callable[[], CountingCommitter]
    """The present scheduler's."""
    traffic: Traffic


def build(side: str, settings: WorkerSettings, models: Models, transport: TargetTransport) -> Built:
    """Build the engine of the colocated side, or of all others."""
    traffic = Traffic(lambda message: b"".join(for_draft([message])))
    if side == COLOCATED:
        engine, loaded = build_colocated(settings, models, transport)
        assert isinstance(engine.scheduler, ColocatedScheduler)
        committer = CountingCommitter.of(engine.scheduler.target)
        return Built(engine, loaded, lambda: committer, traffic)
    loaded = build_target.load_target(settings, models)
    runner = build_target.target_runner(settings, loaded, models.vocabulary, transport.arrived)
    host_seconds = build_target.warm_up(settings, loaded, runner, models.vocabulary)
    processors, outbox = build_target.logits_processors(models), list[Any]()

    def send(link: int, message: FromTarget) -> None:
        traffic.add(message)
        to_peer = ToPeer(link, (message,))
        if not transport.direct.send(to_peer):
            outbox.append(to_peer)

    def make() -> TargetScheduler:
        return build_target.target_scheduler(
            settings, loaded, processors, send, outbox, host_seconds
        )

    sides = TargetSides(make)
    engine = Engine(sides, runner, transport, PassTimeline(sides.spans))
    return Built(engine, loaded, lambda: sides.present.counts, traffic)


class Server:
    """The engine's server, as far as a benchmark needs one: requests in, answers out."""

    def __init__(self, channel: Channel, built: Built, text: Text, end_ids: tuple[int, ...]):
        self._channel = channel
        self._built = built
        self._text = text
        self._end_ids = end_ids
        self._requests = 0

    def link_to(self, own: Identity, side: str, addresses: tuple[str, ...]) -> str:
        """Link to these drafts, and to no others, the last one for a side.

        Returns what carries its messages; empty where there are none.
        """
        self._channel.send(Use(side), SetDrafts(own, addresses))
        for message in self._messages():
            if not isinstance(message, LinkStates):
                continue
            links = {link.address: link for link in message.links}
            if any(link.state is LinkState.REFUSED for link in message.links):
                raise SystemExit(f"a draft was refused: {message.links}")
            if set(links) == set(addresses) and all(
                link.state is LinkState.UP for link in message.links
            ):
                return links[addresses[-1]].transport if addresses else ""
        raise AssertionError("the channel has ended")

    def answer(
        self, side: str, text: str, max_tokens: int, sampling: SamplingParams, speculate: bool
    ) -> dict[str, Any]:
        """Answer a chat; return its tokens, what they cost, and the passes meanwhile."""
        self._requests += 1
        if side != COLOCATED:
            self._channel.send(Use(side))
        prompt = np.array(self._text.encode_chat([Message("user", text)]), np.int32)
        arrived, number = time.monotonic(), self._requests
        self._channel.send(
            Submit(number, prompt, sampling, max_tokens, self._end_ids, speculate, arrived)
        )
        ids, end = self._until_finished()
        began = arrived + end.timing.first_token_seconds
        ended = began + end.timing.decode_seconds
        self._channel.send(AskTimeline())
        timeline = next(m for m in self._messages() if isinstance(m, Timeline))
        return {
            "token_ids": ids,
            "tokens": end.usage.completion_tokens - 1,
            "passes": end.usage.passes,
            "began": began,
            "ended": ended,
            "spans": spans_between(timeline, began, ended),
            **self._built.counts().take(),
            **self._built.traffic.take(),
        }

    def _until_finished(self) -> tuple[list[int], Finished]:
        ids: list[int] = []
        for message in self._messages():
            if isinstance(message, Tokens):
                ids += message.ids
            elif isinstance(message, Finished):
                if message.finish not in (Finish.STOP, Finish.LENGTH):
                    raise SystemExit(f"an answer ended as {message.finish}: {message.detail}")
                return ids, message
        raise AssertionError("the channel has ended")

    def _messages(self) -> Iterator[Any]:
        """Yield the engine's messages as they come; those not taken are lost."""
        while True:
            select.select([self._channel], [], [])
            yield from self._channel.drain()


def main() -> None:
    """Load, say so, then answer until the input ends."""
    options = parse(__doc__)
    settings = read(options.settings)
    ours, theirs = pair()
    transport = TargetTransport(Channel(theirs))  # its thread may use any processor
    keep_to(settings.other_processors)
    models = prepare_models(settings)
    built: queue.SimpleQueue[Built] = queue.SimpleQueue()

    def run() -> None:
        keep_to(engines_processors(settings))
        one = build(options.side, settings, models, transport)
        one.loaded.limit_passes()
        built.put(one)
        one.engine.run()

    on_thread(run)
    engine = built.get()
    own = identity_of(settings, models, options.links)
    end_ids = read_facts(settings, models).end_ids
    server = Server(Channel(ours), engine, Text.load(models.own.tokenizer), end_ids)
    say(dtype=str(engine.loaded.path), step_seconds=engine.loaded.costs.table())
    for line in sys.stdin:
        asked = json.loads(line)
        if "addresses" in asked:
            say(transport=server.link_to(own, asked["side"], tuple(asked["addresses"])))
        else:
            sampling = SamplingParams(**asked.pop("sampling"))
            say(**server.answer(sampling=sampling, **asked))
    finish()


if __name__ == "__main__":
    main()
