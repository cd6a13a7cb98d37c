"""The real operator as a process: started, stopped, killed, started again; its log kept.

    operator = OperatorProcess(control_plane, tmp_path / "one", namespace)
    operator.start()
    operator.wait_until_leading()

Each watches one namespace and has its lease there, so that tests do not meet. Leaves what it does
to its tests.
"""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests import bytecode
from tests.kube.control_plane import ControlPlane
from tests.kube.nursery import ForkedOperator
from tests.kube.server_process import ServerEnded

HOST = "127.0.0.1"
IMAGE = "outrider-worker:test"
LEASE = "outrider-operator"
REQUESTS = "outrider_operator_api_requests_total"
PASSES = "outrider_operator_reconcile_total"
END_SECONDS = 60.0
TAIL_LINES = 60
NO_ANSWER = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


@dataclass(slots=True)
class OperatorProcess:
    """One operator, through all its lives."""

    control_plane: ControlPlane
    folder: Path
    """Folder of the operator's own."""
    namespace: str
    """The only one that it watches, unless `arguments` say otherwise."""
    arguments: Sequence[str] | None = None
    """Arguments instead of `--namespace` and `--lease-namespace`."""
    kubeconfig: Path | None = None
    """Kubeconfig of the user that the operator is; None: the administrator."""
    sources: Path | None = None
    """Checkout of the version that it is; None: this one."""
    forked: bool = False
    """Whether its lives are forked from a process that has imported it, which is nearly all that
    the command of a pod does before it asks for the lease."""
    lives: int = 0
    _process: "subprocess.Popen[bytes] | ForkedOperator | None" = None
    _port: int = 0
    _killed: bool = field(default=False)

    @property
    def log(self) -> Path:
        """Of all its lives."""
        return self.folder / "operator.log"

    @property
    def said(self) -> str:
        """All that it has logged, in all its lives."""
        return self.log.read_text() if self.log.exists() else ""

    @property
    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(self.said.splitlines()[-TAIL_LINES:])

    @property
    def pid(self) -> int:
        """Of the life that runs, or of the last one."""
        assert self._process is not None, "it was never started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def address(self) -> str:
        """Of its HTTP server."""
        return f"http://{HOST}:{self._port}"

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def leads(self) -> bool:
        """Whether it holds the lease and its watches have begun."""
        with contextlib.suppress(*NO_ANSWER):
            return self.get("/readyz") == "leading"
        return False

    def start(self) -> None:
        """Begins a life; does not wait until it leads."""
        assert not self.alive, "it runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        own = ("--namespace", self.namespace, "--lease-namespace", self.namespace)
        given = own if self.arguments is None else self.arguments
        self._port = _free_port()
        listen = ("--listen", f"{HOST}:{self._port}", "--worker-image", IMAGE)
        user = str(self.kubeconfig or self.control_plane.kubeconfig)
        environment = {**os.environ, "KUBECONFIG": user, **self._compiled(), **self._version()}
        if self.forked:
            self._process = ForkedOperator((*listen, *given), self.folder, environment, self.log)
        else:
            self._process = self._command((*listen, *given), environment)
        self.lives += 1

    def _command(
        self, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "outrider.operator", *arguments],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for pytest
            )

    def _compiled(self) -> dict[str, str]:
        """Its modules are compiled once for all lives of all operators: half of what a start
        takes."""
        folder = os.environ.get(bytecode.FOLDER) or str(self.control_plane.folder / "bytecode")
        return {bytecode.FOLDER: folder, bytecode.FORBIDDEN: ""}

    def _version(self) -> dict[str, str]:
        """Variables by which its modules are those of its version."""
        if self.sources is None:
            return {}
        found = os.pathsep.join(str(self.sources / folder) for folder in ("operator", "protos"))
        return {"PYTHONPATH": found}

    def wait_until_leading(self) -> None:
        """Raises `ServerEnded` with the end of its log if it ends instead."""

        def leads() -> bool:
            self.check()
            return self.leads

        self.control_plane.wait_until(leads, f"the operator leads; it said:\n{self.tail}")

    def check(self) -> None:
        """Raises `ServerEnded` if it does not run."""
        if not self.alive:
            code = None if self._process is None else self._process.poll()
            raise ServerEnded(f"the operator ended with {code}; its log ends:\n{self.tail}")

    def stop(self) -> int:
        """SIGTERM, as a kubelet does; its exit status."""
        assert self._process is not None, "it was never started"
        self._process.terminate()
        return self._process.wait(END_SECONDS)

    def kill(self) -> None:
        """SIGKILL: whatever it was about to do is not done, and its lease is not given back."""
        assert self._process is not None, "it was never started"
        self._process.kill()
        self._process.wait()
        self._killed = True

    def restart(self, outwait_lease: bool = False) -> None:
        """As `begin_again`; waits until it leads."""
        self.begin_again(outwait_lease)
        self.wait_until_leading()

    def begin_again(self, outwait_lease: bool = False) -> None:
        """The next life; the lease of a killed one is deleted unless it is outwaited."""
        if self.alive:
            self.stop()
        if self._killed and not outwait_lease:
            gone = ("lease", LEASE, "-n", self.namespace, "--ignore-not-found")
            self.control_plane.kubectl("delete", *gone)
        self._killed = False
        self.start()

    def pause(self) -> None:
        """It does nothing until `resume`, and does not know that time passes."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Goes on."""
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> None:
        """For teardown: whatever state it is in."""
        if self.alive and self._process is not None:
            self.kill()

    def get(self, path: str) -> str:
        """What its HTTP server answers; raises what `urllib.request` does."""
        with urllib.request.urlopen(f"{self.address}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def value(self, sample: str, **labels: str) -> float:
        """Sum of a sample over all label sets that hold `labels`; 0 where there is none yet."""
        return sum(value for found, value in self._samples(sample) if labels.items() <= found)

    @property
    def passes(self) -> int:
        """That succeeded, in this life."""
        return int(self.value(PASSES, result="ok"))

    def wait_for_passes(self, more: int) -> None:
        """Waits until so many more have succeeded."""
        wanted = self.passes + more
        self.control_plane.wait_until(lambda: self.passes >= wanted, f"{more} more passes")

    def _samples(self, sample: str) -> "Iterator[tuple[set[tuple[str, str]], float]]":
        for family in text_string_to_metric_families(self.get("/metrics")):
            for one in family.samples:
                if one.name == sample:
                    yield set(one.labels.items()), one.value


@dataclass(slots=True)
class Operators:
    """Those of one test."""

    control_plane: ControlPlane
    folder: Path
    namespace: str
    all: list[OperatorProcess] = field(default_factory=list)

    def start(
        self,
        arguments: Sequence[str] | None = None,
        kubeconfig: Path | None = None,
        sources: Path | None = None,
        forked: bool = True,
    ) -> OperatorProcess:
        """One more; does not wait until it leads. That of another version is never `forked`."""
        folder = self.folder / f"operator-{len(self.all)}"
        forked = forked and sources is None
        operator = OperatorProcess(
            self.control_plane, folder, self.namespace, arguments, kubeconfig, sources, forked
        )
        self.all.append(operator)
        operator.start()
        return operator


def _free_port() -> int:
    with socket.socket() as s:
        s.bind((HOST, 0))
        return int(s.getsockname()[1])
