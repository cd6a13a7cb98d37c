"""The processes of `bench.swiftspec`: linked near and far, in lock step, with the same text."""

import asyncio
import contextlib
from pathlib import Path

from bench.report import Prompt
from bench.swift.answer import ALL_PARALLEL, LOCK_STEP, Answer
from bench.swift.sides import Side, delayed, link_near, started
from outrider.contract.settings import Role
from tests.process.conftest import Folders

PROMPT = Prompt("tree", "chat", "Say what a tree is.")
TOKENS = 48
FAR_SECONDS = 0.003


async def answers(folders: Folders, scratch: Path) -> list[Answer]:
    """Without a draft, with it near, and far."""
    async with contextlib.AsyncExitStack() as stack:
        draft = await started(stack, LOCK_STEP, folders.settings(Role.DRAFT), scratch)
        target = await started(stack, ALL_PARALLEL, folders.settings(Role.TARGET), scratch)
        side = Side(LOCK_STEP, target, draft)
        found = [await side.ask(PROMPT, TOKENS, speculate=False)]
        assert await link_near([side]) == {LOCK_STEP: "shared_memory"}
        found.append(await side.ask(PROMPT, TOKENS))
        async with delayed([side], FAR_SECONDS):
            found.append(await side.ask(PROMPT, TOKENS))
    return found


def test_a_side_in_processes_of_its_own_answers_near_and_far(
    folders: Folders, tmp_path: Path
) -> None:
    plain, near, far = asyncio.run(answers(folders, tmp_path))
    assert plain.token_ids == near.token_ids == far.token_ids
    assert (plain.messages, plain.draft, plain.fall_ins) == (0, (), 0)
    for one in (near, far):
        assert one.tokens > one.passes
        assert one.commits == one.passes <= len(one.target)
        assert 0 < one.draft_fall_ins <= one.draft_commits
        assert one.messages >= 2 * one.passes
        assert one.draft
        assert one.bytes > 10 * one.messages
    assert far.seconds > 2 * FAR_SECONDS * (far.passes - 1)
