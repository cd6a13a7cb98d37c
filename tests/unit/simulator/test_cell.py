from pathlib import Path

import pytest

from outrider.contract.settings import Role
from outrider.simulator.clients import BACK_OFF
from outrider.simulator.costs import pass_times
from outrider.simulator.figures import cell_figures, summary
from outrider.worker.draft.batch import DraftBatch
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.launch.colocated import MIN_CHUNK_ROWS, chunk_rows
from outrider.worker.messages import Finish
from tests.unit.simulator.simulations import DRAFT, TARGET, TRAFFIC, run, shared_run, simulation

COLOCATED = DRAFT.replace("draft:", "draft:\n  placement: Colocated")
STATIC = "speculation: {mode: Static}\n"
ONE = """
traffic:
  stages: [{rate: 1000, requests: 1}]
  promptTokens: {mean: 10}
  answerTokens: {mean: 5}
"""


def test_plain_decoding_of_one_request_takes_what_the_table_says() -> None:
    flat = TARGET.replace("[10, 12, 40]", "[10, 10, 10]")
    (answer,) = run(simulation(flat, ONE)).clients.answers
    timing = answer.message.timing
    assert answer.message.usage.completion_tokens == 5
    assert timing.first_token_seconds == pytest.approx(0.010)
    assert timing.total_seconds == pytest.approx(5 * 0.010 + 4 * 0.0005)


def test_rows_that_are_sampled_take_their_time() -> None:
    flat = TARGET.replace("[10, 12, 40]", "[10, 10, 10]")
    slow = flat.replace("hostMicro", "rowMicroseconds: 1000, hostMicro")
    (answer,) = run(simulation(slow, ONE)).clients.answers
    assert answer.message.timing.total_seconds == pytest.approx(5 * 0.011 + 4 * 0.0005)


def test_more_context_and_more_rows_of_prompts_take_longer() -> None:
    long = ONE.replace("mean: 10", "mean: 100")
    short, longer, context = (
        run(simulation(target, traffic)).clients.answers[0].message.timing.first_token_seconds
        for target, traffic in (
            (TARGET, ONE),
            (TARGET, long),
            (TARGET.replace("hostMicro", "contextMicroseconds: 50000, hostMicro"), long),
        )
    )
    assert 0.010 < short < 0.012 < longer < context


@pytest.mark.parametrize("draft", [DRAFT, COLOCATED], ids=["separate", "colocated"])
def test_the_text_is_the_same_with_and_without_drafts(draft: str) -> None:
    _, plain = shared_run(TARGET, TRAFFIC)
    _, drafted = shared_run(TARGET, draft, TRAFFIC)
    both = plain.keys() & drafted.keys()
    assert len(both) > 15
    assert all(plain[request] == drafted[request] for request in both)


def test_the_text_is_the_same_where_kv_is_short() -> None:
    short = TARGET.replace("maxRunning: 8", "maxRunning: 8\n  kvTokens: 960")
    busy = TRAFFIC.replace("rate: 4", "rate: 12").replace("{mean: 60", "{mean: 150")
    found, pressed = shared_run(short, DRAFT, busy)
    assert found.cell.targets[0].scheduler.stats.counters.preemptions > 0
    _, plain = shared_run(TARGET, busy)
    both = plain.keys() & pressed.keys()
    assert len(both) > 10
    assert all(plain[request] == pressed[request] for request in both)


@pytest.mark.parametrize("draft", [DRAFT, COLOCATED], ids=["separate", "colocated"])
def test_drafts_make_a_service_faster(draft: str) -> None:
    without, beside = (
        summary(one.simulation, [cell_figures(one)])
        for one, _ in (shared_run(TARGET, TRAFFIC), shared_run(TARGET, draft, TRAFFIC))
    )
    assert without["speculation"]["tokens_per_pass"] == 1.0
    assert beside["speculation"]["tokens_per_pass"] > 1.5
    assert beside["latency_seconds"]["mean"] < 0.8 * without["latency_seconds"]["mean"]


def test_roles_that_share_a_machine_slow_each_other_down() -> None:
    apart, together = (
        shared_run(TARGET, draft, TRAFFIC)[0].cell
        for draft in (DRAFT, DRAFT.replace("draft:", "draft:\n  contention: 1.5"))
    )
    seconds = [
        cell.targets[0].engine.busy_seconds / cell.targets[0].engine.passes
        for cell in (apart, together)
    ]
    assert seconds[1] > 1.3 * seconds[0]


def test_a_longer_link_brings_growth_later() -> None:
    near, far = (
        shared_run(TARGET, draft, TRAFFIC)[0].cell.targets[0].scheduler.report().counters
        for draft in (DRAFT, DRAFT.replace("microseconds: 100}", "microseconds: 5000}"))
    )
    mean = [c.growth_latency_seconds / sum(c.growth_latencies) for c in (near, far)]
    assert mean[1] > mean[0] + 2 * 0.0045


def test_the_same_seed_gives_the_same_figures() -> None:
    one, again, other = (
        summary(found.simulation, [cell_figures(found)])
        for found in (
            shared_run(TARGET, DRAFT, TRAFFIC)[0],
            run(simulation(TARGET, DRAFT, TRAFFIC)),
            run(simulation(TARGET, DRAFT, TRAFFIC, seed=4)),
        )
    )
    assert one == again
    assert one["latency_seconds"] != other["latency_seconds"]


def test_requests_beyond_the_queue_are_refused_and_those_that_wait_too_long_end() -> None:
    crowded = TARGET.replace(
        "maxRunning: 8", "maxRunning: 1\n  maxWaiting: 3\n  maxQueueSeconds: 1"
    )
    found = run(simulation(crowded, TRAFFIC.replace("rate: 4", "rate: 20")))
    assert found.clients.refused > 50
    expired = [a for a in found.clients.answers if a.message.finish is Finish.EXPIRED]
    assert expired
    waited = [answer.message.timing.queued_seconds for answer in found.clients.answers]
    assert max(waited) <= 1.1


def test_as_many_requests_run_as_the_concurrency_says() -> None:
    traffic = "traffic: {concurrency: 5, promptTokens: {mean: 20}, answerTokens: {mean: 40}}\n"
    found = run(simulation(TARGET, DRAFT, traffic))
    assert {point.running + point.waiting for point in found.recorder.points[2:]} <= {4, 5}
    assert found.clients.arrived == len(found.clients.answers) + 5


def test_the_operator_gives_back_drafts_that_do_not_pay() -> None:
    bad = "pair: {hitRate: 0.3, second: 0.1, spread: 0.2}\n"
    quick = """
speculation:
  control: {intervalSeconds: 2}
  draftShrink: {afterSeconds: 5}
"""
    slow = DRAFT.replace("[1, 1.5]", "[30, 40]") + "  minReplicas: 0\n"
    found = run(simulation(TARGET, slow, TRAFFIC, bad, quick, seconds=120))
    figures = cell_figures(found)
    assert figures.switches >= 1
    assert any("drafting off" in words for _, words in figures.sentences)
    assert figures.draft_seconds < 80
    assert summary(found.simulation, [figures])["cost"]["draft_gpu_hours"] < 80 / 3600


def test_drafts_that_come_back_are_used_again() -> None:
    found = run(simulation(TARGET, DRAFT, TRAFFIC, STATIC, seconds=2))
    cell, target = found.cell, found.cell.targets[0].scheduler
    cell.scale(0)
    cell.clock.run(6.0)
    without = target.stats.counters.drafted_passes
    cell.clock.run(7.0)
    assert target.stats.counters.drafted_passes == without
    cell.scale(1)
    cell.clock.run(12.0)
    assert target.stats.counters.drafted_passes > without
    assert len(cell.drafts) == 2
    assert cell.drafts[0].ended_at == pytest.approx(3.0)


def test_clients_that_were_refused_come_again() -> None:
    full = TARGET.replace("maxRunning: 8", "maxRunning: 2\n  maxWaiting: 1")
    traffic = "traffic: {concurrency: 7, promptTokens: {mean: 20}, answerTokens: {mean: 40}}\n"
    clients = run(simulation(full, traffic)).clients
    assert clients.refused > 4 * 8 / (2 * BACK_OFF)
    assert clients.arrived == clients.refused + len(clients.answers) + 3


def test_requests_that_can_run_at_once_are_not_refused_for_coming_at_once() -> None:
    wide = TARGET.replace("maxRunning: 8", "maxRunning: 12\n  maxWaiting: 1")
    traffic = "traffic: {concurrency: 13, promptTokens: {mean: 20}, answerTokens: {mean: 40}}\n"
    clients = run(simulation(wide, traffic)).clients
    assert clients.refused == 0
    assert clients.arrived == len(clients.answers) + 13


def test_clients_whose_request_was_too_long_send_others() -> None:
    lengths = "promptTokens: {mean: 400, variation: 0.5}, answerTokens: {mean: 40}"
    found = run(simulation(TARGET, f"traffic: {{concurrency: 4, {lengths}}}\n", seconds=20))
    clients = found.clients
    assert clients.too_long > 4
    assert found.recorder.points[-1].running >= 1
    assert 0 <= clients.arrived - clients.too_long - len(clients.answers) <= 4


def test_drafts_slow_their_machine_down_while_they_live() -> None:
    shared = DRAFT.replace("draft:", "draft:\n  contention: 3")
    cell = run(simulation(TARGET, shared, TRAFFIC, STATIC, seconds=2)).cell
    engine, (first,) = cell.targets[0].engine, cell.drafts

    def pass_seconds() -> float:
        """Return the mean of the target's passes in the next two seconds."""
        busy, passes = engine.busy_seconds, engine.passes
        cell.clock.run(cell.clock.now + 2.0)
        return (engine.busy_seconds - busy) / (engine.passes - passes)

    while not first.engine.running:
        cell.clock.run(cell.clock.now + 1e-4)
    first.stopping = True
    cell._end(first)
    assert not first.engine.running
    alone = pass_seconds()
    assert alone < 0.014
    cell.scale(1)
    cell.clock.run(cell.clock.now + 2.0)
    assert pass_seconds() > 1.5 * alone
    second = cell.drafts[-1].engine
    assert second.busy_seconds / second.passes > 1.5 * 0.0015


def test_a_draft_inside_its_target_catches_up_in_chunks_as_the_product_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, catch_up = set(), DraftScheduler.catch_up

    def note(self: DraftScheduler, now: float, rows: int) -> DraftBatch | None:
        asked.add(rows)
        return catch_up(self, now, rows)

    monkeypatch.setattr(DraftScheduler, "catch_up", note)
    described = simulation(TARGET, COLOCATED, ONE)
    run(described)
    assert described.draft is not None
    draft = pass_times(described.draft, Role.DRAFT, Path())
    rows = chunk_rows(draft.costs, pass_times(described.target, Role.TARGET, Path()).costs)
    assert rows > MIN_CHUNK_ROWS
    assert asked == {rows}


@pytest.mark.parametrize(("streams", "least"), [(1, 1.3), (2, 1.15), (4, 1.0)])
def test_a_draft_inside_its_target_that_is_seldom_wrong_pays_for_some_streams_at_once(
    streams: int, least: float
) -> None:
    """Costs of two small models on two processors: a pass of the draft takes a third of the
    target's, and a further row of either takes time."""
    target = """
target:
  maxRunning: 8
  costs: {rows: [1, 2, 4, 8, 16, 32], milliseconds: [46, 47, 52, 58, 95, 165]}
"""
    draft = """
draft:
  placement: Colocated
  costs: {rows: [1, 2, 4, 8, 16, 32, 64], milliseconds: [17, 17.6, 18.4, 20.5, 30, 52, 98]}
"""
    traffic = f"""
pair: {{hitRate: 0.9}}
traffic: {{concurrency: {streams}, promptTokens: {{mean: 60}}, answerTokens: {{mean: 200}}}}
"""
    written = []
    for mode in ("Disabled", "Static"):
        described = simulation(
            target, draft, traffic, f"speculation: {{mode: {mode}}}\n", seconds=60
        )
        (worker,) = run(described).cell.targets
        written.append(worker.scheduler.stats.counters.generation_tokens)
    plain, drafted = written
    assert drafted > least * plain


def test_the_way_through_the_server_takes_its_time_and_the_engine_no_more() -> None:
    far = TARGET + "  serverMicroseconds: 50000\n"
    (near_answer,), (answer,) = (
        run(simulation(target, ONE)).clients.answers for target in (TARGET, far)
    )
    timing = answer.message.timing
    assert timing.total_seconds == pytest.approx(near_answer.message.timing.total_seconds)
    assert answer.seconds == pytest.approx(timing.total_seconds + 0.05)
    figures = cell_figures(run(simulation(far, ONE)))
    assert figures.latencies == pytest.approx([answer.seconds])
    assert figures.first_tokens == pytest.approx([timing.first_token_seconds + 0.05])


def test_clients_wait_for_the_server_before_they_come_again() -> None:
    traffic = "traffic: {concurrency: 1, promptTokens: {mean: 10}, answerTokens: {mean: 5}}\n"
    clients = run(simulation(TARGET + "  serverMicroseconds: 50000\n", traffic)).clients
    first, second, *_ = clients.answers
    assert second.arrived == pytest.approx(first.ended)
    assert second.ended - second.arrived > 0.05


@pytest.mark.parametrize("leaves", [2, 32])
def test_a_draft_pass_expands_as_many_leaves_as_it_may(leaves: int) -> None:
    narrow = DRAFT.replace("draft:", f"draft:\n  leafRows: {leaves}")
    cell = run(simulation(TARGET, narrow, TRAFFIC, STATIC, seconds=1)).cell
    engine, expanded = cell.drafts[0].engine, []
    alone = engine.pass_seconds

    def noting(step: DraftBatch) -> float:
        if not step.prefill:
            expanded.append(step.rows.count)
        return alone(step)

    engine.pass_seconds = noting
    cell.clock.run(4.0)
    assert max(expanded) == leaves if leaves == 2 else 2 < max(expanded) <= leaves
