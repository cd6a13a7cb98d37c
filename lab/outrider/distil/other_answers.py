"""Answers that other distillations of the same target wrote, perhaps on other machines.

Chats that are held out there are not trained on here, nor are questions that are held out here.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outrider.distil.errors import BadRecipe
from outrider.distil.origin import ORIGIN
from outrider.distil.recipe import Recipe, answers_of
from outrider.distil.shards import ANSWERED, ASKED, Chat, shard_files
from outrider.distil.training import changed
from outrider.distil.whole_files import read_json

SAME = ("target", "layout", "longest")
"""What answers of another run must follow from, too."""
CHATS = ("seed", "prompts")
"""What its chats follow from besides: they must not be those of another run."""
PROMPTS = "prompts.json"
"""What was asked, in words, beside the answers."""


def check_others(recipe: Recipe, now: dict[str, Any]) -> None:
    """Raise `BadRecipe` if a folder has no answers of this target; `now`: what ours follow from."""
    if recipe.only_answers and recipe.answers_from:
        raise BadRecipe("answersFrom and onlyAnswers: not both; nothing is trained on them")
    wanted, seen = {name: now[name] for name in SAME}, {recipe.out.resolve()}
    asked = {_chats(now): str(recipe.out)}
    for folder in recipe.answers_from:
        if folder.resolve() in seen:
            raise BadRecipe(f"answersFrom {folder}: it is named twice, or is `out`")
        seen.add(folder.resolve())
        origin = read_json(answers_of(folder) / ORIGIN)
        if origin is None or not shard_files(answers_of(folder)):
            raise BadRecipe(f"answersFrom {folder}: no answers of an outrider distil are there")
        differences = changed({name: origin.get(name) for name in SAME}, wanted)
        if differences:
            raise BadRecipe(f"answersFrom {folder}: answers of another target: {differences}")
        if _chats(origin) in asked:
            raise BadRecipe(
                f"answersFrom {folder}: the same chats as {asked[_chats(origin)]}, for seed and "
                "prompts are the same; write them with another `seed`"
            )
        asked[_chats(origin)] = str(folder)


def _chats(origin: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(origin.get(name) for name in CHATS)


def order_of(folders: Iterable[Path]) -> list[list[Any]]:
    """Return what tells runs apart, and how many shards each has, in their order."""
    return [
        [*_chats(read_json(answers_of(folder) / ORIGIN)), len(shard_files(answers_of(folder)))]
        for folder in folders
    ]


def described_by(folder: Path) -> list[dict[str, Any]]:
    """Return what a run with answers asked, in words."""
    found = read_json(answers_of(folder) / PROMPTS)
    if found is None:
        found = [{"name": "unknown", "prompts": "not told", "licence": "not told"}]
    return [one | {"name": f"{one['name']} (in {folder.name})"} for one in found]


def held_out_by(folder: Path) -> int:
    """Return how many chats, the first, a run with answers tests on."""
    return int(read_json(answers_of(folder) / ORIGIN)["held_out"])


def without(chats: Iterable[Chat], held_out: Iterable[Chat]) -> list[Chat]:
    """Return chats that ask none of the whole questions that are held out."""
    questions = {given(chat) for chat in held_out if is_whole(chat)}
    return [chat for chat in chats if given(chat) not in questions]


def is_whole(chat: Chat) -> bool:
    """True if the question was given as a whole, not written by the target."""
    return not bool((chat.writers == ASKED).any())


def given(chat: Chat) -> bytes:
    """Return what tells a chat's tokens before its answer apart from others'."""
    answered = (chat.writers == ANSWERED).nonzero()[0]
    return bytes(chat.tokens[: answered[0] if len(answered) else None].tobytes())
