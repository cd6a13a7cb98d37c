"""Parts of the suite, by name or by what has changed, run by pytest on several processors.

    python -m tests.parts everyday                     # as `make test` does
    python -m tests.parts processes -- -k drain        # what follows -- is for pytest
    python -m tests.parts changed                      # as `.ci/run` does; FULL=1: all of them

`parts.toml` says which file of tests belongs to which part, and which parts a change runs. A change
is what differs from the newest commit that is at least 24 hours older than HEAD.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EVERYDAY, CLUSTER, DEVICE, CLIENTS = "everyday", "cluster", "device", "clients"
MOST_WORKERS = 4
"""The most processors that are used: each test of processes starts several of its own."""


def table(name: str) -> dict[str, Any]:
    """Return one table of `parts.toml`, in its order."""
    found: dict[str, Any] = tomllib.loads(Path(__file__).with_name("parts.toml").read_text())[name]
    return found


def first(path: str, rows: Mapping[str, Any]) -> Any:
    """Return the row of the first pattern that a path fits; None: there is none."""
    return next((row for pattern, row in rows.items() if fnmatchcase(path, pattern)), None)


def test_files() -> dict[str, list[str]]:
    """Return the files of each part, sorted; a file of no part is a `LookupError`."""
    rows: dict[str, str] = table("tests")
    parts: dict[str, list[str]] = {part: [] for part in rows.values()}
    for file in sorted(ROOT.glob("tests/**/test_*.py")):
        path = file.relative_to(ROOT).as_posix()
        part = first(path, rows)
        if part is None:
            raise LookupError(f"{path} belongs to no part: name it in tests/parts.toml")
        parts[part].append(path)
    return parts


@cache
def group(path: str) -> str:
    """Return the group of files whose tests one process runs: by default the file alone."""
    return str(first(path, table("groups")) or path)


def all_parts() -> frozenset[str]:
    """Return those that any machine can run with what the project installs."""
    return frozenset(test_files()) - {DEVICE, CLIENTS}


def touched(paths: Iterable[str]) -> frozenset[str]:
    """Return the parts that a change of these files runs."""
    rows: dict[str, list[str]] = table("changes")
    found = [first(path, rows) for path in paths]
    if None in found:
        return all_parts()
    return frozenset({EVERYDAY}.union(*(row for row in found if row is not None)))


def git(*arguments: str) -> list[str]:
    """Return the lines of a git command; raises `subprocess.CalledProcessError`."""
    command = ("git", "-C", str(ROOT), *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def changed_paths() -> list[str] | None:
    """Return the files that differ from a day before HEAD; None where that is not known."""
    try:
        return _changed_paths()
    except (OSError, subprocess.CalledProcessError) as error:  # no git, or no repository
        print(f"tests.parts: all parts run, as git does not say what has changed: {error}")
        return None


def _changed_paths() -> list[str] | None:
    (committed,) = git("show", "--no-patch", "--format=%cI", "HEAD")
    day_before = datetime.fromisoformat(committed) - timedelta(hours=24)
    base = git("rev-list", "--max-count=1", f"--before={day_before.isoformat()}", "HEAD")
    if not base:
        return None
    new = git("ls-files", "--others", "--exclude-standard")
    return [*git("diff", "--no-renames", "--name-only", *base), *new]


def chosen(names: Iterable[str]) -> frozenset[str]:
    """Return the parts of a command line; raises `SystemExit` for a name that is none."""
    found: set[str] = set()
    for name in names:
        if name == "all" or (name == "changed" and os.environ.get("FULL")):
            found |= all_parts()
        elif name == "changed":
            paths = changed_paths()
            found |= all_parts() if paths is None else touched(paths)
        elif name in all_parts() | {CLIENTS}:
            found.add(name)
        else:
            known = ", ".join(sorted(all_parts() | {CLIENTS}))
            raise SystemExit(
                f"tests.parts: {name} is no part: take all, changed, or some of {known}"
            )
    return frozenset(found)


def commands(parts: Iterable[str], *options: str) -> dict[str, list[str]]:
    """Return what runs these parts, by the name of each pytest.

    The tests of the cluster share servers and a network that leads nowhere, so they have a pytest
    of their own; it mostly waits.
    """
    rest = sorted(set(parts) - {CLUSTER})
    processes = min(os.cpu_count() or 1, MOST_WORKERS)
    spread = (f"--numprocesses={processes}", "--dist=loadgroup", "--no-loadscope-reorder")
    once = "--max-worker-restart=0"  # else a test that ends its process is tried for ever
    found = {}
    if CLUSTER in parts:
        network = ("-m", "tests.kube.pod_network", sys.executable)
        found[CLUSTER] = [sys.executable, *network, "-m", "pytest", *options]
    if rest:
        found[", ".join(rest)] = [sys.executable, "-m", "pytest", *spread, once, *options]
    files = test_files()
    for name, words in found.items():
        words += sorted(file for part in name.split(", ") for file in files[part])
    return found


def run(found: Mapping[str, Sequence[str]]) -> int:
    """Run each pytest, at the same time; the last one's output is seen as it comes, and that of the
    others when they have ended. Return the first exit status that is not 0."""
    *others, (name, words) = found.items()
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(tempfile.TemporaryFile()) for _ in others]
        beside = [
            stack.enter_context(subprocess.Popen(one, cwd=ROOT, stdout=log, stderr=log))
            for (_, one), log in zip(others, logs, strict=True)
        ]
        print("tests:", name, *(f"(beside them: {other})" for other, _ in others), flush=True)
        statuses = [subprocess.run(words, cwd=ROOT, check=False).returncode]
        for (other, _), log, process in zip(others, logs, beside, strict=True):
            statuses.append(process.wait())
            log.seek(0)
            print("tests:", other, flush=True)
            sys.stdout.buffer.write(log.read())
            sys.stdout.flush()
    return next((status for status in statuses if status), 0)


def main() -> int:
    """Run the parts that are asked for; the exit status."""
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    return run(commands(chosen(words[:end] or ["all"]), *words[end + 1 :]))


if __name__ == "__main__":
    sys.exit(main())
