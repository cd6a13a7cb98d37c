"""What a root begins with, by which waits for growth are decided: also what local sources find."""

import numpy as np
import pytest

from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SourceKind
from outrider.worker.speculation.wait import WaitPolicy
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence
from outrider.worker.tree.growth import Growth, Ints
from outrider.worker.tree.mirror import SUFFIX
from outrider.worker.tree.walk import ROOT
from tests.unit.worker.fakes import VOCABULARY
from tests.unit.worker.pair import Pair

PROMPT = [1, 2, 3]
COUNT = 40
SURE, UNLIKELY = -0.05, -9.0
"""Estimates whose rows pay on the machine of `FlatCosts`, and do not."""
TEXT_AND_DRAFT = (SourceKind.DRAFT, SourceKind.SUFFIX)


def tokens(*ids: int) -> Ints:
    return np.array(ids, np.int32)


def decoding(sources: tuple[SourceKind, ...] = TEXT_AND_DRAFT) -> tuple[RowSelector, Sequence]:
    """Return a decoding sequence with a silent draft, at a root that nothing is known of."""
    pair = Pair(draft_passes=0)
    selector = pair.target.row_selector
    policy = PolicySettings(version=1, off_below_percent=0, sources=sources)
    selector.set_policy(policy, pair.now)
    pair.submit(PROMPT, COUNT)
    for _ in range(4):
        pair.turn()
    (sequence,) = pair.target.admission.running
    assert sequence.session is not None
    sequence.mirror.commit(tokens(60))
    sequence.append(tokens(60), False, pair.now)
    return selector, sequence


def add(sequence: Sequence, token: int, estimate: float) -> None:
    """Add a node of the text below the root."""
    sequence.mirror.add_local(tokens(ROOT), tokens(token), np.array([estimate], np.float32), SUFFIX)


def plan(selector: RowSelector, sequence: Sequence) -> WaitPolicy:
    """Plan a step, at a new root after local sources have looked for nodes; return what waits have
    learnt."""
    if sequence.needs_search:
        selector.search(sequence)
    assert selector.select([sequence], 0, 0.0, may_wait=False) is not None
    return selector.wait_policy.present


@pytest.mark.parametrize(("estimate", "supplied"), [(SURE, True), (UNLIKELY, False)])
def test_a_root_at_which_the_text_has_rows_that_pay_is_supplied(
    estimate: float, supplied: bool
) -> None:
    selector, sequence = decoding()
    waits = selector.wait_policy.present
    before = waits.fresh.seen[0], waits.supplied.seen[0]
    add(sequence, 7, estimate)
    plan(selector, sequence)
    seen = waits.fresh.seen[0] - before[0], waits.supplied.seen[0] - before[1]
    assert sequence.supplied is supplied
    assert seen == ((0, 1) if supplied else (1, 0))


def test_a_fall_in_on_the_last_node_of_the_text_is_not_supplied() -> None:
    selector, sequence = decoding()
    add(sequence, 7, SURE)
    plan(selector, sequence)
    survived = sequence.mirror.commit(tokens(7))
    sequence.append(tokens(7), survived, 0.0)
    assert survived, "the new root was in the mirror"
    assert len(sequence.mirror) == 0, "and nothing is left of the tree"
    waits = plan(selector, sequence)
    assert not sequence.supplied
    assert waits.supplied.value[0] > waits.fresh.value[0], "the root before it was worth more"


def grow(sequence: Sequence) -> None:
    """Receive a first growth of the root."""
    growth = Growth(
        sequence.position, 1, np.array([0], np.int64), tokens(9), np.array([SURE], np.float32)
    )
    sequence.mirror.receive(growth, 8, np.ones(VOCABULARY, np.bool_))
    sequence.growths = 1


@pytest.mark.parametrize("judged", [False, True])
def test_a_first_growth_teaches_what_it_is_worth_once_the_root_is_judged(judged: bool) -> None:
    selector, sequence = decoding()
    waits = plan(selector, sequence) if judged else selector.wait_policy.present
    before = waits.fresh.seen[1] + waits.supplied.seen[1]
    grow(sequence)
    selector.saw_first_growth(sequence)
    assert waits.fresh.seen[1] + waits.supplied.seen[1] - before == judged


def test_growth_does_not_make_a_root_supplied() -> None:
    selector, sequence = decoding()
    plan(selector, sequence)
    grow(sequence)
    waits = plan(selector, sequence)
    assert not sequence.supplied
    assert waits.fresh.seen[1] == 1


def test_without_local_sources_a_root_is_supplied_where_it_was_in_the_mirror() -> None:
    selector, sequence = decoding((SourceKind.DRAFT,))
    sequence.append(tokens(8), True, 0.0)
    sequence.mirror.commit(tokens(8))
    assert not sequence.needs_search
    assert selector.select([sequence], 0, 0.0, may_wait=False) is not None
    assert sequence.supplied


def test_rows_of_the_text_at_some_roots_do_not_end_waits_at_those_without() -> None:
    """At half of the roots the text is worth 2 tokens and growth adds nothing; at the others there
    is nothing to run, and growth brings 0.6."""
    waits = WaitPolicy.serial()
    waits.trials = 0
    rate, seconds = 200.0, 0.001  # 0.2 tokens for each growth
    waits.latency = waits.period = seconds
    for root in range(200):
        supplied = root % 2 == 0
        for growths in range(2):
            value = 2.0 if supplied else 0.6 * growths
            waits.saw_value(supplied, growths, value)
    assert not waits.should_wait([(True, 0)], 2.0, rate, 0.0, 1.0)
    assert waits.should_wait([(False, 0)], 0.0, rate, 0.0, 2.0)
