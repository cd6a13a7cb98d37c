"""What a sequence's suffix automaton reads in one step."""

import numpy as np
import pytest

from outrider.contract.settings import PolicySettings
from outrider.contract.sources import POLICY_SOURCES
from outrider.worker.messages import SetPolicy, Submit
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.speculation.suffix_automaton import MAX_TOKENS, MOST_READ, READ
from outrider.worker.target.sequence import Sequence
from tests.unit.worker.pair import Pair

REPEATED = 40


def pair_of(context: int) -> Pair:
    pair = Pair(context=context)
    pair.target.receive(SetPolicy(PolicySettings(version=1, sources=POLICY_SOURCES)), 0.0)
    return pair


def first_answered(pair: Pair, prompt: int) -> Sequence:
    """Return a sequence whose prompt, of so many tokens, was cached, after its first token."""
    text = np.arange(prompt, dtype=np.int32) % REPEATED
    submit = Submit(
        request=1,
        prompt=text,
        sampling=SamplingParams(),
        max_tokens=64,
        end_ids=(),
        speculate=True,
        arrived=0.0,
    )
    sequence = pair.target._sequence(submit)
    token = np.array([prompt % REPEATED], np.int32)
    sequence.mirror.commit(token)
    sequence.append(token, 0.0)
    return sequence


@pytest.mark.parametrize("prompt", [MOST_READ // 2, 5 * MOST_READ, 2 * MAX_TOKENS])
def test_a_cached_prompt_is_read_in_many_steps_and_proposes_once_it_is(prompt: int) -> None:
    pair = pair_of(prompt + 100)
    sequence = first_answered(pair, prompt)
    numbers, steps = sequence.suffix.numbers, 0
    last = max(0, prompt + 1 - MAX_TOKENS // 2) if prompt > MAX_TOKENS else 0
    while len(sequence.mirror) == 0:
        sequence.searched = 0  # it is so at each new root
        pair.target.row_selector.search(sequence)
        assert numbers.item(READ) - last <= MOST_READ
        last = numbers.item(READ)
        steps += 1
        assert (len(sequence.mirror) > 0) == (last == sequence.length)
    assert steps == -(-min(prompt + 1, MAX_TOKENS // 2) // MOST_READ)
    tokens = sequence.mirror.tables.nodes.token[:3].tolist()
    assert tokens == [(prompt + ahead) % REPEATED for ahead in (1, 2, 3)]


def test_a_root_is_searched_once_however_often_its_step_is_planned() -> None:
    pair = pair_of(300)
    sequence = first_answered(pair, 2 * REPEATED)
    assert sequence.needs_search
    pair.target.row_selector.search(sequence)
    assert len(sequence.mirror) > 0
    assert not sequence.needs_search
    sequence.mirror.commit(np.array([1], np.int32))
    sequence.append(np.array([1], np.int32), 0.0)
    assert sequence.needs_search
