"""Greedy answers of the target to prompts that no draft was trained on, with its features."""

from collections.abc import Sequence
from pathlib import Path

from outrider.contract.settings import Dtype
from outrider.distil.answers import LONGEST, Chats, Writer
from outrider.distil.chat_layout import ChatLayout
from outrider.distil.engine import Room, engine_of
from outrider.distil.prompts import Opening, Question
from outrider.distil.shards import Chat, load_shard, save_shard, shard_file
from outrider.worker.api.text import Text
from outrider.worker.model.prepared import PreparedModel


class Listed:
    """Prompts of a list, in turn."""

    def __init__(self, prompts: Sequence[str]) -> None:
        self._prompts = prompts

    def question(self, number: int) -> Question:
        """Return a prompt, whole."""
        return Question(Opening.ALL, self._prompts[number])


def answers(target: PreparedModel, folder: Path, prompts: Sequence[str]) -> list[Chat]:
    """Return one chat for each prompt; what the folder holds already is not written again."""
    file = shard_file(folder, 0)
    if not file.exists():
        count = len(prompts)
        engine = engine_of(target, Dtype.INT8, Room(count, LONGEST), None, 1)
        layout = ChatLayout.of(Text.load(target.tokenizer), target.config())
        greedy = Chats(Listed(prompts), layout, seed=0, held_out=count)
        save_shard(folder, 0, list(Writer(engine, layout, greedy, count).write(0, count)))
    return load_shard(file)
