"""The standing attack: `python -m tests.attack --minutes 10`.

Services of tiny models in several arrangements answer streams, three of ten of which are given up,
while their processes are killed and stopped, their links spoilt, and odd requests sent. All of it
follows from a seed. Every text is held against that of plain decoding; in the end nothing may be
held or left, and every worker must be back. Ends with status 1 if something was wrong. Linux only.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.record.report import say, write_report
from outrider.cli.load.exchange import Exchange
from outrider.worker.host.descriptors import take_all_descriptors
from tests.attack import checks, load, table
from tests.attack.faults import strike, until_whole
from tests.attack.load import Bodies
from tests.attack.odd import pester
from tests.attack.record import Kind, Record
from tests.attack.rooms import ROOMS, Figures, Models, Room, opened

EXAMPLES = """examples:
  python -m tests.attack                                ten minutes, shared by all rooms
  python -m tests.attack --minutes 2 --room "two stages" --seed 7
  python -m tests.attack --minutes 10 --seed 3 --json attack.json
"""


def main() -> int:
    """Attack one room after the other, print the table; return 1 if something was wrong."""
    options, average = parse(), os.getloadavg()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    take_all_descriptors()
    say(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="attack-", ignore_cleanup_errors=True) as folder:
        results = run(options, Path(folder))
    table.show(results)
    wrong = [words for one in results for words in one["words"]]
    for words in wrong:
        print(f"tests.attack: seed {options.seed}: {words}", file=sys.stderr)
    if options.json:
        command = f"python -m tests.attack {' '.join(sys.argv[1:])}"
        write_report(options.json, command, {"seed": options.seed, "rooms": results}, {}, average)
    return 1 if wrong else 0


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.attack",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of attack, in all rooms")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of everything")
    parser.add_argument("--room", action="append", choices=ROOMS, help="one alone; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    return parser.parse_args()


def run(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Attack the rooms; return what was seen of each."""
    models, names = Models.write(folder), options.room or list(ROOMS)
    asked = load.bodies(random.Random(options.seed))
    say(f"{len(asked)} texts of plain decoding")
    plain = asyncio.run(load.reference(models, asked, options.seed, folder / "plain"))
    seconds = 60 * options.minutes / len(names)
    results = []
    for number, name in enumerate(names):
        attack = Attack(Record(name), seconds, asked, plain, options.seed)
        results.append(attack.on(models, folder / f"room-{number}"))
    return results


class Attack:
    """The attack on one room."""

    def __init__(
        self, seen: Record, seconds: float, asked: Bodies, plain: list[Exchange], seed: int
    ) -> None:
        self.seen, self.seconds = seen, seconds
        self.asked, self.plain, self.seed = asked, plain, seed
        self.before: dict[str, Figures] = {}
        self.after: dict[str, Figures] = {}

    def on(self, models: Models, folder: Path) -> dict[str, Any]:
        """Open the room, attack it, and look at what is left; return the figures."""
        self.seen.say("starts")
        shared = checks.shared_names()
        try:
            with opened(self.seen.name, models, folder) as room:
                asyncio.run(self.under_way(room))
        except AssertionError as error:  # it did not start, or did not end as it should
            self.seen.add(Kind.GONE, str(error))
        checks.remains(folder, self.seen, shared)
        compared = checks.texts(self.seen, self.plain)
        checks.requests(self.seen)
        return table.result(self.seen, compared, self.before, self.after)

    async def under_way(self, room: Room) -> None:
        """Attack a room that runs, until it is calm again."""
        seen = self.seen
        if missing := await until_whole(room):
            return seen.add(Kind.GONE, f"before the attack: {missing}")
        room.names.update(room.processes())
        answers = await load.all_once(room.base, self.asked, self.seed, seen.started)
        self.before = room.figures()
        seen.ends = seen.clock() + self.seconds
        seen.say(f"{len(answers)} answers in calm; the attack begins")
        async with load.client(room.base) as asking, asyncio.TaskGroup() as group:
            streams = load.streams(
                asking, self.asked, self.seed, seconds=seen.ends, started=seen.started
            )
            streams.rng = self.dice("streams")
            streams.patience = load.patience(answers)
            group.create_task(streams.closed_loop(load.USERS))
            group.create_task(strike(room, seen, self.dice("faults")))
            group.create_task(pester(room, seen, self.dice("odd requests")))
        seen.streams = [*answers, *streams.ended]
        self.after = await checks.calm(room, seen, self.before)

    def dice(self, purpose: str) -> random.Random:
        """Return numbers that follow from seed, room and purpose."""
        return random.Random(f"{self.seed} {self.seen.name} {purpose}")


if __name__ == "__main__":
    sys.exit(main())
