"""The processes of `bench.swiftspec`: linked near and far, in lock step, with the same text."""

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest

from bench.record.report import Prompt
from bench.swiftspec.answer import ALL_PARALLEL, LOCK_STEP, Answer
from bench.swiftspec.sides import Side, delayed, link_near, started
from outrider.contract.settings import PolicySettings, Role
from tests.process import workers
from tests.process.conftest import Folders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="links share memory")

PROMPT = Prompt("tree", "chat", "Say what a tree is.")
TOKENS = 48
FAR_SECONDS = 0.003
ALWAYS = PolicySettings(off_below_percent=0)
"""Drafting stays on whatever it gains."""
SECONDS = 2 * workers.START_SECONDS + 3 * workers.ANSWER_SECONDS


async def answers(folders: Folders, scratch: Path) -> list[Answer]:
    """Without a draft, with it near, and far."""
    async with asyncio.timeout(SECONDS), contextlib.AsyncExitStack() as stack:
        settings = folders.settings(Role.DRAFT)
        draft = await started(stack, LOCK_STEP, settings, scratch)
        settings = folders.settings(Role.TARGET, policy=ALWAYS)
        target = await started(stack, ALL_PARALLEL, settings, scratch)
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
        assert one.draft_commits > 0
        assert 0 <= one.draft_fall_ins <= one.draft_commits
        assert one.messages >= 2 * one.passes
        assert one.draft
        assert one.bytes > 10 * one.messages
    assert far.seconds > 2 * FAR_SECONDS * (far.passes - 1)
