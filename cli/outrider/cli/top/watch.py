"""`outrider top`: looks at the workers every few seconds and shows what it saw.

Options are parsed by `command`; what is shown is `frame`'s.
"""

import asyncio
import contextlib
import json
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console
from rich.live import Live

from outrider.cli.access import OPEN, Access
from outrider.cli.failures import Failure
from outrider.cli.top.frame import as_json, frame
from outrider.cli.top.history import History
from outrider.cli.top.poll import PolledWorkers

QUIT = b"qQ"
PLAIN_WIDTH = 100
"""Columns of a frame that goes to no terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Options of `outrider top`."""

    addresses: tuple[str, ...]
    interval: float
    """Seconds between two looks."""
    once: bool = False
    """One frame, of one interval."""
    json: bool = False
    """One object for each interval, on a line of its own."""
    access: Access = OPEN
    """To the targets."""


async def watch(watched: Watched) -> None:
    """Show frames until `q`, or one; raises `Failure` if at first nothing answers."""
    history = History()
    async with PolledWorkers(watched.addresses, watched.interval + 1.0, watched.access) as workers:
        history.add(await workers.look())
        if not any(look.state for look in history.looks):
            told = "; ".join(f"{look.address}: {look.error}" for look in history.looks)
            raise Failure(f"nothing answers: {told}")
        with quitting() as quit_asked, screen(watched, history) as show:
            while not quit_asked.is_set():
                await pause(watched.interval, quit_asked)
                if quit_asked.is_set():
                    return
                history.add(await workers.look())
                show()
                if watched.once:
                    return


@contextlib.contextmanager
def screen(watched: Watched, history: History) -> Iterator[Callable[[], None]]:
    """Something that shows the history as it is now."""
    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
    if watched.json:
        yield lambda: print(json.dumps(as_json(history, datetime.now())), flush=True)
    elif watched.once or not console.is_terminal:
        yield lambda: console.print(frame(history, datetime.now()))
    else:
        first = frame(history, datetime.now())
        with Live(first, console=console, screen=True, auto_refresh=False) as live:
            yield lambda: live.update(frame(history, datetime.now()), refresh=True)


@contextlib.contextmanager
def quitting() -> Iterator[asyncio.Event]:
    """An event that is set when `q` is typed; never without a terminal."""
    asked = asyncio.Event()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield asked
        return
    loop, keys = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(keys)

    def typed() -> None:
        if any(key in QUIT for key in os.read(keys, 64)):
            asked.set()

    tty.setcbreak(keys, termios.TCSANOW)
    loop.add_reader(keys, typed)
    try:
        yield asked
    finally:
        loop.remove_reader(keys)
        termios.tcsetattr(keys, termios.TCSADRAIN, before)


async def pause(seconds: float, until: asyncio.Event) -> None:
    """Return after `seconds`, or sooner when the event is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(until.wait(), seconds)
