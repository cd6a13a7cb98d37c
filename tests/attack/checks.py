"""Checks of a room: its texts, what it still holds once it is calm, and what is left of it."""

import asyncio
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from outrider.cli.load.exchange import Exchange, Status
from outrider.cli.load.summary import compare
from outrider.client import State
from outrider.worker.host.scratch import PREFIX, remove_abandoned
from tests.attack.faults import LOOK_SECONDS, until_whole
from tests.attack.record import Kind, Record
from tests.attack.rooms import Figures, Room, marked, temporary

MORE_DESCRIPTORS, MORE_THREADS = 8, 8
"""Descriptors and threads by which a process may exceed what it held before: pools that have
filled, a connection of the control loop. An attack opens thousands of connections and calls, so
that one leak in a hundred is seen."""
CALM_SECONDS = 180.0
"""Within which all is given back: a connection that rests is closed after 30 s."""
FAULTS = re.compile(
    r"Traceback \(most|was destroyed but it is pending|never (?:retrieved|awaited)|core dumped"
)
"""In a log: an error that nobody foresaw."""
SHARED = Path("/dev/shm")


def texts(seen: Record, reference: Iterable[Exchange]) -> dict[str, int]:
    """Hold every answer against plain decoding's; count whole ones and prefixes."""
    found = compare([*reference, *seen.streams])
    for difference in found["differences"]:
        seen.add(Kind.TEXT, difference)
    whole = sum(one.status is Status.COMPLETED for one in seen.streams)
    begun = sum(bool(one.texts) for one in seen.streams if one.status is not Status.COMPLETED)
    return {"whole": whole, "prefixes": begun}


def requests(seen: Record) -> None:
    """Note requests that were lost, and odd ones that were answered wrongly."""
    for one in seen.lost():
        at = f"from {one.sent:.1f} to {one.ended:.1f} s"
        seen.add(Kind.LOST, f"{one.problem}, {at}: {str(one.job[1])[:200]}")
    for problem in seen.unexplained():
        seen.add(*problem)


async def calm(room: Room, seen: Record, before: Mapping[str, Figures]) -> dict[str, Figures]:
    """Wait until a room holds no more than before; note what it holds; return its last figures."""
    if missing := await until_whole(room):
        seen.add(Kind.GONE, missing)
    deadline = asyncio.get_running_loop().time() + CALM_SECONDS
    while kept := await held(room, before):
        if asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(LOOK_SECONDS)
    for one in kept:
        seen.add(Kind.LEAK, one)
    return room.figures()


async def held(room: Room, before: Mapping[str, Figures]) -> list[str]:
    """Return what a room holds that it should not, in words."""
    states = await room.states()
    found = [f"{name}: {words}" for name, said in states.items() for words in busy(said)]
    for name, now in room.figures().items():
        was = before.get(name, Figures(0, 0, 0))
        most = Figures(
            was.descriptors + MORE_DESCRIPTORS, was.threads + MORE_THREADS, was.memory_files
        )
        if any(have > may for have, may in zip(now, most, strict=True)):
            found.append(f"{name}: {now} after {was}")
    return found


def busy(state: State | None) -> list[str]:
    """Return what a worker's state says that it still does."""
    if state is None:
        return ["says nothing"]
    group = state.stages
    counts = {
        "requests or sessions": state.running,
        "waiting requests": state.waiting,
        "slots of KV": state.counters.kv_slots_used,
        "rows in its stages": group.rows_in_flight if group else 0,
    }
    return [f"{count} {what}" for what, count in counts.items() if count]


def shared_names() -> set[str]:
    """Return the files of the system's shared memory."""
    return {entry.name for entry in SHARED.iterdir()}


def remains(folder: Path, seen: Record, shared_before: set[str]) -> None:
    """Note what is left of a room that has ended: processes, shared memory, temporary files, and
    errors in its logs."""
    for pid, words in marked(folder):
        if pid != os.getpid():
            seen.add(Kind.LEAK, f"process {pid}: {' '.join(words)}")
    mapped = "".join(maps for maps in map(mappings, Path("/proc").glob("[0-9]*/maps")))
    for name in shared_names() - shared_before:
        if f"{SHARED}/{name}" not in mapped:  # nobody else's
            seen.add(Kind.LEAK, f"{SHARED}/{name}")
    for entry in temporary(folder).glob(f"{PREFIX}*"):
        os.utime(entry, (0, 0))  # old enough for the next worker, which removes what was killed
    remove_abandoned(temporary(folder))
    for entry in temporary(folder).iterdir():
        seen.add(Kind.LEAK, str(entry))
    for file in (*folder.rglob("*.log"), *folder.glob("notes")):
        text = file.read_text(errors="replace")
        for match in FAULTS.finditer(text):
            seen.add(Kind.LOG, f"{file.name}: {text[match.start() : match.start() + 3000]}")


def mappings(file: Path) -> str:
    """Return what a process has mapped; nothing if it has ended."""
    try:
        return file.read_text()
    except OSError:
        return ""
