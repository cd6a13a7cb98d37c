"""Files of chats with the target's features: what `writer` makes and `training` reads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

GIVEN, ASKED, ANSWERED = range(3)
"""Who wrote a token: the template or a question, the target as user, the target as assistant."""


@dataclass(frozen=True, slots=True)
class Chat:
    """One chat as the target wrote it."""

    tokens: NDArray[np.int32]
    """[tokens]."""
    writers: NDArray[np.int8]
    """[tokens] `GIVEN`, `ASKED` or `ANSWERED`."""
    features: NDArray[np.float16]
    """[tokens - 1, hidden] after the final norm; line i is of token i, and the head makes the
    logits of token i + 1 of it."""


def save_shard(file: Path, chats: Sequence[Chat]) -> None:
    """Write chats to a file that is there as a whole or not at all."""
    fresh = file.with_suffix(".part")
    with fresh.open("wb") as opened:
        np.savez(
            opened,
            tokens=np.concatenate([chat.tokens for chat in chats]),
            writers=np.concatenate([chat.writers for chat in chats]),
            features=np.concatenate([chat.features for chat in chats]),
            lengths=np.array([len(chat.tokens) for chat in chats]),
        )
    fresh.replace(file)


def load_shard(file: Path) -> Iterator[Chat]:
    """Yield the chats of one file."""
    with np.load(file) as arrays:
        tokens, writers, features, lengths = (
            arrays[name] for name in ("tokens", "writers", "features", "lengths")
        )
    end = 0
    for number, length in enumerate(lengths.tolist()):
        begin, end = end, end + length
        lines = slice(begin - number, end - number - 1)
        yield Chat(tokens[begin:end], writers[begin:end], features[lines])


def shard_files(folder: Path) -> list[Path]:
    """Return the finished files of a folder, in the order of their numbers."""
    return sorted(folder.glob("chats-*.npz"))
