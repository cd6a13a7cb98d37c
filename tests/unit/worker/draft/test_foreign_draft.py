"""A draft of another tokenizer: the text is the target's own, and drafting works."""

import pickle
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.contract.counters import Counters
from outrider.worker.checkpoints.translation import TargetTokens
from outrider.worker.draft.session import DraftSession
from outrider.worker.sampling.params import SamplingParams
from tests.tiny_models import write_tiny
from tests.unit.worker.tiny_engines import (
    DRAFT_CONTEXT,
    DRAFT_VOCABULARY,
    FOREIGN_TOKENS,
    SAMPLINGS,
    TOKENS,
    VOCABULARY,
    TinyColocated,
    TinyLinked,
    TinyTarget,
    any_time_will_do,
    foreign_tokens,
)

COUNT = 120
FOREIGN = foreign_tokens()
BEGIN = 7
"""The draft's id before every text, where its tokenizer puts one."""
Engine = Callable[[Path, TargetTokens], TinyTarget]


def by_steps(folder: Path, tokens: TargetTokens) -> TinyTarget:
    return TinyColocated(folder, 0, price=0.0, tokens=tokens)


def by_runs(folder: Path, tokens: TargetTokens) -> TinyTarget:
    return TinyColocated(folder, price=0.0, tokens=tokens)


def behind_a_link(folder: Path, tokens: TargetTokens) -> TinyTarget:
    return TinyLinked(folder, rng=random.Random(5), tokens=tokens)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    any_time_will_do(monkeypatch)


def plain_text(folder: Path, sampling: SamplingParams) -> list[int]:
    plain = TinyTarget(folder)
    plain.submit(1, prompt=30, count=COUNT, sampling=sampling, speculate=False)
    plain.run_to_end()
    return plain.text()


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(
    ("engine", "accepted"), [(by_steps, 15), (by_runs, 15), (behind_a_link, 1)]
)
def test_the_text_is_the_target_s_in_fewer_passes(
    folder: Path, engine: Engine, accepted: int, sampling: SamplingParams
) -> None:
    assert counters_of(engine(folder, FOREIGN), sampling).accepted_rows >= accepted


@pytest.mark.parametrize("engine", [by_steps, by_runs, behind_a_link])
@pytest.mark.parametrize("seed", range(6))
def test_no_two_tokenizers_change_the_text(folder: Path, engine: Engine, seed: int) -> None:
    rng = random.Random(seed)
    alphabet = [bytes([byte]) for byte in rng.sample(range(256), 24)]
    longer = sorted({b"".join(rng.choices(alphabet, k=rng.randint(2, 4))) for _ in range(800)})

    def vocabulary(size: int) -> tuple[bytes, ...]:
        tokens = alphabet + rng.sample(longer, size - len(alphabet))
        return tuple(rng.sample(tokens, size))

    tokens = foreign_tokens(vocabulary(VOCABULARY), vocabulary(rng.randint(50, DRAFT_VOCABULARY)))
    assert counters_of(engine(folder, tokens), SAMPLINGS[seed % 3]).draft_rows > 0


def counters_of(target: TinyTarget, sampling: SamplingParams) -> Counters:
    """Write an answer, which must be plain decoding's; return what was counted."""
    target.submit(1, prompt=30, count=COUNT, sampling=sampling)
    target.run_to_end()
    assert target.text() == plain_text(target.folder, sampling)
    return target.target.report().counters


@pytest.mark.parametrize("roots", [0, 8])
def test_the_draft_reads_the_target_s_text_in_its_own_ids(folder: Path, roots: int) -> None:
    target = TinyColocated(folder, roots, price=0.0, tokens=foreign_tokens(begin=(BEGIN,)))
    target.submit(1, prompt=30, count=COUNT)
    seen = 0
    while target.busy:
        target.step()
        target.scheduler.deliver(0.0)
        for session in target.draft.sessions.live.values():
            (sequence,) = target.target.admission.running
            committed = sequence.committed()
            assert text_of(session) == b"".join(TOKENS[token] for token in committed)
            assert session.tree.target_position == len(committed) - 1
            seen += session.length > len(committed) + 1
    assert seen > 5


def text_of(session: DraftSession) -> bytes:
    begin, *ids = session.tokens[: session.length].tolist()
    assert begin == BEGIN
    return b"".join(FOREIGN_TOKENS[one] for one in ids)


def test_links_of_one_tokenizer_share_its_translation(folder: Path) -> None:
    sessions = TinyColocated(folder, 0, tokens=FOREIGN).draft.sessions
    others = foreign_tokens(TOKENS, FOREIGN_TOKENS[1:])
    for link, tokens in enumerate((FOREIGN, others, FOREIGN), 5):
        sessions.link_up(link, *pickle.loads(pickle.dumps(tokens)))  # it comes from the server
    assert sessions.links[7].translation is sessions.links[5].translation
    assert sessions.links[6].translation is not sessions.links[5].translation


def test_a_draft_that_dies_costs_no_token(folder: Path) -> None:
    target = TinyLinked(folder, rng=random.Random(3), tokens=FOREIGN)
    target.submit(1, prompt=30, count=COUNT)
    while target.busy:
        target.step()
        if target.rng.random() < 0.05:
            target.connect()
    assert target.text() == plain_text(folder, SAMPLINGS[0])
    assert target.target.report().counters.accepted_rows > 0


def test_a_text_that_is_too_long_in_the_draft_s_ids_is_not_drafted_for(folder: Path) -> None:
    target = TinyColocated(folder, 0, tokens=FOREIGN)
    target.submit(1, prompt=DRAFT_CONTEXT - 8, count=8)
    target.run_to_end()
    assert len(target.text()) == 8
    assert target.draft.report().counters.passes == 0
