"""`python -m tests.e2e [--scenario NAME] [--recording FILE]`: the system on a real node, recorded.

Makes the namespaces, runs itself inside them, and removes what is left. Needs Linux, root and some
packages, which it names. The recording takes FILE's place only if every step went well.
"""

import argparse
import datetime
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import kube_assets

from tests.e2e import (
    built_images,
    drain_scenario,
    isolation,
    load_scenario,
    machine,
    node,
    scenario,
    work,
)
from tests.e2e.recording import CommandFailed, Recording
from tests.kube import pod_network
from tests.kube.control_plane import ControlPlane, KubectlError
from tests.kube.server_process import ServerEnded

SETS = (*pod_network.SETS, "node")
SCENARIOS = {
    "all": ("End to end on a real node", scenario.STEPS),
    "load": ("Drafting follows the load", load_scenario.STEPS),
    "drain": ("Targets that end cut no answer", drain_scenario.STEPS),
}
"""Title and steps of each."""
REFUSED = (
    built_images.BuildError,
    kube_assets.AssetsError,
    machine.MachineError,
    pod_network.PodNetworkError,
)
"""Ways in which a run does not begin."""
EXPECTED = (CommandFailed, KubectlError, ServerEnded, AssertionError)
"""Ways in which a run fails that its own messages explain."""


def main() -> int:
    """Exit status 0 if every step went well; 1 and a message if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e", description=__doc__)
    parser.add_argument("--recording", type=Path, help="keep what was recorded here")
    words = (
        "all: every part of the system; load: drafting goes off and comes back by load alone; "
        "drain: targets end while requests stream"
    )
    parser.add_argument("--scenario", choices=SCENARIOS, default="all", help=words)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return _inside(options.inside, options.scenario)
    try:
        machine.check()
        os.environ["KUBEBUILDER_ASSETS"] = str(kube_assets.folder(*SETS))
        return _outside(options.recording, options.scenario)
    except REFUSED as error:
        print(f"tests/e2e: {error}", file=sys.stderr)
        return 1


def _outside(recording: Path | None, chosen: str) -> int:
    """Gives the run its place and cleans up behind it."""
    folder = Path(tempfile.mkdtemp(prefix="outrider-e2e-"))
    built_images.build(folder)  # before the way outside is cut
    command = [sys.executable, "-m", "tests.e2e", "--inside", str(folder), "--scenario", chosen]
    isolation.make_groups()
    try:
        status = pod_network.run(command, isolation.enter)
    finally:
        isolation.remove_groups()
        isolation.unmount(folder)
    if status:
        print(f"tests/e2e: failed; logs are in {folder}", file=sys.stderr)
        return status
    if recording:
        shutil.copy(folder / "recording.md", recording)
    shutil.rmtree(folder)
    return 0


def _inside(folder: Path, chosen: str) -> int:
    """The run itself, in the namespaces."""
    cluster, place = folder / "cluster", folder / "work"
    cluster.mkdir()
    work.make(place, work.cache())
    try:
        with node.started(cluster) as control_plane:
            for archive in sorted(folder.glob("*.tar")):
                node.load_image(archive)
            recording = _recording(folder, place, control_plane)
            title, steps = SCENARIOS[chosen]
            recording.begin(title, _about(chosen))
            scenario.play(recording, steps)
            control_plane.check()
    except EXPECTED as error:
        print(f"tests/e2e: {error}", file=sys.stderr)
        return 1
    return 0


def _recording(folder: Path, place: Path, control_plane: ControlPlane) -> Recording:
    programs = (control_plane.place.assets, Path(sys.prefix) / "bin", os.environ["PATH"])
    environment = {
        "KUBECONFIG": str(control_plane.kubeconfig),
        "PATH": ":".join(str(p) for p in programs),
        "COLUMNS": "120",
    }
    return Recording(folder / "recording.md", place, environment)


def _about(chosen: str) -> list[str]:
    return [
        f"Written by `python -m tests.e2e --scenario {chosen}` while it ran; of a long output the "
        "middle is left out, nothing else is edited.",
        f"Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        f"Commit: {_commit()}",
        f"Machine: {machine.description()}",
        f"Node: {', '.join(_version(*command) for command in VERSIONS)}",
    ]


VERSIONS = (("containerd", "--version"), ("runc", "--version"))


def _version(*command: str) -> str:
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return " ".join(word for word in output.splitlines()[0].split() if "github.com" not in word)


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(work.ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short=12", "HEAD") + (" and changes" if changed else "")


if __name__ == "__main__":
    sys.exit(main())
