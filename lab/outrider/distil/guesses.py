"""What the draft writes itself: it goes on with answers of the target, from random points.

A draft sees its own guesses in a tree, not the target's text. Trained on text that it wrote, with
the target's opinion of it, it is less lost there (on-policy distillation: DistillSpec, arXiv
2310.08461; GKD, arXiv 2306.13649).
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from outrider.distil.answers import LONGEST, Beginning, Writer
from outrider.distil.context import DistillationContext
from outrider.distil.corpus import SHARD_CHATS, read_chats
from outrider.distil.engine import Engine
from outrider.distil.network import Draft
from outrider.distil.origin import check_origin
from outrider.distil.shards import ANSWERED, GUESSED, Chat, save_shard, shard_files
from outrider.distil.teacher import features_of
from outrider.distil.training import Corpus

LENGTH = 48
"""Tokens that the draft writes behind one text."""
SHARE = 0.1
"""Share of the answers' tokens that the draft writes in a round."""


@dataclass(frozen=True, slots=True)
class Continuations:
    """Texts of a target from which a draft goes on."""

    chats: Sequence[Chat]
    seed: int

    def __call__(self, number: int) -> Beginning:
        """Return a beginning: a chat up to some point of its answer."""
        rng = random.Random(f"{self.seed} guess {number}")
        chat = self.chats[rng.randrange(len(self.chats))]
        most = min(len(chat.tokens) - 1, LONGEST - LENGTH)
        answered = np.flatnonzero(chat.writers == ANSWERED)
        first = min(int(answered[0]) if len(answered) else most, most)
        end = rng.randint(first, most)
        temperature = rng.choice((0.0, 1.0))
        tokens = chat.tokens[:end].tolist()
        return Beginning(tokens, False, temperature, end + LENGTH, GUESSED)


def shards_wanted(corpus: Corpus) -> int:
    """Return how many shards of guesses one round has."""
    tokens = SHARE * sum(len(chat.tokens) for chat in corpus.chats)
    return max(1, math.ceil(tokens / LENGTH / SHARD_CHATS))


def guesses_origin(context: DistillationContext, draft: Draft, corpus: Corpus) -> dict[str, Any]:
    """Return what a round's guesses follow from."""
    return {
        "target": context.target.sha256,
        "draft": draft.digest(),
        "tokens": sum(len(chat.tokens) for chat in corpus.chats),
        "seed": context.recipe.seed,
    }


def check_guesses(context: DistillationContext, origin: dict[str, Any], number: int) -> None:
    """Raise `BadRecipe` if a round's guesses follow from something else."""
    folder, training = context.recipe.round(number), context.recipe.training(number)
    instead = f"remove {folder} and {training} to make the round anew"
    check_origin(folder, origin, "guesses of another draft", instead)


def write_guesses(context: DistillationContext, draft: Path, corpus: Corpus, number: int) -> None:
    """Let a draft's folder go on with answers, and the target judge, until the round's shards are
    there; raises `NotWritten`."""
    recipe, folder = context.recipe, context.recipe.round(number)
    own, teacher = context.draft_engine(draft, recipe.slots), context.target_engine(1)
    begin = Continuations(corpus.chats, recipe.seed * 1000 + number)
    writer = Writer(own, context.target.layout, begin, recipe.slots, begin.seed)
    wanted = shards_wanted(corpus)
    for shard in range(len(shard_files(folder)), wanted):
        context.progress.stage(f"guesses {number}", shard, wanted)
        chats = writer.write(shard * SHARD_CHATS, SHARD_CHATS)
        save_shard(folder, shard, [judged(teacher, chat) for chat in chats])
    own.close()
    teacher.close()


def with_guesses(context: DistillationContext, corpus: Corpus, number: int) -> Corpus:
    """Return a round's guesses, and as many answers beside them; missing features are made."""
    guesses = read_chats(context, shard_files(context.recipe.round(number)))
    answers = random.Random(f"{context.recipe.seed} round {number}").sample(
        list(corpus.chats), min(len(guesses), len(corpus.chats))
    )
    return Corpus(corpus.held_out, [*answers, *guesses])


def judged(teacher: Engine, chat: Chat) -> Chat:
    """Return the chat with the target's features in place of the draft's."""
    return Chat(chat.tokens, chat.writers, features_of(teacher, chat.tokens))
