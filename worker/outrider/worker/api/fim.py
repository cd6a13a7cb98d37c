"""Fill in the middle: a tokenizer's tokens for it, and the prompt that they lay out.

A model that was trained for it writes what belongs between a prefix and a suffix. Leaves text as
ids to `text`, and what a request may ask to `request`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple, Self

PREFIX, SUFFIX, MIDDLE = "pre", "suf", "mid"
PADDING, REPOSITORY, FILE = "pad", "rep", "sep"
"""Roles of tokens, as GGUF metadata names them: `tokenizer.ggml.fim_pre_token_id`."""
FAMILIES: Mapping[str, Mapping[str, str]] = {
    "Qwen Coder": {
        PREFIX: "<|fim_prefix|>",
        SUFFIX: "<|fim_suffix|>",
        MIDDLE: "<|fim_middle|>",
        PADDING: "<|fim_pad|>",
        REPOSITORY: "<|repo_name|>",
        FILE: "<|file_sep|>",
    },
    "CodeLlama": {PREFIX: "▁<PRE>", SUFFIX: "▁<SUF>", MIDDLE: "▁<MID>"},
    "DeepSeek-Coder": {
        PREFIX: "<\uff5cfim▁begin\uff5c>",
        SUFFIX: "<\uff5cfim▁hole\uff5c>",
        MIDDLE: "<\uff5cfim▁end\uff5c>",
    },
    "Codestral": {PREFIX: "[PREFIX]", SUFFIX: "[SUFFIX]"},
    "Granite Code": {
        PREFIX: "<fim_prefix>",
        SUFFIX: "<fim_suffix>",
        MIDDLE: "<fim_middle>",
        PADDING: "<fim_pad>",
    },
}
"""Names of the tokens of each family. One without a middle token puts the suffix first, and the
answer follows the prefix."""
ENDS_OF_TEXT = ("<|endoftext|>", "▁<EOT>", "<EOT>", "<\uff5cend▁of▁sentence\uff5c>")
PROJECT, CURRENT, UNNAMED = "project", "file", "snippet"
"""Names of the repository, of the file that is filled in, and of a file whose name is not known."""
STEPS = 8
"""Parts of the room; a text is cut by whole ones, so that the next prompt of somebody who types
begins like this one."""


class File(NamedTuple):
    """Another file of the repository, or a piece of it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class FimPrompt:
    """The texts around a place that is to be filled in."""

    prefix: str
    suffix: str
    answer_tokens: int
    """Tokens for which the context keeps room, at most half of it."""
    files: tuple[File, ...] = ()
    """The rest of the repository, the most telling last."""
    field: str = "suffix"
    """Name of the suffix in errors."""

    def cut(self, most: int) -> Self:
        """Return the prompt with at most that many characters of each text."""
        files = tuple(File(file.name, file.text[:most]) for file in self.files)
        return replace(self, prefix=self.prefix[-most:], suffix=self.suffix[:most], files=files)


@dataclass(frozen=True, slots=True)
class FimTokens:
    """One tokenizer's tokens to fill in the middle."""

    prefix: int
    suffix: int
    middle: int | None
    """None: the suffix comes first, and the answer follows the prefix."""
    repository: int | None
    file: int | None
    ends: tuple[int, ...]
    """All of them and the ends of a text: an answer that has one is over."""

    @property
    def largest(self) -> int:
        """The largest id that a prompt may have of them."""
        optional = (self.middle, self.repository, self.file)
        return max(self.prefix, self.suffix, *(token or 0 for token in optional))

    @classmethod
    def find(cls, id_of: Callable[[str], int | None], given: Mapping[str, int]) -> Self | None:
        """Return the tokens by their names, of which `given` has the last word by role; None where
        a tokenizer has none."""
        ids = {**_by_name(id_of), **given}
        if PREFIX not in ids or SUFFIX not in ids:
            return None
        ends = [*ids.values(), *_known(id_of, ENDS_OF_TEXT)]
        return cls(
            prefix=ids[PREFIX],
            suffix=ids[SUFFIX],
            middle=ids.get(MIDDLE),
            repository=ids.get(REPOSITORY),
            file=ids.get(FILE),
            ends=tuple(dict.fromkeys(ends)),
        )

    def lay_out(
        self, prompt: FimPrompt, encode: Callable[[str, bool], Sequence[int]], room: int
    ) -> list[int]:
        """Return the ids of a prompt, at most `room`: what is farthest from the cursor is left out.

        `encode` returns the ids of a text, and is told whether that begins one.
        """
        room -= 3  # the tokens between the texts
        prefix, suffix = around_cursor(
            encode(prompt.prefix, True), encode(prompt.suffix, False), max(0, room)
        )
        files = self._files(prompt.files, encode, room - len(prefix) - len(suffix))
        if self.middle is None:
            return [*files, self.suffix, *suffix, self.prefix, *prefix]
        return [*files, self.prefix, *prefix, self.suffix, *suffix, self.middle]

    def _files(
        self, files: Sequence[File], encode: Callable[[str, bool], Sequence[int]], room: int
    ) -> list[int]:
        """Return the ids of the last files for which there is room; none where the model knows
        no files."""
        if self.repository is None or self.file is None or not files:
            return []
        begin = [self.repository, *encode(f"{PROJECT}\n", True)]
        end = [self.file, *encode(f"{CURRENT}\n", True)]
        kept: list[list[int]] = []
        room -= len(begin) + len(end)
        for file in reversed(files):
            text = file.text if file.text.endswith("\n") else f"{file.text}\n"
            ids = [self.file, *encode(f"{file.name or UNNAMED}\n{text}", True)]
            room -= len(ids)
            if room < 0:
                break
            kept.append(ids)
        return [*begin, *chain.from_iterable(reversed(kept)), *end] if kept else []


def around_cursor(
    prefix: Sequence[int], suffix: Sequence[int], room: int
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the end of the prefix and the beginning of the suffix that `room` tokens hold; where
    both are long, three quarters are the prefix."""
    step = max(1, room // STEPS)
    after = max(room // 4, room - len(prefix))
    if len(suffix) > after:
        suffix = suffix[: after - after % step]
    spare = len(prefix) + len(suffix) - room
    return prefix[-(-spare // step) * step :] if spare > 0 else prefix, suffix


def given_ids(value: Any, count: int) -> dict[str, int]:
    """Return ids by role as a file gives them; without what is no id of a vocabulary of `count`."""
    given = value if isinstance(value, Mapping) else {}
    return {role: at for role, at in given.items() if type(at) is int and 0 <= at < count}


def _by_name(id_of: Callable[[str], int | None]) -> dict[str, int]:
    """Return the ids of the first family of which a tokenizer has what a prompt needs."""
    for names in FAMILIES.values():
        found = {role: token for role in names if (token := id_of(names[role])) is not None}
        if {PREFIX, SUFFIX, MIDDLE} & names.keys() <= found.keys():
            return found
    return {}


def _known(id_of: Callable[[str], int | None], names: Iterable[str]) -> list[int]:
    return [token for name in names if (token := id_of(name)) is not None]
