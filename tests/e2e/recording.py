"""A recording: every command of a run with what it printed, as it happened.

    recording = Recording(Path("e2e.md"), title="...", about=[...], folder=..., environment=...)
    recording.section("1. ...", "Why.")
    recording.run("kubectl get pods")

Shown line by line, and never edited; of a long output the file leaves out the middle. Leaves what
is run to its user.
"""

import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MAX_SECONDS = 1800
"""Longest time of one command in seconds; commands' own limits are shorter."""
INTERRUPTED = 130
"""Exit status of a command that Ctrl-C ended."""
FIRST_LINES, LAST_LINES = 6, 16
"""Lines of one output that the file keeps at most, from its beginning and its end."""


class CommandFailed(RuntimeError):
    """A command ended with another status than 0; what it printed is in the recording."""


@dataclass(slots=True)
class Recording:
    """One file of Markdown, and where its commands run."""

    file: Path
    folder: Path
    environment: Mapping[str, str]
    shown_as: Mapping[str, str] = field(default_factory=dict)
    """What is written in place of texts such as paths of the machine."""
    timed: bool = False
    """Say below each command how long it took, and how much of that processors computed."""
    _began: float = field(default_factory=time.monotonic)

    def begin(self, title: str, about: Iterable[str]) -> None:
        """The head; what the file held before is gone."""
        self.file.write_text("")
        self._write(f"# {title}\n\n")
        self._write("".join(f"- {line}\n" for line in about))

    def section(self, title: str, words: str) -> None:
        """A step, and what it is to show."""
        seconds = time.monotonic() - self._began
        self._write(f"\n## {title}\n\n{words}\n\n*{seconds:.0f} s after the start.*\n")

    def run(self, command: str) -> str:
        """Runs lines of bash; their output. Raises `CommandFailed`."""
        self._write(f"\n```console\n{_prompted(command)}\n")
        lines, began, computed = [], time.monotonic(), _computed()
        with self._start(command) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                print(self._shown(line), end="", flush=True)
            status = process.wait(MAX_SECONDS)
        self._keep(self._shown(shortened("".join(lines))))
        self._write("```\n" if status == 0 else f"(status {status})\n```\n")
        if status:
            raise CommandFailed(f"{command!r} ended with {status}")
        if self.timed:
            took = time.monotonic() - began
            self._write(f"\n*{took:.1f} s; {_computed() - computed:.1f} s of processor time.*\n")
        return "".join(lines)

    def background(self, command: str) -> "Background":
        """Starts a command that runs on beside the next ones."""
        self._write(f"\n```console\n{_prompted(command)} &\n```\n")
        return Background(self, command, self._start(command))

    def ended(self, command: str, printed: str, status: int) -> None:
        """What a command of the background printed until it ended."""
        shown = self._shown(shortened(printed)).rstrip()
        self._write(f"\n```console\n{_prompted(command)}\n{shown}\n```\n")
        if status not in (0, INTERRUPTED):
            raise CommandFailed(f"{command!r} ended with {status}")

    def _shown(self, text: str) -> str:
        for found, shown in self.shown_as.items():
            text = text.replace(found, shown)
        return text

    def _start(self, command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _write(self, text: str) -> None:
        print(text, end="", flush=True)
        self._keep(text)

    def _keep(self, text: str) -> None:
        with self.file.open("a") as file:
            file.write(text)


@dataclass(frozen=True, slots=True)
class Background:
    """A command that runs beside others."""

    recording: Recording
    command: str
    process: "subprocess.Popen[str]"

    def kill(self) -> None:
        """Ends it, whatever it was at."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def interrupt(self) -> None:
        """Ctrl-C, and what it printed; raises `CommandFailed` unless that is what ended it."""
        os.killpg(self.process.pid, signal.SIGINT)
        printed, _ = self.process.communicate(timeout=MAX_SECONDS)
        self.recording.ended("fg  # and Ctrl-C", printed, self.process.returncode)


def shortened(printed: str) -> str:
    """Return an output that ends its last line, without the middle of a long one."""
    lines = [f"{line.rstrip()}\n" for line in printed.splitlines()]
    left_out = len(lines) - FIRST_LINES - LAST_LINES
    if left_out < 2:
        return "".join(lines)
    note = f"[{left_out} lines left out]\n"
    return "".join([*lines[:FIRST_LINES], note, *lines[-LAST_LINES:]])


def _computed() -> float:
    """Processor seconds of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _prompted(command: str) -> str:
    first, *more = command.strip().splitlines()
    return "\n".join([f"$ {first}", *(f"> {line}" for line in more)])
