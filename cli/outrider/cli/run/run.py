"""`outrider run`: targets and drafts as processes here; answers prompts, or serves.

Options are parsed by `commands.run`; the processes are `local`'s.
"""

import asyncio
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Never

from rich.console import Console

from outrider.cli.access import OPEN, TargetAccess, access_to, refuse_open
from outrider.cli.local.service import placed
from outrider.cli.local.workers import STATE_SECONDS, LocalWorkers
from outrider.cli.machine.ports import HOST, WantedPorts, refuse_taken
from outrider.cli.machine.run_dir import told_cache
from outrider.cli.models.kept import sampling_in_words
from outrider.cli.run import figures, report
from outrider.cli.run.answers import Answers, PromptAnswer, alone
from outrider.cli.run.comparison import compare, counterpart, refuse_without_speculation
from outrider.cli.run.prompts import SILENT, PromptSet, ask
from outrider.cli.terminal.progress import reporter
from outrider.cli.terminal.stopwatch import Stopwatch
from outrider.cli.terminal.text import print_json
from outrider.cli.workers.process import WORKER, Command
from outrider.cli.workers.supervisor import StartOptions
from outrider.client import ClientError
from outrider.contract import process
from outrider.operator.plan import PlanOptions
from outrider.operator.spec import SpeculativeService


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of `outrider run`."""

    service: SpeculativeService
    """As its YAML describes it."""
    plan: PlanOptions = field(default_factory=PlanOptions)
    """What is set above the YAML."""
    questions: PromptSet | None = None
    """None: serve until stopped."""
    as_json: bool = False
    """One JSON object instead of text and tables."""
    draft: bool = True
    """False: the target decodes plainly, and no draft is started."""
    host: str = HOST
    """IP address that targets listen at."""
    page: bool = True
    """Whether targets that serve have the page at `/` of their HTTP servers."""
    grpc_port: int | None = None
    """The first target's port; None: 50051 when serving, else any free one."""
    http_port: int | None = None
    """The port of its OpenAI-compatible API; None: 8000 when serving, else none."""
    worker_command: Command = WORKER
    """Starts a worker."""
    run_folder: Path | None = None
    """Where settings and logs go; None: `~/.cache/outrider/runs`."""


async def run(options: RunOptions) -> None:
    """Start the service, do the work, stop the service; raises `Failure` or `ClientError`."""
    access_to(options.plan)  # refused before anything starts
    ports = WantedPorts(_port(options), _http_port(options), host=options.host, page=options.page)
    refuse_open(ports, options.plan)
    refuse_taken(ports)
    watch = Stopwatch(options.service.served_name, Path(options.plan.cache or told_cache()))
    progress = reporter(watch)
    start = StartOptions(options.plan, progress, options.worker_command, options.run_folder)
    if options.questions is None:
        await _serve_until_stopped(start, ports, options)
    else:
        show(await answers(start, options.questions, options), options.as_json)


async def answers(start: StartOptions, questions: PromptSet, options: RunOptions) -> Answers:
    """Answer all prompts, in a second arrangement too if that is asked for."""
    if questions.compare:
        refuse_without_speculation(options.service)
    async with placed(options.service, start, draft=options.draft) as (local, hand):
        second = counterpart(local) if questions.compare else None
        if local.choice is not None and not questions.compare:
            local.choice.tell(start.progress.note)

        async def work() -> Answers:
            await hand.tell_paths()
            async with hand.target.access.client(hand.addresses) as client:
                if questions.compare:
                    console = Console(quiet=options.as_json)
                    return await compare((local, client), second, questions, console)
                several = len(questions.prompts) > 1
                screen = SILENT if options.as_json else report.screen(Console(), several)
                asking = ask(client, questions, screen, speculate=local.plain_because is None)
                return alone(questions.prompts, local.arrangement, [one async for one in asking])

        return await hand.run(work)


async def answer(
    address: str | Sequence[str], questions: PromptSet, as_json: bool, access: TargetAccess = OPEN
) -> Answers:
    """Ask the targets at `address`; shows text while it comes, unless JSON is wanted."""
    screen = SILENT if as_json else report.screen(Console(), len(questions.prompts) > 1)
    async with access.client(address) as client:
        results = [one async for one in ask(client, questions, screen)]
    return Answers(tuple(map(PromptAnswer, questions.prompts, results)))


def show(found: Answers, as_json: bool, console: Console | None = None) -> None:
    """Print one JSON object on stdout, or the summary on `console` (None: stdout)."""
    if as_json:
        print_json(figures.as_json(found))
    else:
        report.summary(console or Console(), found)


def _port(options: RunOptions) -> int:
    if options.grpc_port is not None:
        return options.grpc_port
    return process.GRPC_PORT if options.questions is None else 0


def _http_port(options: RunOptions) -> int | None:
    if options.questions is not None:
        return None
    return process.HTTP_PORT if options.http_port is None else options.http_port


async def _serve_until_stopped(
    start: StartOptions, ports: WantedPorts, options: RunOptions
) -> Never:
    async with placed(options.service, start, ports, draft=options.draft) as (local, hand):
        if local.choice is not None:
            local.choice.tell(start.progress.note)

        async def work() -> Never:
            await hand.tell_paths()
            await _serve(options.service.served_name, hand, options)

        await hand.run(work)


async def _serve(model: str, hand: LocalWorkers, options: RunOptions) -> Never:
    console = Console(highlight=False)
    places = [f"{target.access.scheme}://{target.http_address}/" for target in hand.targets]
    urls = ", ".join(f"{place}v1" for place in places)
    addresses = ",".join(hand.addresses)
    console.print(f"Serving [bold]{model}[/].")
    if options.page:
        console.print(f"  Chat page at [bold]{', '.join(places)}[/]", soft_wrap=True)
    console.print(f"  OpenAI API at [bold]{urls}[/]", soft_wrap=True)
    console.print(f"  gRPC at [bold]{addresses}[/]", soft_wrap=True)
    if sampling := await _default_sampling(hand):
        console.print(f"  where a request names no sampling: {sampling}", soft_wrap=True)
    width = max(len(s.worker.name) for s in hand.supervisors)
    for s in hand.supervisors:
        place = f"{s.address}, process {s.pid}"
        console.print(f"  {s.worker.name:{width}}  {place}", style="dim", soft_wrap=True)
    console.print(f"  logs in {hand.folder.path}", style="dim", soft_wrap=True)
    further = _asking_options(hand, options.plan)
    outrider = "uv run outrider" if "UV" in os.environ else "outrider"  # uv names itself so
    asking = " ".join((f"{outrider} generate --address", addresses, *further))
    console.print(f'Try: {asking} "Hello!"', soft_wrap=True)
    console.print("Ctrl-C stops it.")
    await asyncio.Event().wait()
    raise AssertionError("this event is never set")


async def _default_sampling(hand: LocalWorkers) -> str:
    """Return the model's own sampling params in words; empty if it has none, or if the target tells
    only who has a key."""
    async with hand.target.client(STATE_SECONDS) as client:
        try:
            (model, *_) = await client.models()
        except ClientError:
            return ""
    return sampling_in_words(model.default_sampling)


def _asking_options(hand: LocalWorkers, options: PlanOptions) -> Iterator[str]:
    """Return the options with which `outrider generate` reaches the target."""
    if options.api_keys_file is not None:
        yield "--api-key-env VARIABLE"
    if options.tls_cert is not None:
        yield f"--tls-ca {shlex.quote(options.tls_cert)} --tls-name {hand.target.access.tls_name}"
