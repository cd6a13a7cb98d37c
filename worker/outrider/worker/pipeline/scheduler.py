"""Scheduler of a pipelined target: messages to its leader, and what that commits to clients.

Does no I/O and waits for nobody. Leaves rows, segments and KV to `leader`, drafts to
`target.sessions`, an answer's messages to `target.answer`.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from outrider.contract.state import SegmentTotals
from outrider.worker.errors import TooLong
from outrider.worker.kv.block_pool import BLOCK, BlockPool
from outrider.worker.messages import (
    Cancel,
    EngineReport,
    Finish,
    FromPeer,
    LinkDown,
    LinkUp,
    SegmentTraced,
    SetPolicy,
    Submit,
    Timeline,
)
from outrider.worker.pipeline.draft_control import PipelinedDraftControl, SourceStep
from outrider.worker.pipeline.leader import Leader
from outrider.worker.pipeline.planner import PipelinePlanner
from outrider.worker.pipeline.records import Record, Results, Segment
from outrider.worker.pipeline.request import PipelinedRequest
from outrider.worker.pipeline.segment_log import LoggedSegment, RequestRows, SegmentLog
from outrider.worker.pipeline.sequence import PipelinedSequence
from outrider.worker.pipeline.stats import PipelinedStats
from outrider.worker.pipeline.text_search import TextSearch
from outrider.worker.pipeline.walk import Committed
from outrider.worker.target.answer import Answer, stream
from outrider.worker.target.sessions import TargetSessions
from outrider.worker.tree.mirror import SUFFIX

FAILURES = {
    Finish.FAILED: "the model's logits hold no number",
    Finish.GRAMMAR_FAILED: "its form cannot be followed",
}
"""What clients are told of an answer that ends so."""
GIVEN_UP = (
    "the stages were lost {losses} times while they computed this request and had no token of it, "
    "the last time while they computed nothing else: {reason}"
)
"""What clients are told of a request that takes its stages down."""
MAX_TRACED_SEGMENTS = 256
"""Of one request that is traced: its first ones. Each is a span and one more for each stage."""


class PipelinedScheduler:
    """Every request of one pipelined target."""

    def __init__(
        self,
        leader: Leader,
        planner: PipelinePlanner,
        sessions: TargetSessions[PipelinedDraftControl],
        outbox: list[Any],
    ) -> None:
        self.leader = leader
        leader.share_prompts = planner.share_prompts
        self.planner = planner
        self.sessions = sessions
        self.control = sessions.control
        self.outbox = outbox
        """Messages for the server, and for drafts by gRPC."""
        self.stats = PipelinedStats()
        self.log = leader.log = SegmentLog(planner.stages)
        self._requests: dict[int, PipelinedRequest] = {}
        """Those that have not ended, by number."""

    @property
    def idle(self) -> bool:
        """True if no request runs."""
        return not self.leader.running

    def receive(self, message: Any, now: float) -> None:
        """Apply one message of the server process or of a draft."""
        match message:
            case Submit():
                self._submit(message, now)
            case Cancel(request=request, finish=finish):
                if request in self._requests:
                    self.leader.cancel(request)
                    self._end(self._requests[request], finish, now)
            case FromPeer() | SetPolicy() | LinkUp() | LinkDown():
                self.sessions.apply(message, now)
            case _:
                raise TypeError(f"a pipelined target's engine was sent {message!r}")

    def settle(self, results: Results, now: float) -> None:
        """Commit what the results of a segment decide."""
        logged = self.log.returned(results, now)
        if logged is not None:
            self.planner.saw_results(results, logged.sent)
            self.outbox += traced(logged)
        decoding, tokens = self._decoding(), 0
        plain = self.planner.plain_seconds(len(decoding))
        drafted = any(_measures_drafting(one, self.control) for one in decoding)
        for committed in self.leader.receive(results):
            request = self._requests[committed.request]
            self._commit(request, committed, now)
            if request in decoding:
                decoded = len(committed.tokens)
                request.timing.plain_seconds += decoded * plain * self.control.switch.scale
                tokens += decoded
        if decoding and self.planner.round_trip:
            rows, step = self.stats.take_step(), None
            if self.control.local.wanted:
                step = SourceStep(rows, self.planner.row_costs(len(decoding)), plain)
            spent = self.control.count(tokens * plain, drafted, self.planner.round_trip, now, step)
            self.stats.count_lent(self.control.local.lent, self.control.switch.scale)
            self.stats.count_time(spent, tokens * plain * self.control.switch.scale)
        else:
            self.control.settled_at = now
        most = max(1, len(decoding)) * (1 + self.control.policy.max_rows)
        self.leader.plan = self.planner.replan(len(decoding), most, now)

    def stream(self, now: float) -> None:
        """Send the clients what is due."""
        stream(self._requests.values(), self.outbox, now)

    def expire(self, now: float, missing: str) -> None:
        """End requests that have waited for their start for as long as they may; `missing`: why no
        stage runs them, empty if all do."""
        for request in self._unstarted():
            if now >= request.submit.start_by:
                waited = now - request.submit.arrived
                self.leader.cancel(request.submit.request)
                if missing:
                    self._end(request, Finish.STAGES_MISSING, now, missing)
                else:
                    detail = f"no room for this request in {waited:.1f} s"
                    self._end(request, Finish.EXPIRED, now, detail)

    def fill(self, now: float) -> Iterator[Record]:
        """Send what is to leave now; yields the records for the first stage, in order."""
        for request in self._requests.values():
            self._find_nodes(request)
        if not self.leader.running:
            self.control.settled_at = now  # a time without any request counts for nothing
        trees: list[PipelinedSequence] = []
        while now >= self.planner.due and self.leader.fill():
            trees += self._note_sent(now)
        for sequence in self.leader.running:
            request = self._requests[sequence.submit.request]
            if not request.started:
                request.start(sequence.kv.block_table.cached, now)
                self.stats.count_start(request)
            self.sessions.update(request, now)
        while self.leader.outgoing:
            yield self.leader.outgoing.popleft()
        for sequence in trees:
            self.planner.saw_tree(sequence)  # no stage waits for it

    def begin_group(self, pool: BlockPool, rows: int, now: float) -> None:
        """Begin with stages that know nothing, and take segments of at most so many rows: requests
        go on from their committed tokens, but for those that no longer fit."""
        self.leader.restart(pool)
        self.leader.plan = self.planner.begin(rows)
        for request in tuple(self._requests.values()):
            try:
                self.leader.check_fits(request.submit)
            except TooLong as error:
                self.leader.cancel(request.submit.request)
                detail = f"the stages came back with less room: {error}"
                self._end(request, Finish.FAILED, now, detail)

    def lose_group(self, reason: str, now: float) -> None:
        """Take all requests back: the stages have lost them. Nothing may be sent until
        `begin_group`. One that has lost several groups, the last one alone, ends here."""
        pool = self.leader.pool
        self.log.lose_group()
        self.planner.restart()
        empty = BlockPool(pool.blocks, pool.longest, prefix_cache=pool.prefix_cache)
        given_up = self.leader.restart(empty)
        for sequence in given_up:
            detail = GIVEN_UP.format(losses=sequence.losses, reason=reason)
            self._end(self._requests[sequence.submit.request], Finish.FAILED, now, detail)
        for request in self._requests.values():
            if request.unsent:
                request.send_tokens(self.outbox, now)

    def max_wait(self, now: float) -> float | None:
        """Return the seconds until a request has waited for too long, or the next segment is due;
        None: no limit."""
        first = min((one.submit.start_by for one in self._unstarted()), default=math.inf)
        due = self.planner.due if self.planner.due > now else math.inf
        soonest = min(first, due)
        return None if soonest == math.inf else max(0.0, soonest - now)

    def report(self) -> EngineReport:
        """Return the counters so far."""
        counters, pool = self.stats.counters, self.leader.pool
        counters.passes_by_accepted = tuple(self.stats.passes_by_accepted)
        counters.source_rows = tuple(self.stats.source_rows)
        counters.source_accepted = tuple(self.stats.source_accepted)
        self.sessions.count(counters)
        counters.kv_slots_used = pool.used * BLOCK
        counters.kv_slots = pool.blocks * BLOCK
        counters.preemptions = self.leader.preemptions
        return EngineReport(
            counters,
            len(self.leader.running),
            len(self.leader.waiting),
            drafting=self.control.drafting,
            last_rows=self.stats.last_rows,
            last_node_rows=self.stats.last_node_rows,
            segments=self._segment_totals(),
            stages=tuple(map(dataclasses.replace, self.log.stages)),
        )

    def timeline(self) -> Timeline:
        """Return what the stages did to the last segments."""
        return Timeline(self.log.spans())

    def _segment_totals(self) -> SegmentTotals:
        under_way = self.leader.segments
        return dataclasses.replace(
            self.log.totals, segments_in_flight=under_way.busy, rows_in_flight=under_way.rows
        )

    def _unstarted(self) -> list[PipelinedRequest]:
        waiting = (self._requests[one.submit.request] for one in self.leader.waiting)
        return [request for request in waiting if not request.started]

    def _submit(self, submit: Submit, now: float) -> None:
        try:
            self.leader.submit(submit)
        except TooLong as error:
            Answer(submit).send_end(Finish.FAILED, 0, self.outbox, now, str(error))
            return
        sequence = self.leader.find(submit.request)
        assert sequence is not None
        request = PipelinedRequest(submit, sequence, self.leader.detach)
        request.usage.prompt_tokens = len(submit.prompt)
        self._requests[submit.request] = request

    def _find_nodes(self, request: PipelinedRequest) -> None:
        """Say which sources' nodes get rows; read the text, and search it once there is an answer.

        What waits for a place is not read: it may be cancelled before it has one.
        """
        sequence, policy = request.sequence, self.control.policy
        sequence.sources = self.control.sources(request.submit)
        if not sequence.sources >> SUFFIX & 1 or sequence.placed is None:
            return
        request.text = request.text or TextSearch.of(sequence)
        if request.generated:
            request.text.search(policy.max_rows, policy.depth)
        else:
            request.text.read_on()

    def _decoding(self) -> list[PipelinedRequest]:
        """Return the requests whose prompts, and all that they had written when they were last
        taken back, have been computed."""
        running = (one for one in self.leader.running if one.kv.decodes)
        return [self._requests[one.submit.request] for one in running]

    def _note_sent(self, now: float) -> list[PipelinedSequence]:
        """Note the segment that the leader has just put behind all other records; return the
        sequences that decode in it."""
        segment = self.leader.outgoing[-1]
        assert isinstance(segment, Segment)
        self.log.sent(segment, self._traced_rows(segment), now)
        self.planner.sent(segment.count, now)
        self.stats.count_segment(segment)
        served = set(segment.sequence.tolist())
        return [one for one in self.leader.running if one.kv.number in served and one.kv.decodes]

    def _traced_rows(self, segment: Segment) -> tuple[RequestRows, ...]:
        """Return the rows of requests that are traced, and have not been in too many segments."""
        found = []
        for sequence in self.leader.running:
            request = self._requests[sequence.submit.request]
            if sequence.submit.traceparent and request.traced_segments < MAX_TRACED_SEGMENTS:
                own = segment.rows[segment.sequence == sequence.kv.number]
                if len(own):
                    request.traced_segments += 1
                    found.append(RequestRows(sequence.submit.request, int(own[0]), len(own)))
        return tuple(found)

    def _commit(self, request: PipelinedRequest, committed: Committed, now: float) -> None:
        """Send tokens to draft and client, and end the request if it is done."""
        tokens, control = committed.tokens, self.control
        if len(tokens):
            control.scale.learn(committed.guesses.surplus)
            self.sessions.commit(request, committed.position, tokens, now)
            if request.generated:  # the first token is prefill's
                wanted, rests = control.wants_drafts(request.submit), control.rests(request.submit)
                self.stats.count_pass(request, committed, wanted, rests)
            request.take(tokens.tolist(), request.generated == 0, now)
            request.unsent_logprobs += committed.logprobs
            request.generated += len(tokens)
            self.stats.counters.generation_tokens += len(tokens)
            request.supplied, request.committed_at, request.growths = committed.fall_in, now, 0
        if committed.finish is not None:
            detail = FAILURES.get(committed.finish, "")
            self._end(request, committed.finish, now, detail)

    def _end(self, request: PipelinedRequest, finish: Finish, now: float, detail: str = "") -> None:
        """End a request that the leader has ended."""
        del self._requests[request.submit.request]
        self.sessions.finish(request)
        request.send_end(finish, request.generated, self.outbox, now, detail)
        self.stats.count_end(request, finish)


def traced(logged: LoggedSegment) -> Iterator[SegmentTraced]:
    """Yield for each traced request what its span of a segment shows."""
    for request, first_row, rows in logged.traced:
        yield SegmentTraced(
            request=request,
            segment=logged.number,
            first_row=first_row,
            rows=rows,
            segment_rows=logged.rows,
            sent=logged.sent,
            back=logged.back,
            visits=logged.stage_visits,
        )


def _measures_drafting(request: PipelinedRequest, control: PipelinedDraftControl) -> bool:
    """True if its passes measure the gain of drafting, or of a rest that the switch has begun."""
    return request.session is not None or control.rests(request.submit)
