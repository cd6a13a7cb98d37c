"""What the bench of real pairs makes of answers; nothing is measured here."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any, cast

import pytest

from bench import pairs
from bench.prompts.pairs import STACK
from bench.sides import llama_server, peer
from bench.sides.peer import DoesNotRun
from bench.sides.services import Answer
from bench.speculation.figures import Measured


def answered(seconds: float, *ids: int) -> Measured:
    return Measured([[Answer.of_peer(ids, seconds)]])


def test_ratios_are_over_the_faster_plain_decoding() -> None:
    sides = {
        "plain 1": answered(4.0, 5, 6, 7),
        "plain 2": answered(2.0, 5, 6, 7),
        pairs.COLOCATED: answered(1.0, 5, 6, 7),
        pairs.THEIRS: answered(8.0, 5, 6, 8),
        pairs.THEIR_DRAFT: answered(16.0, 5, 6, 8),
    }
    found = pairs.figures(sides)
    assert found["plain"] == "plain 2"
    assert found["over_plain"][pairs.COLOCATED] == pytest.approx(2)
    assert found["over_plain"][pairs.THEIRS] == pytest.approx(0.25)
    assert found["same_text"] == 1
    assert found["same_text_llama_cpp"] == 1
    assert found["same_text_as_llama_cpp"] == 0


def test_one_answer_that_differs_shows() -> None:
    sides = {"plain 1": answered(1.0, 5, 6, 7), pairs.SEPARATE: answered(1.0, 5, 6, 9)}
    assert pairs.figures(sides)["same_text"] == 0


def test_a_peer_that_does_not_run_is_not_had_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def built(_: str) -> Path:
        raise DoesNotRun("illegal instruction")

    monkeypatch.setattr(llama_server, "built", built)

    @contextlib.asynccontextmanager
    async def begun(*_: object) -> Any:
        raise DoesNotRun("no such wheel")
        yield

    monkeypatch.setattr(pairs, "uv", lambda: "uv")
    monkeypatch.setattr(peer, "uv", lambda: "uv")
    monkeypatch.setattr(peer, "started", begun)

    async def start() -> tuple[dict[str, Any], dict[str, str]]:
        async with contextlib.AsyncExitStack() as stack:
            nobody = cast(Any, None)
            return await pairs.peer_sides(stack, Path("target"), Path("draft"), nobody)

    assert asyncio.run(start()) == (
        {},
        {"llama.cpp": "illegal instruction", "OpenVINO": "no such wheel"},
    )


def test_every_set_has_its_prompts() -> None:
    sets = {name: wanted(12) for name, wanted in pairs.SETS.items()}
    assert {name: len(found) for name, found in sets.items()} == {
        "code": 12,
        "edits": 6,
        "chats": 6,
    }
    assert STACK in sets["edits"][4].text
