"""Shared parts of the processes of `bench.swiftspec`: what they are told, say and count."""

import argparse
import json
import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.swiftspec.answer import ALL_PARALLEL, COLOCATED, PARALLEL
from outrider.contract.settings import WorkerSettings
from outrider.contract.state import TimelineSpan
from outrider.worker.launch.prepare import Models, read_facts
from outrider.worker.messages import Identity, Timeline


def parse(about: str | None) -> argparse.Namespace:
    """Parse the options, all set by `bench.swiftspec.sides`."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)  # links come and go
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--settings", type=Path, required=True)
    parser.add_argument("--side", choices=(COLOCATED, ALL_PARALLEL, *PARALLEL), required=True)
    parser.add_argument("--links", type=Path, required=True, help="folder to share memory by")
    return parser.parse_args()


def read(path: Path) -> WorkerSettings:
    """Read a worker's settings; raises `SettingsError`."""
    return WorkerSettings.from_json(path.read_text())


def identity_of(settings: WorkerSettings, models: Models, links: Path) -> Identity:
    """Return what a role says of itself in its Hello: it may share memory, or not."""
    facts = read_facts(settings, models)
    return Identity(
        revision=models.own.revision,
        incarnation=secrets.randbits(64),
        context=facts.context,
        vocabulary=facts.vocabulary,
        hashes=facts.hashes,
        outputs=facts.outputs,
        sessions=settings.max_running,
        link=settings.link,
        link_dir=str(links),
    )


class Traffic:
    """What an engine has sent to its peer; its bytes are those of gRPC, whatever carried them."""

    def __init__(self, encode: Callable[[Any], bytes]) -> None:
        self._encode = encode
        self._sent: list[Any] = []

    def add(self, message: Any) -> None:
        """Note one message; encoding it is left for later."""
        self._sent.append(message)

    def take(self) -> dict[str, int]:
        """Return the messages since the last call, and their bytes."""
        sent, self._sent = self._sent, []
        return {"messages": len(sent), "bytes": sum(len(self._encode(one)) for one in sent)}


def spans_between(timeline: Timeline, began: float, ended: float) -> list[list[Any]]:
    """Return the fields of all passes that lie in a time, or reach into it."""
    return [list(span) for span in timeline.spans if _reaches(span, began, ended)]


def _reaches(span: TimelineSpan, began: float, ended: float) -> bool:
    return span.ended > began and span.began < ended


def on_thread(work: Callable[[], None]) -> None:
    """Run an engine on a thread; where it fails the process ends, for nobody would answer."""

    def run() -> None:
        try:
            work()
        except Exception:
            logging.exception("the engine failed")
            os._exit(1)

    threading.Thread(target=run, name="engine", daemon=True).start()


def say(**fields: Any) -> None:
    """Write one line to the benchmark."""
    print(json.dumps(fields), flush=True)


def finish() -> None:
    """End the process at once: threads in compiled code are left."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)
