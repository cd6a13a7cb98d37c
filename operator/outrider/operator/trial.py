"""A service that is made, asked for tokens, and deleted: `python -m outrider.operator.trial`.

`helm test` runs it. Leaves the service itself to the operator.
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from outrider.operator.cluster.client import Cluster, ClusterError
from outrider.operator.cluster.interfaces import Object
from outrider.operator.cluster.kinds import SERVICE
from outrider.operator.server.metrics import OperatorMetrics

MANAGER = "outrider-trial"
PROMPT, TOKENS = "Once upon a time", 8
POLL_SECONDS = 1.0
ANSWER_SECONDS = 60.0


class TrialFailed(Exception):
    """The service gave no token; the message says how far it came."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial."""

    cluster: Cluster
    namespace: str
    name: str
    spec: Mapping[str, Any]
    """Spec of the service."""
    seconds: float
    """Seconds for the whole trial."""
    url: str = ""
    """Where the service is reached; empty: where its status says."""

    async def run(self) -> None:
        """Make the service, ask it, and delete it whatever happened; raise `TrialFailed`."""
        deadline = time.monotonic() + self.seconds
        body = {
            "apiVersion": SERVICE.api_version,
            "kind": SERVICE.name,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": self.spec,
        }
        made = await self.cluster.apply(body, MANAGER)
        say(f"{self.namespace}/{self.name} is made")
        try:
            ready = await self._until_ready(deadline)
            say(await self._answer(self.url or ready["status"]["url"], deadline))
        finally:
            uid = made["metadata"]["uid"]
            await self.cluster.delete(SERVICE, self.namespace, self.name, uid)

    async def _until_ready(self, deadline: float) -> Object:
        said = ""
        while True:
            found = await self.cluster.get(SERVICE, self.namespace, self.name)
            if found is None:
                raise TrialFailed("somebody has deleted the service")
            status, words = _ready(found)
            if status == "True":
                return found
            if words != said:
                say(words)
                said = words
            if time.monotonic() > deadline:
                raise TrialFailed(f"not Ready within {self.seconds:.0f} s: {words}")
            await asyncio.sleep(POLL_SECONDS)

    async def _answer(self, url: str, deadline: float) -> str:
        """Return the text of an answer; what proxies do not know yet is asked again."""
        asked = {"model": self.name, "prompt": PROMPT, "max_tokens": TOKENS}
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                try:
                    async with session.post(f"{url}/v1/completions", json=asked) as answer:
                        text = await answer.text()
                        if answer.status == 200:
                            return _text(text)
                        problem = f"HTTP {answer.status}: {text}"
                except (aiohttp.ClientError, TimeoutError) as error:
                    problem = str(error) or type(error).__name__
                if time.monotonic() > deadline:
                    raise TrialFailed(f"{url} gives no answer: {problem}")
                await asyncio.sleep(POLL_SECONDS)


def say(words: str) -> None:
    """Print a line at once: the pod may end soon."""
    print(words, flush=True)


def _ready(service: Object) -> tuple[str, str]:
    """Return the status of Ready for the newest generation, and its words with what stalls it."""
    status = service.get("status", {})
    if status.get("observedGeneration") != service["metadata"]["generation"]:
        return "Unknown", "no operator has looked at the service yet"
    conditions = {one["type"]: one for one in status["conditions"]}
    ready, stalled = conditions.get("Ready"), conditions.get("Stalled")
    if ready is None:
        return "Unknown", "the service has no condition Ready"
    words = f"{ready['reason']}: {ready['message']}"
    if stalled is not None and stalled["status"] == "True":
        words += f". Stalled: {stalled['reason']}: {stalled['message']}"
    return ready["status"], words


def _text(body: str) -> str:
    """Return what was answered, with its number of tokens."""
    answer = json.loads(body)
    tokens = answer["usage"]["completion_tokens"]
    if tokens < 1:
        raise TrialFailed(f"an answer without a token: {body}")
    return f"{tokens} tokens: {answer['choices'][0]['text']!r}"


async def run(options: argparse.Namespace) -> int:
    """Run one trial; return the exit status."""
    async with await Cluster.connect(OperatorMetrics().requests) as cluster:
        spec = json.loads(options.spec)
        trial = Trial(cluster, options.namespace, options.name, spec, options.seconds, options.url)
        running = asyncio.ensure_future(trial.run())
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, running.cancel)  # the service goes first
        try:
            await running
        except asyncio.CancelledError:
            return 128 + signal.SIGTERM
        except (TrialFailed, ClusterError) as error:
            print(f"outrider trial: {error}", file=sys.stderr)
            return 1
    return 0


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m outrider.operator.trial", description=__doc__)
    add = parser.add_argument
    add("--namespace", required=True, help="where the service is made")
    add("--name", required=True, help="its name")
    add("--spec", required=True, metavar="JSON", help="its spec")
    add("--seconds", type=float, default=900.0, help="for all of it (900)")
    add("--url", default="", help="where the service is reached (as its status says)")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
