"""Hello of a pair of two tokenizers: the draft gets the target's tokens, or the pair is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.checkpoints import vocabulary
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import PairRefused, ProtocolViolation
from outrider.worker.link import handshake
from outrider.worker.link.client import MAX_HELLO_BYTES
from outrider.worker.messages import Identity
from tests.tiny_models import write_tiny


def identity(folder: Path, tokens: list[str]) -> Identity:
    """One role with a tiny model and a tokenizer of its own."""
    write_tiny(folder)
    own = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(tokens)}, merges=[]))
    own.decoder = decoders.ByteLevel()
    own.save(str(folder / "tokenizer.json"))
    model = PreparedModel("tiny", folder, folder, folder, "0" * 64)
    hashes = vocabulary.block_hashes(vocabulary.read(model))
    return Identity("revision", 1, 64, len(tokens), hashes, sessions=2, model=model)


@pytest.fixture
def target(tmp_path: Path) -> Identity:
    return identity(tmp_path / "target", ["a", "b", "ab", "ba", "abba"])


@pytest.fixture
def draft(tmp_path: Path) -> Identity:
    return identity(tmp_path / "draft", ["b", "a", "bb", "ab"])


def test_a_draft_of_another_tokenizer_gets_the_target_s_tokens(
    target: Identity, draft: Identity
) -> None:
    hello = handshake.accept_draft(target, handshake.hello_to_target(draft))
    assert hello.translates
    assert hello.allowed.all()
    heard = handshake.accept_target(draft, handshake.hello_to_draft(target))
    assert heard.allowed is None
    said = handshake.vocabulary_message(target)
    found = handshake.accept_vocabulary(draft, heard, said)
    assert found.target_ids.tolist() == [1, 0, -1, 2]
    assert found.allowed.tolist() == [True, True, True, True, False], "ba, read as two, too"
    assert handshake.accept_vocabulary(draft, heard, said) is found, "once for all its pods"


def test_the_largest_vocabularies_fit_in_a_message() -> None:
    data = np.random.default_rng(0).bytes(8 << 18)
    tokens = [data[at : at + 8] for at in range(0, len(data), 8)]
    assert len(vocabulary.packed(tokens)) < MAX_HELLO_BYTES


def test_a_draft_of_the_same_tokenizer_gets_nothing(target: Identity) -> None:
    hello = handshake.accept_draft(target, handshake.hello_to_target(target))
    assert not hello.translates
    heard = handshake.accept_target(target, handshake.hello_to_draft(target))
    assert heard.allowed is not None
    assert heard.allowed.all()


def test_a_side_that_cannot_translate_refuses_another_tokenizer(
    target: Identity, draft: Identity
) -> None:
    words = r"agree on 0\.0% of the ids that the draft can output, and the other side cannot"
    older = handshake.hello_to_target(replace(draft, model=None))
    with pytest.raises(PairRefused, match=words):
        handshake.accept_draft(target, older)
    with pytest.raises(PairRefused, match="this side cannot translate"):
        handshake.accept_target(replace(draft, model=None), handshake.hello_to_draft(target))


def test_a_draft_with_too_few_tokens_of_the_target_refuses_it(
    target: Identity, tmp_path: Path
) -> None:
    draft = identity(tmp_path / "other", ["x", "y"])
    heard = handshake.accept_target(draft, handshake.hello_to_draft(target))
    with pytest.raises(PairRefused, match="0 tokens are in both"):
        handshake.accept_vocabulary(draft, heard, handshake.vocabulary_message(target))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (pb.TargetMessage(records=b""), "the message after Hello must be Vocabulary"),
        (pb.TargetMessage(vocabulary=pb.Vocabulary(tokens=b"?")), "cannot be read"),
        (
            pb.TargetMessage(vocabulary=pb.Vocabulary(tokens=vocabulary.packed([b"a", b"b"]))),
            "not the one that Hello had the hashes of",
        ),
    ],
)
def test_tokens_that_are_not_the_target_s_end_the_stream(
    target: Identity, draft: Identity, message: pb.TargetMessage, words: str
) -> None:
    heard = handshake.accept_target(draft, handshake.hello_to_draft(target))
    with pytest.raises(ProtocolViolation, match=words):
        handshake.accept_vocabulary(draft, heard, message.SerializeToString())


def test_a_target_that_has_fewer_tokens_than_it_said_ends_the_stream(
    target: Identity, draft: Identity
) -> None:
    heard = handshake.accept_target(draft, handshake.hello_to_draft(replace(target, vocabulary=6)))
    with pytest.raises(ProtocolViolation, match="a vocabulary of 5, not 6 tokens"):
        handshake.accept_vocabulary(draft, heard, handshake.vocabulary_message(target))


def test_tokens_that_cannot_be_read_refuse_the_pair_and_not_the_target(
    target: Identity, draft: Identity
) -> None:
    from outrider.worker.checkpoints.translation import tokens_for

    assert target.model is not None
    assert draft.model is not None
    (draft.model.tokenizer / "tokenizer.json").write_text("{}")
    with pytest.raises(PairRefused, match=r"the draft's tokens cannot be read: .*tokenizer\.json"):
        tokens_for(target.model, draft.model, 5)
    assert np.all(tokens_for(target.model, target.model, 5).allowed)
