"""Draft tokens of a pipelined target out of its text."""

import numpy as np

from outrider.contract.sources import SOURCES
from outrider.worker.messages import Submit
from outrider.worker.pipeline.sequence import PipelinedSequence
from outrider.worker.pipeline.text_search import TextSearch
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.speculation.acceptance import Calibration
from outrider.worker.speculation.suffix_automaton import MOST_READ
from outrider.worker.tree.mirror import DRAFT, SUFFIX
from outrider.worker.tree.walk import ROOT

SUFFIXES = 1 << SUFFIX
REPEATED = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3]


def sequence_of(prompt: list[int], max_tokens: int = 20) -> PipelinedSequence:
    tokens = np.array(prompt, np.int32)
    submit = Submit(0, tokens, SamplingParams(), max_tokens, (), True, 0.0)
    return PipelinedSequence.of(submit, Calibration(), 256, lambda sequence: None)


def path_of(sequence: PipelinedSequence) -> list[int]:
    """The tokens of a tree that is a path."""
    mirror = sequence.mirror
    assert mirror.parent.tolist() == [ROOT, *range(len(mirror) - 1)]
    tokens: list[int] = mirror.token.tolist()
    return tokens


def commit(sequence: PipelinedSequence, *tokens: int) -> None:
    sequence.mirror.commit(np.array(tokens, np.int32))
    sequence.length += len(tokens)


def test_what_followed_before_is_found() -> None:
    sequence = sequence_of(REPEATED)
    TextSearch.of(sequence).search(SUFFIXES, nodes=4, depth=32)
    assert path_of(sequence) == [4, 5, 6, 7]
    assert set(sequence.mirror.proposer.tolist()) == {SUFFIX}


def test_no_node_is_deeper_than_asked_or_than_the_answer_may_be() -> None:
    for max_tokens, depth in ((20, 2), (3, 32)):
        sequence = sequence_of(REPEATED, max_tokens)
        TextSearch.of(sequence).search(SUFFIXES, nodes=8, depth=depth)
        assert path_of(sequence) == [4, 5]
    last = sequence_of(REPEATED, max_tokens=1)
    TextSearch.of(last).search(SUFFIXES, nodes=8, depth=32)
    assert len(last.mirror) == 0


def test_a_root_is_searched_once_and_the_next_one_deeper() -> None:
    sequence = sequence_of(REPEATED)
    text = TextSearch.of(sequence)
    text.search(SUFFIXES, nodes=8, depth=2)
    text.search(SUFFIXES, nodes=8, depth=3)
    assert path_of(sequence) == [4, 5]
    commit(sequence, 4)
    text.search(SUFFIXES, nodes=8, depth=2)
    assert path_of(sequence) == [5, 6]


def test_a_node_that_is_there_is_not_added_again() -> None:
    sequence = sequence_of(REPEATED)
    drafted = np.array([ROOT], np.int32), np.array([4], np.int32), np.array([-0.5], np.float32)
    sequence.mirror.add_local(*drafted, DRAFT)
    TextSearch.of(sequence).search(SUFFIXES, nodes=2, depth=2)
    assert path_of(sequence) == [4, 5]
    assert sequence.mirror.proposer.tolist() == [DRAFT, SUFFIX]


def test_a_long_text_is_read_in_parts() -> None:
    sequence = sequence_of([*REPEATED[:7], *range(100, 100 + MOST_READ), *REPEATED[:3]])
    text = TextSearch.of(sequence)
    text.search(SUFFIXES, nodes=4, depth=4)
    assert len(sequence.mirror) == 0
    commit(sequence, 4)
    text.search(SUFFIXES, nodes=3, depth=4)
    assert path_of(sequence) == [5, 6, 7]


def test_nodes_of_sources_that_may_not_run_are_never_reached() -> None:
    sequence = sequence_of(REPEATED)
    TextSearch.of(sequence).search(SUFFIXES, nodes=2, depth=2)
    every, others = 1 << SUFFIX, (1 << len(SOURCES)) - 1 - (1 << SUFFIX)
    assert (sequence.calibration.reach(sequence.mirror, every) > 0).all()
    assert not sequence.calibration.reach(sequence.mirror, others).any()
