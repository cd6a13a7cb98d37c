"""A distillation from its beginning, or from where it was ended, to a folder that is served.

Each stage looks for what it left before, and goes on there.
"""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from torch import Tensor

from outrider.distil.asked import Asked
from outrider.distil.card import write_card
from outrider.distil.context import DistillationContext
from outrider.distil.corpus import answers_origin, check_answers, read_corpus, write_answers
from outrider.distil.disk import check_room, checkpoint_bytes
from outrider.distil.draft_folder import write_draft
from outrider.distil.errors import BadRecipe
from outrider.distil.evaluation import GROUP, evaluate
from outrider.distil.guesses import (
    check_guesses,
    guesses_origin,
    shards_wanted,
    with_guesses,
    write_guesses,
)
from outrider.distil.network import Draft
from outrider.distil.origin import write_origin
from outrider.distil.other_answers import described_by, order_of
from outrider.distil.own_folder import check_folder, lock, lock_to_read
from outrider.distil.progress import Progress
from outrider.distil.recipe import Recipe
from outrider.distil.report import report_fields, training_fields, write_report
from outrider.distil.shards import GIVEN, Text, load_texts, shard_files
from outrider.distil.start import Start, head_of, weights_of
from outrider.distil.training import Corpus, Training, TrainingRecipe
from outrider.distil.vocabulary import Ids, choose_ids, coverage
from outrider.distil.whole_files import read_json, write_json

ROUND_RATE = 0.3
"""Learning rate of a round, over that of the training on answers."""
TREE_ROOM = 64
"""Slots behind a text for the nodes of its trees."""


@dataclass(frozen=True, slots=True)
class Distillation:
    """One run over a folder."""

    context: DistillationContext
    asked: Asked
    start: Start

    @classmethod
    def begin(cls, recipe: Recipe, cache: Path, progress: Progress) -> Self:
        """Find and check everything that can be checked; raises `BadRecipe` and `ModelError`."""
        check_folder(recipe)
        context = DistillationContext.open(recipe, cache, progress)
        start = Start.of(recipe, context.target, cache, progress.stage)
        asked = Asked.of(recipe, context.target.layout.can_ask)
        lock(recipe.out)
        check_answers(context, asked)
        for folder in recipe.answers_from:
            lock_to_read(folder)
        return cls(context, asked, start)

    def run(self) -> dict[str, Any]:
        """Go through all stages; return the report, or what answers there are."""
        recipe, files = self.context.recipe, write_answers(self.context, self.asked)
        if recipe.only_answers:
            return {"answers": str(recipe.answers)} | counted(map(load_texts, files))
        corpus = read_corpus(self.context, files, self.asked.held_out)
        own = counted(map(load_texts, files))
        others = corpus.chats[own["chats"] - self.asked.held_out :]
        written = own | {"of_other_runs": counted([[(c.tokens, c.writers) for c in others]])}
        head = head_of(weights_of(self.context.target.prepared))
        words = self._vocabulary(corpus, head)
        draft = self.start.network(self.context.target, head, words["ids"])
        trainings = self._teach(draft.to(self.context.device or "cpu"), corpus, words["coverage"])
        write_draft(recipe.out, draft, self.context.target, self.start, words["coverage"])
        del draft  # the evaluation loads the target, which wants the memory
        asked = [*self.asked.described]
        for folder in recipe.answers_from:
            asked += described_by(folder)
        start = {"begun_as": self.start.words, "borrows": self.start.borrows}
        described = {"prompts": asked} | start
        work = {
            "data": written | described,
            "vocabulary": {name: words[name] for name in ("outputs", "coverage")},
            "training": trainings,
        }
        fields = report_fields(recipe, self.context.target, work, self._evaluate(corpus, head))
        write_report(recipe.out, fields)
        write_card(recipe.out, recipe, fields)
        return fields

    def _vocabulary(self, corpus: Corpus, head: Tensor) -> dict[str, Any]:
        """Return ids, their number, and their share of answers held out; raises `BadRecipe`."""
        recipe, file = self.context.recipe, self.context.recipe.work / "vocabulary.json"
        of = (
            answers_origin(self.context, self.asked)
            | {
                "chats": len(corpus.chats),
                "tokens": sum(len(chat.tokens) for chat in corpus.chats),
                "asked_for": recipe.outputs,
                "kept": self.start.sha256 if self.start.output_ids else None,
            }
            | self._others()
        )
        found: dict[str, Any] | None = read_json(file)
        if found is None or found["of"] != of:
            self.context.progress.stage("vocabulary", 0, 1)
            ids = self._chosen(corpus, head)
            share = coverage(corpus.held_out, ids)
            found = {"of": of, "outputs": len(ids), "coverage": share, "ids": ids.tolist()}
            write_json(file, found)
        words = f"{found['outputs']:,} outputs cover {found['coverage']:.1%} of the answers"
        if found["coverage"] <= 0:
            raise BadRecipe(f"{words}: more are needed")
        self.context.progress.note(words)
        return found

    def _chosen(self, corpus: Corpus, head: Tensor) -> Ids:
        """Return the outputs of the draft that is begun with, if it has a head, or choose them."""
        if self.start.output_ids is not None:
            return np.array(self.start.output_ids)
        recipe, always = self.context.recipe, self.context.target.config.end_ids
        count = min(recipe.outputs, len(head))
        return choose_ids(corpus.chats, head, count, always, recipe.seed)

    def _teach(self, draft: Draft, corpus: Corpus, share: float) -> list[dict[str, Any]]:
        """Train on answers, then in rounds on what the draft writes; return what is reported.

        Raises `BadRecipe` for guesses of another draft.
        """
        context = self.context
        check_room(context.recipe.work, checkpoint_bytes(draft), "training")
        found = [self._train(draft, corpus, 0)]
        for number in range(1, context.recipe.rounds + 1):
            origin = guesses_origin(context, draft, corpus)
            check_guesses(context, origin, number)
            if len(shard_files(context.recipe.round(number))) < shards_wanted(corpus):
                folder = context.recipe.round(number) / "draft"
                write_draft(folder, draft, context.target, self.start, share)
                write_origin(folder.parent, origin)
                write_guesses(context, folder, corpus, number)
            found.append(self._train(draft, with_guesses(context, corpus, number), number))
        return found

    def _train(self, draft: Draft, corpus: Corpus, number: int) -> dict[str, Any]:
        """Train once; `number`: the round, or 0."""
        tokens = sum(len(chat.tokens) for chat in corpus.chats)
        planned = planned_training(self.context.recipe, tokens, number)
        notes = {
            "target": self.context.target.sha256,
            "begun as": draft.digest(),
            "layers": self.start.words,
            "outputs": draft.config.outputs,
            "chats": len(corpus.chats),
            "tokens": tokens,
        } | self._others()
        name = f"round {number}" if number else "training"
        file = self.context.recipe.training(number)
        training = Training(draft, corpus, planned, file, notes)
        training.run(lambda now: watch(self.context.progress, name, now))
        return training_fields(planned, training.curve)

    def _others(self) -> dict[str, Any]:
        """Return what training follows from where answers of other runs take part."""
        folders = self.context.recipe.answers_from
        return {"answers of": order_of(folders)} if folders else {}

    def _evaluate(self, corpus: Corpus, head: Tensor) -> dict[str, Any]:
        """Return what the draft in the folder is worth."""
        context, chats, longest = self.context, corpus.held_out, self._longest(corpus) + TREE_ROOM
        draft = context.draft_engine(context.recipe.out, min(GROUP, len(chats)), longest)
        target = context.target_engine(1, longest)
        found = evaluate(
            draft, target, chats, head, lambda *parts: context.progress.stage("evaluation", *parts)
        )
        draft.close()
        target.close()
        return found

    def _longest(self, corpus: Corpus) -> int:
        return max(len(chat.tokens) for chat in corpus.held_out)


def counted(shards: Iterable[Iterable[Text]]) -> dict[str, int]:
    """Return how many chats there are in shards, and how many tokens a model wrote of them."""
    writers = [writers for shard in shards for _, writers in shard]
    return {"chats": len(writers), "tokens": sum(int((one != GIVEN).sum()) for one in writers)}


def planned_training(recipe: Recipe, tokens: int, number: int) -> TrainingRecipe:
    """Return how to train on so many tokens; in a round once over them, at a lower rate."""
    one = TrainingRecipe(steps=1, learning_rate=recipe.learning_rate, seed=recipe.seed)
    epochs, share = (1.0, ROUND_RATE) if number else (recipe.epochs, 1.0)
    steps = max(1, math.ceil(epochs * tokens / one.batch_tokens))
    return dataclasses.replace(one, steps=steps, learning_rate=share * recipe.learning_rate)


def watch(progress: Progress, name: str, training: Training) -> None:
    """Tell a step, and what was found at a validation."""
    progress.stage(name, training.step, training.recipe.steps)
    point = training.curve[-1]
    if point["step"] == training.step:
        progress.note(
            f"{name}, step {training.step} of {training.recipe.steps}: divergence "
            f"{point['divergence']:.4f}, top-1 {point['agreement']:.4f}"
        )
