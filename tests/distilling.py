"""Chats of tiny models, as `outrider.distil` writes them."""

from collections.abc import Callable
from pathlib import Path

from outrider.contract.settings import Dtype, ModelSettings
from outrider.distil.answers import LONGEST, Beginning, Chats, Writer
from outrider.distil.chat_layout import ChatLayout
from outrider.distil.engine import Room, engine_of
from outrider.distil.prompts import PromptSource
from outrider.distil.shards import Chat
from outrider.distil.target import Target
from outrider.distil.templates import BUNDLED, Templates
from outrider.worker.api.text import Text
from outrider.worker.checkpoints.prepare import prepare
from outrider.worker.checkpoints.prepared import PreparedModel


def written(
    target: PreparedModel,
    count: int,
    source: PromptSource | None = None,
    seed: int = 1,
    held_out: int = 0,
    slots: int = 16,
    greedy: float = 0.5,
    first: int = 0,
) -> list[Chat]:
    """Return chats that a target writes in fp32."""
    layout = layout_of(target)
    chats = Chats(source or Templates(seed, BUNDLED["templates"]), layout, seed, held_out, greedy)
    return written_as(target, layout, chats, (first, count), seed, slots)


def written_as(
    target: PreparedModel,
    layout: ChatLayout,
    beginning: Callable[[int], Beginning],
    numbers: tuple[int, int],
    seed: int,
    slots: int,
) -> list[Chat]:
    """Return chats from their beginnings; `numbers`: the first, and how many."""
    engine = engine_of(target, Dtype.FP32, Room(slots, LONGEST), None, 1)
    try:
        return list(Writer(engine, layout, beginning, slots, seed).write(*numbers))
    finally:
        engine.close()


def layout_of(model: PreparedModel) -> ChatLayout:
    """Return the chat layout of a model."""
    return ChatLayout.of(Text.load(model.tokenizer), model.config())


def find_target(folder: Path, cache: Path) -> Target:
    """Return a target in a folder."""
    return Target.find(f"file://{folder}", cache, ignore)


def prepared(folder: Path, cache: Path, embeddings_from: str | None = None) -> PreparedModel:
    """Return a model in a folder, prepared."""
    settings = ModelSettings(uri=f"file://{folder}", embeddings_from=embeddings_from)
    return prepare(settings, cache, ignore)


def ignore(stage: str, done: int, total: int) -> None:
    """Ignore progress."""
