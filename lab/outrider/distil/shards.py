"""Files of chats with the target's features: what `answers` makes and `training` reads.

A shard is two files: its chats, a few bytes a token, and their features, which are large and lie in
a file of their own: they are mapped, not read, and `teacher` can make them again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from outrider.distil.whole_files import write_whole

GIVEN, ASKED, ANSWERED, GUESSED = range(4)
"""Who wrote a token: the template, a question or a text before; the target as user; the target as
assistant; the draft."""


Text = tuple[NDArray[np.int32], NDArray[np.int8]]
"""[tokens] of one chat, and who wrote each."""


@dataclass(frozen=True, slots=True)
class Chat:
    """One chat as it was written."""

    tokens: NDArray[np.int32]
    """[tokens]."""
    writers: NDArray[np.int8]
    """[tokens] `GIVEN`, `ASKED`, `ANSWERED` or `GUESSED`."""
    features: NDArray[np.float16]
    """[tokens - 1, hidden] of the target after its final norm; line i is of token i, and the head
    makes the logits of token i + 1 of it."""


def save_shard(folder: Path, number: int, chats: Sequence[Chat]) -> None:
    """Write a shard; with its chats' file it is there. Raises `NotWritten`."""
    for chat in chats:
        assert len(chat.features) == len(chat.tokens) - 1 == len(chat.writers) - 1
    file = shard_file(folder, number)
    save_features(file, [chat.features for chat in chats])
    tokens, writers = (
        np.concatenate(column)
        for column in ([chat.tokens for chat in chats], [chat.writers for chat in chats])
    )
    lengths = np.array([len(chat.tokens) for chat in chats])
    write_whole(
        file,
        lambda opened: np.savez_compressed(opened, tokens=tokens, writers=writers, lengths=lengths),
    )


def save_features(file: Path, features: Sequence[NDArray[np.float16]]) -> None:
    """Write the features of a shard whose chats are in `file`; raises `NotWritten`."""
    together = np.concatenate(features)
    write_whole(features_file(file), lambda opened: _write_array(opened, together))


def _write_array(opened: BinaryIO, array: NDArray[np.float16]) -> None:
    """Write a .npy file; numpy's own way hides that the disk is full."""
    fields = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(opened, fields)
    opened.write(array.data.cast("B"))


def load_shard(file: Path) -> list[Chat]:
    """Return the chats of one file; their features are read when they are used."""
    features: NDArray[np.float16] = np.asarray(np.load(features_file(file), mmap_mode="r"))
    found, end = [], 0
    for tokens, writers in load_texts(file):
        begin, end = end, end + len(tokens) - 1
        found.append(Chat(tokens, writers, features[begin:end]))
    return found


def load_texts(file: Path) -> list[Text]:
    """Return tokens and writers of the chats of one file."""
    with np.load(file) as arrays:
        tokens, writers, lengths = (arrays[name] for name in ("tokens", "writers", "lengths"))
    ends = np.cumsum(lengths)[:-1]
    return list(zip(np.split(tokens, ends), np.split(writers, ends), strict=True))


def written_tokens(files: Iterable[Path]) -> int:
    """Return the tokens of shards that a model wrote; what it was given does not count."""
    return sum(int((writers != GIVEN).sum()) for file in files for _, writers in load_texts(file))


def shard_file(folder: Path, number: int) -> Path:
    """Return the file of a shard's chats."""
    return folder / f"chats-{number:05}.npz"


def shard_files(folder: Path) -> list[Path]:
    """Return the finished shards of a folder, in the order of their numbers, up to a gap."""
    found: list[Path] = []
    while (file := shard_file(folder, len(found))).exists():
        found.append(file)
    return found


def features_file(file: Path) -> Path:
    """Return the file of the features of a shard's chats."""
    return file.with_name(file.name.replace("chats", "features")).with_suffix(".npy")
