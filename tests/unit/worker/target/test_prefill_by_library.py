"""Prompts by the vendor's library: their tokens always, those of answers never, in fixed chunks."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from outrider.contract.settings import PrefillKind
from outrider.worker.model.rows import CHUNK
from tests.unit.worker.pair import DRAFT_SECONDS, PASS_SECONDS, Pair


@dataclass
class LibraryPair(Pair):
    """A target that leaves prompts to the library, whose passes are looked at."""

    prefill: PrefillKind = PrefillKind.LIBRARY
    row_capacity: int = 128
    spare_blocks: int | None = 2
    chunks: list[tuple[int, int, int]] = field(default_factory=list)
    """Request, first position and rows of each chunk by the library."""

    def turn(self, seconds: float = PASS_SECONDS, draft_seconds: float = DRAFT_SECONDS) -> None:
        super().turn(seconds, draft_seconds)
        libraries = [part.rows for part in self.parts if part.rows.by_library]
        assert len(libraries) <= 1
        others = sum(part.rows.count for part in self.parts if not part.rows.by_library)
        assert others <= self.row_capacity
        for part in self.parts:
            prompt, rows = part.sequence.prompt_length, part.rows
            assert ((rows.positions < prompt) == rows.by_library).all()
            if rows.by_library:
                first = int(rows.positions[0])
                self.chunks.append((part.sequence.submit.request, first, rows.count))


@pytest.mark.parametrize(("prompt", "answer"), [(1, 20), (CHUNK, 20), (CHUNK + 1, 20), (200, 250)])
@pytest.mark.parametrize("passes", [0, 6], ids=["no draft", "a draft"])
def test_every_token_of_a_prompt_and_none_of_an_answer_goes_to_the_library(
    prompt: int, answer: int, passes: int
) -> None:
    pair = LibraryPair(draft_passes=passes)
    tokens = {n: [(n * 7 + 5 * t) % 61 for t in range(prompt)] for n in (1, 2)}
    for request, own in tokens.items():
        pair.submit(own, answer, request)
    for request, own in tokens.items():
        pair.run(request)
        assert pair.text(request) == pair.expected(own, answer)
    starts = range(0, prompt, CHUNK)
    whole = [(start, min(CHUNK, prompt - start)) for start in starts]
    assert [found[1:] for found in pair.chunks if found[0] == 1][: len(whole)] == whole
    assert (pair.target.stats.counters.preemptions > 0) == (answer == 250)


def test_a_prompt_finds_what_the_library_wrote_and_nothing_else() -> None:
    pair = LibraryPair()
    tokens = [(5 * t) % 61 for t in range(200)]
    pair.submit(tokens, 60)
    pair.run()
    turn = tokens + pair.text()
    pair.submit(turn, 5, 2)
    assert pair.run(2).usage.cached_prompt_tokens == 192
    pair.submit([*turn, 3], 5, 3)
    assert pair.run(3).usage.cached_prompt_tokens == 256
    assert [found for found in pair.chunks if found[0] > 1] == [
        (2, 192, 64),
        (2, 256, 4),
        (3, 256, 5),
    ]


def test_without_it_nothing_goes_to_the_library() -> None:
    pair = Pair()
    pair.submit([1] * 200, 20)
    while pair.finished() is None:
        pair.turn()
        assert not any(part.rows.by_library for part in pair.parts)
    assert np.array_equal(pair.text(), pair.expected([1] * 200, 20))
