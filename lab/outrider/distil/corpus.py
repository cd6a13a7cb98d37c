"""The corpus of one distillation: answers of its target in shards, until there are enough."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from outrider.distil.answers import GREEDY, LONGEST, Chats, Writer
from outrider.distil.asked import Asked
from outrider.distil.context import DistillationContext
from outrider.distil.disk import answer_bytes, check_room
from outrider.distil.engine import Engine, path_of
from outrider.distil.origin import check_origin, write_origin
from outrider.distil.other_answers import PROMPTS, check_others, held_out_by, without
from outrider.distil.recipe import answers_of
from outrider.distil.shards import (
    GIVEN,
    Chat,
    features_file,
    load_shard,
    load_texts,
    save_shard,
    shard_files,
    written_tokens,
)
from outrider.distil.teacher import complete
from outrider.distil.training import Corpus
from outrider.distil.whole_files import read_json, write_json

SHARD_CHATS = 128


def check_answers(context: DistillationContext, asked: Asked) -> None:
    """Raise `BadRecipe` if answers in the folder are of another recipe, or more have no room."""
    recipe, folder = context.recipe, context.recipe.answers
    check_origin(
        folder,
        answers_origin(context, asked),
        "answers of another recipe",
        f"take another `out`, or remove {recipe.work} and the draft beside it to begin anew",
    )
    missing = max(recipe.tokens - written_tokens(shard_files(folder)), 0)
    check_others(recipe, answers_origin(context, asked))
    needed = answer_bytes(context.target.config, missing)
    check_room(recipe.work, needed + _unmade(context, folder), "answers")
    for other in map(answers_of, recipe.answers_from):
        if unmade := _unmade(context, other):
            check_room(other, unmade, "features of answers")


def answers_origin(context: DistillationContext, asked: Asked) -> dict[str, Any]:
    """Return all that answers follow from, except how many there are."""
    target, path = context.target, path_of(context.recipe.dtype, context.device)
    return {
        "target": target.sha256,
        "layout": target.layout.digest,
        "prompts": asked.digest,
        "held_out": asked.held_out,
        "seed": context.recipe.seed,
        "dtype": str(path),
        "device": (context.device or "host").partition(":")[0],
        "longest": LONGEST,
        "greedy": GREEDY,
    }


def write_answers(context: DistillationContext, asked: Asked) -> list[Path]:
    """Write shards until there are enough tokens, and enough chats beside those held out.

    Returns all of them; raises `NotWritten`.
    """
    recipe, folder = context.recipe, context.recipe.answers
    write_origin(folder, answers_origin(context, asked))
    if read_json(folder / PROMPTS) != asked.described:
        write_json(folder / PROMPTS, asked.described)
    number, tokens = len(shard_files(folder)), written_tokens(shard_files(folder))
    chats: Iterator[Chat] | None = None
    while tokens < recipe.tokens or number * SHARD_CHATS < 2 * asked.held_out:
        chats = chats or _chats(context, asked, number * SHARD_CHATS)
        shard: list[Chat] = []
        for chat in itertools.islice(chats, SHARD_CHATS):
            shard.append(chat)
            tokens += int((chat.writers != GIVEN).sum())
            context.progress.stage("answers", min(tokens, recipe.tokens), recipe.tokens)
        save_shard(folder, number, shard)
        number += 1
    return shard_files(folder)


def read_corpus(context: DistillationContext, files: Sequence[Path], held_out: int) -> Corpus:
    """Return all chats, those of other runs behind our own; missing features are made again.

    Raises `BadRecipe`.
    """
    chats = read_chats(context, files)
    tested, ours = chats[:held_out], chats[held_out:]
    for folder in context.recipe.answers_from:
        theirs = read_chats(context, shard_files(answers_of(folder)))
        ours += without(theirs[held_out_by(folder) :], tested)
    corpus = Corpus(tested, ours)
    corpus.check()
    return corpus


def read_chats(context: DistillationContext, files: Sequence[Path]) -> list[Chat]:
    """Return the chats of shards; features that are missing are made again."""
    teacher: Engine | None = None
    missing = [file for file in files if not features_file(file).exists()]
    for done, file in enumerate(missing):
        context.progress.stage("features", done, len(missing))
        teacher = teacher or context.target_engine(1)
        complete(teacher, file)
    if teacher is not None:
        teacher.close()
    return [chat for file in files for chat in load_shard(file)]


def _unmade(context: DistillationContext, folder: Path) -> int:
    """Return the bytes of features that are missing beside the chats of a folder."""
    missing = [file for file in shard_files(folder) if not features_file(file).exists()]
    tokens = sum(len(text) for file in missing for text, _ in load_texts(file))
    return answer_bytes(context.target.config, tokens)


def _chats(context: DistillationContext, asked: Asked, first: int) -> Iterator[Chat]:
    """Return the target's chats from a number on."""
    recipe, layout = context.recipe, context.target.layout
    chats = Chats(asked.source, layout, recipe.seed, asked.held_out)
    engine = context.target_engine(recipe.slots)
    return Writer(engine, layout, chats, recipe.slots, recipe.seed).write(first)
