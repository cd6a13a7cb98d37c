"""Faults: processes of a room that are killed and stopped, and links that relays spoil."""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from bench.faults.plan import DELAY_SECONDS, Fault, Kind
from tests.attack import record
from tests.attack.record import Record, Span
from tests.attack.rooms import Links, Room
from tests.process.hostile import HostileDraft
from tests.process.test_hostile import BROKEN, VIOLATIONS, WASTE
from tests.process.workers import START_SECONDS

PAUSE_SECONDS = (0.5, 2.0)
"""Seconds before each fault, least and most."""
FAULT_SECONDS = (1.0, 4.0)
STALL_SECONDS = 3.0
"""Seconds by which a link that stalls is late."""
CORRUPT = 0.2
"""Share of the pieces of a corrupt link that have a bit turned."""
LOOK_SECONDS = 0.2
Strike = Callable[[random.Random], Awaitable[int | None]]
"""One fault, from its beginning to the end of what is done for it; returns the process that it
killed, if another follows by itself."""
MISDEEDS = {**WASTE, **{name: one for name, (one, _) in (VIOLATIONS | BROKEN).items()}}


async def strike(room: Room, seen: Record, rng: random.Random) -> None:
    """Let one fault happen after the other, each of them once before any comes again, and wait
    after each until all is well; end where something does not come back."""
    strikes = process_strikes(room) if room.links is None else link_strikes(room.links)
    while True:
        for name in rng.sample(sorted(strikes), len(strikes)):
            await asyncio.sleep(rng.uniform(*PAUSE_SECONDS))
            if seen.over:
                return
            began = seen.clock()
            missing = await until_whole(room, await strikes[name](rng))
            seen.faults[name] += 1
            if name.startswith("kill target"):
                seen.outages.append(Span(began, seen.clock()))
            if missing:
                seen.add(record.Kind.GONE, f"after {name}: {missing}")
                return
            seen.say(f"{name}, whole again after {seen.clock() - began:.1f} s")


async def until_whole(room: Room, killed: int | None = None) -> str:
    """Wait until a room is as it should be, and a process that was killed has another in its place;
    return what is not, if that takes too long."""
    missing = "everything"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS):
            while missing := await room.missing(killed):
                await asyncio.sleep(LOOK_SECONDS)
    return missing


def process_strikes(room: Room) -> Mapping[str, Strike]:
    """Return what may happen to each process that a supervisor starts again."""

    def kill(name: str) -> Strike:
        async def strike(rng: random.Random) -> int:
            return send(room, name, signal.SIGKILL)

        return strike

    def stop(name: str) -> Strike:
        async def strike(rng: random.Random) -> None:
            process = send(room, name, signal.SIGSTOP)
            await asyncio.sleep(rng.uniform(*FAULT_SECONDS))
            with contextlib.suppress(ProcessLookupError):  # a stage that is silent is ended
                os.kill(process, signal.SIGCONT)

        return strike

    return {
        f"{verb} {name}": make(name)
        for name in sorted(room.names)
        for verb, make in (("kill", kill), ("stop", stop))
    }


def send(room: Room, name: str, number: int) -> int:
    """Send a signal to a process; return its id."""
    process = room.processes()[name]
    os.kill(process, number)
    return process


def link_strikes(links: Links) -> Mapping[str, Strike]:
    """Return what may happen to drafts and to the relays before them."""

    async def faulty(kind: Kind, rng: random.Random) -> None:
        number, seconds = rng.randrange(len(links.drafts)), rng.uniform(*FAULT_SECONDS)
        fault = Fault(kind, number, 0.0, seconds, rng.uniform(*DELAY_SECONDS))
        links.drafts[number].begin(fault)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(links.drafts[number].end, fault)

    async def reset(rng: random.Random) -> None:
        for _ in range(rng.randint(1, 5)):
            rng.choice(links.drafts).proxy.cut()
            await asyncio.sleep(rng.uniform(0, 0.5))

    async def stalled(rng: random.Random) -> None:
        relay = rng.choice(links.drafts).proxy
        relay.delay = STALL_SECONDS
        await asyncio.sleep(rng.uniform(*FAULT_SECONDS))
        relay.delay = 0.0

    async def corrupt(rng: random.Random) -> None:
        relay = rng.choice(links.drafts).proxy
        relay.corrupt = CORRUPT
        await asyncio.sleep(rng.uniform(*FAULT_SECONDS))
        relay.corrupt = 0.0

    async def hostile(rng: random.Random) -> None:
        with HostileDraft(MISDEEDS[rng.choice(sorted(MISDEEDS))]) as draft:
            await asyncio.to_thread(links.pair, draft.address)
            await asyncio.sleep(rng.uniform(*FAULT_SECONDS))
            await asyncio.to_thread(links.pair)

    return {
        "kill draft": partial(faulty, Kind.KILLED),
        "stop draft": partial(faulty, Kind.STOPPED),
        "partition link": partial(faulty, Kind.PARTITIONED),
        "delay link": partial(faulty, Kind.DELAYED),
        "reset link": reset,
        "stall link": stalled,
        "corrupt link": corrupt,
        "hostile draft": hostile,
    }
