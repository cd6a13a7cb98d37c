"""`python -m outrider.worker`: prepare, serve, stage, keep, engine, rank, profile, …

Only parses arguments; each command imports what it needs: a target's `serve` never loads numba.
"""

import argparse
import asyncio
import dataclasses
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

from outrider.contract.process import ENV_STAGES
from outrider.contract.settings import PolicySettings, Role, SettingsError, WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.contract.version import missing_extra
from outrider.worker.errors import WorkerError
from outrider.worker.host import torch_extra
from outrider.worker.host.process import exit_with_parent, keep_to

USAGE_ERROR = 2
FILE_COMMANDS = {
    "prepare": "fetch and convert weights; JSON lines on stdout",
    "serve": "run one target or draft",
    "stage": "run one stage of a pipelined target; its place is in the environment",
    "keep": "run one draft as serve does, and start it again whenever it ends",
    "profile": "measure step costs; JSON on stdout",
    "compile": "compile what a worker with these settings runs, before it has a model",
    "pair": "say how a target's colocated draft drafts for it; JSON on stdout",
    "cut": "cut a target over stages by measured times; JSON on stdout",
    "measure": "started by profile; JSON on stdout",
}
"""Commands that take a settings file, and their help."""
DRAINED = ("serve", "stage")
"""Commands that finish their work where the process that started them is gone; others exit."""
QUIET_LIBRARIES = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
"""Keeps threads of torch, which only loads, from spinning beside the engine's own."""
NO_ADVICE = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
"""Environment variable: 1 keeps transformers from saying that there is no torch for its models."""


def main() -> int:
    """Run one command; return the exit status."""
    arguments = parse(sys.argv[1:])
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format=f"%(asctime)s {arguments.command} %(levelname)s %(message)s",
    )
    os.environ.setdefault(NO_ADVICE, "1")
    try:
        return run(arguments)
    except SettingsError as error:
        print(f"outrider worker: {error}", file=sys.stderr)
        return USAGE_ERROR
    except WorkerError as error:
        print(f"outrider worker: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if not (extra := torch_extra.extra_of(error.name or "")):
            raise
        print(f"outrider worker: {error}; {missing_extra(extra)}", file=sys.stderr)
        return 1


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command and its options."""
    parser = argparse.ArgumentParser(prog="python -m outrider.worker", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    engine = commands.add_parser("engine", help="started by serve; settings come by stdin")
    engine.add_argument("--channel", type=int, required=True)
    engine.add_argument("--prepared", type=Path, required=True)
    commands.add_parser("rank", help="started by an engine; its spec comes by stdin")
    doctor = commands.add_parser("doctor", help="say what this machine computes; JSON on stdout")
    models = commands.add_parser("models", help="list models that are kept; JSON on stdout")
    models.add_argument("--cache", type=Path, required=True)
    models.add_argument("--remove", action="append", default=[], metavar="MODEL")
    for other in (doctor, models):
        other.add_argument("--parent-fd", type=int, help="stop when this descriptor ends")
    for command, words in FILE_COMMANDS.items():
        other = commands.add_parser(command, help=words)
        other.add_argument("--settings", type=Path, required=True)
        other.add_argument("--parent-fd", type=int, help="stop when this descriptor ends")
        if command in ("serve", "keep"):
            words = "a policy to start with instead of the settings' own, if the file is there"
            other.add_argument("--policy", type=Path, help=words)
    return parser.parse_args(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Dispatch one command."""
    if arguments.command not in DRAINED:
        exit_with_parent(getattr(arguments, "parent_fd", None))
    match arguments.command:
        case "prepare":
            from outrider.worker.checkpoints import prepare

            return prepare.main(arguments.settings)
        case "serve":
            os.environ.update(QUIET_LIBRARIES)
            from outrider.worker.parallel.placement import RankPlacement
            from outrider.worker.server.follower_node import serve_ranks
            from outrider.worker.server.serve import serve

            settings = with_policy(read(arguments.settings), arguments.policy)
            place = StagePlace.of(os.environ, settings.pipeline.stages)
            if place is not None and not place.leads:
                return finish(asyncio.run(run_stage(settings, place, arguments.parent_fd)))
            placement = RankPlacement.of(os.environ)
            placement.ranks(settings.tensor_parallel)  # refused before anything starts
            keep_to(settings.other_processors)
            if placement.node > 0:
                return finish(asyncio.run(serve_ranks(settings, placement, arguments.parent_fd)))
            return finish(asyncio.run(serve(settings, arguments.parent_fd)))
        case "stage":
            settings = read(arguments.settings)
            place = StagePlace.of(os.environ, settings.pipeline.stages)
            if place is None:
                raise SettingsError(f"{ENV_STAGES}: missing; it has the addresses of all stages")
            return finish(asyncio.run(run_stage(settings, place, arguments.parent_fd)))
        case "keep":
            return asyncio.run(keep(arguments))
        case "engine":
            from outrider.worker.launch.run import run_target

            # The server decides when its engine stops; a terminal's Ctrl-C reaches both.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            settings = WorkerSettings.from_json(sys.stdin.read())
            end = socket.socket(fileno=arguments.channel)
            return finish(run_target(settings, arguments.prepared, end))
        case "rank":
            from outrider.worker.launch import follower

            return finish(follower.main())
        case "profile":
            from outrider.worker.profile.command import main

            return main(read(arguments.settings), arguments.parent_fd)
        case "compile":
            from outrider.worker.launch import compilation

            return finish(compilation.main(read(arguments.settings)))
        case "pair":
            from outrider.worker.launch import pair

            return pair.main(read(arguments.settings))
        case "cut":
            from outrider.worker.profile import cut

            return cut.main(read(arguments.settings))
        case "doctor":
            return doctor()
        case "models":
            from outrider.worker.launch import kept

            return kept.main(arguments.cache, arguments.remove)
        case _:  # measure
            from outrider.worker.profile.command import measure

            return measure(read(arguments.settings))


def doctor() -> int:
    """Say what this machine computes; what is not installed is an object with `missing`."""
    logging.getLogger().setLevel(logging.WARNING)  # people read stderr here
    try:
        from outrider.worker.profile.doctor import main as examine
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        return 1
    return examine()


async def run_stage(settings: WorkerSettings, place: StagePlace, parent: int | None) -> int:
    """Serve one stage; raises `ModelError` and `SettingsError`."""
    os.environ.update(QUIET_LIBRARIES)
    from outrider.worker.server.stage_node import serve_stage

    keep_to(settings.other_processors)
    return await serve_stage(settings, place, parent)


async def keep(arguments: argparse.Namespace) -> int:
    """Keep a draft running that `serve` runs; raises `SettingsError`."""
    from outrider.worker.host.keep import Keeper, answers

    settings = read(arguments.settings)
    if settings.role is not Role.DRAFT or not settings.http_listen:
        raise SettingsError("settings: only a draft with http_listen, where it is asked, is kept")
    policy = () if arguments.policy is None else ("--policy", str(arguments.policy))
    command: tuple[str, ...] = (sys.executable, "-P", "-m", "outrider.worker", "serve")
    command += ("--settings", str(arguments.settings), *policy)
    return await Keeper(command, lambda: answers(settings.http_listen)).run()


def finish(status: int) -> NoReturn:
    """End the process at once: only threads in compiled code, and memory, are left."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)


def read(path: Path) -> WorkerSettings:
    """Read settings from a file; raises `SettingsError` naming it, or what is not installed."""
    try:
        settings = WorkerSettings.from_json(path.read_text())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    torch_extra.check(settings)
    return settings


def with_policy(settings: WorkerSettings, path: Path | None) -> WorkerSettings:
    """Take the policy that was stored last into the settings; raises `SettingsError` where it is
    there and cannot be read.

    One that this version does not understand is left out: a newer operator wrote it, which tells
    the worker what it does understand as soon as that answers.
    """
    if path is None or not path.exists():
        return settings
    try:
        return dataclasses.replace(settings, policy=PolicySettings.from_json(path.read_text()))
    except OSError as error:
        raise SettingsError(f"{path}: {error}") from None
    except SettingsError as error:
        logging.warning("%s: %s; this worker starts without it", path, error)
        return settings


if __name__ == "__main__":
    sys.exit(main())
