"""The corpus of one distillation: the target's answers in shards, written until there are enough.

Beside the shards lies what they follow from: shards of anything else are refused.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

from outrider.distil.answers import GREEDY, LONGEST, Chats, Writer
from outrider.distil.asked import Asked
from outrider.distil.disk import answer_bytes, check_room
from outrider.distil.engine import Engine
from outrider.distil.errors import BadRecipe
from outrider.distil.shards import (
    GIVEN,
    Chat,
    features_file,
    load_shard,
    save_shard,
    shard_files,
    written_tokens,
)
from outrider.distil.teacher import complete
from outrider.distil.training import Corpus, changed
from outrider.distil.whole_files import read_json, write_json
from outrider.distil.workshop import Workshop

SHARD_CHATS = 128


def check_answers(shop: Workshop, asked: Asked) -> None:
    """Raise `BadRecipe` if answers in the folder are of another recipe, or more have no room."""
    recipe, file = shop.recipe, shop.recipe.answers / "recipe.json"
    now = {
        "target": shop.target.sha256,
        "prompts": asked.digest,
        "held_out": asked.held_out,
        "seed": recipe.seed,
        "dtype": str(recipe.dtype),
        "longest": LONGEST,
        "greedy": GREEDY,
    }
    before = read_json(file)
    if before is None:
        write_json(file, now)
    elif differences := changed(before, now):
        raise BadRecipe(
            f"{recipe.out} holds answers of another recipe: {differences}; take another --out, or "
            f"remove {recipe.answers} to begin anew"
        )
    missing = max(recipe.tokens - written_tokens(shard_files(recipe.answers)), 0)
    check_room(recipe.answers, answer_bytes(shop.target.config, missing), "answers")


def write_answers(shop: Workshop, asked: Asked) -> list[Path]:
    """Write shards until there are enough tokens, and enough chats beside those held out.

    Returns all of them; raises `NotWritten`.
    """
    recipe, folder = shop.recipe, shop.recipe.answers
    number, tokens = len(shard_files(folder)), written_tokens(shard_files(folder))
    chats: Iterator[Chat] | None = None
    while tokens < recipe.tokens or number * SHARD_CHATS < 2 * asked.held_out:
        chats = chats or _chats(shop, asked, number * SHARD_CHATS)
        shard: list[Chat] = []
        for chat in itertools.islice(chats, SHARD_CHATS):
            shard.append(chat)
            tokens += int((chat.writers != GIVEN).sum())
            shop.progress.stage("answers", min(tokens, recipe.tokens), recipe.tokens)
        save_shard(folder, number, shard)
        number += 1
    return shard_files(folder)


def read_corpus(shop: Workshop, files: list[Path], held_out: int) -> Corpus:
    """Return all chats; features that are missing are made again. Raises `BadRecipe`."""
    teacher: Engine | None = None
    missing = [file for file in files if not features_file(file).exists()]
    for done, file in enumerate(missing):
        shop.progress.stage("features", done, len(missing))
        teacher = teacher or shop.target_engine(1)
        complete(teacher, file)
    if teacher is not None:
        teacher.close()
    chats = [chat for file in files for chat in load_shard(file)]
    corpus = Corpus(chats[:held_out], chats[held_out:])
    corpus.check()
    return corpus


def _chats(shop: Workshop, asked: Asked, first: int) -> Iterator[Chat]:
    """Return the target's chats from a number on."""
    recipe, layout = shop.recipe, shop.target.layout
    chats = Chats(asked.source, layout, recipe.seed, asked.held_out)
    engine = shop.target_engine(recipe.slots)
    return Writer(engine, layout, chats, recipe.slots, recipe.seed).write(first)
