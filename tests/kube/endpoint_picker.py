"""The real endpoint picker of InferencePools, asked as a gateway asks it.

    with EndpointPicker.running(control_plane, folder, namespace) as picker:
        picker.picks("chat")  # "10.64.0.7:8000"

It has the arguments, the configuration and the permissions of `examples/gateway/picker.yaml`. What
differs from a cluster is that its ports are free ones and that it is asked without TLS. Leaves
making the program to `tools.kube_assets`.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import yaml
from google.protobuf import descriptor_pb2, message_factory
from grpc_tools import protoc
from tools.kube_assets.pins import EPP

from outrider.operator.cluster.kinds import INFERENCE_POOL
from tests.kube.control_plane import ControlPlane, KubectlError, free_ports
from tests.kube.server_process import ServerProcess
from tests.kube.servers import HOST

EXAMPLE = Path(__file__).parents[2] / "examples" / "gateway" / "picker.yaml"
ACCOUNT = "smollm2-picker"
PICKED = "x-gateway-destination-endpoint"
"""The header by which it tells a gateway the address of the pod."""
PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
PORTS = ("--grpc-port", "--grpc-health-port", "--metrics-port")
SECONDS = 20.0
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EndpointPicker:
    """One running picker."""

    server: ServerProcess
    address: str
    messages: dict[str, Any]

    @classmethod
    @contextlib.contextmanager
    def running(
        cls, control_plane: ControlPlane, folder: Path, namespace: str
    ) -> "Iterator[EndpointPicker]":
        """Until the end of the block."""
        objects = {one["kind"]: one for one in yaml.safe_load_all(EXAMPLE.read_text())}
        control_plane.kubectl("apply", "-n", namespace, "-f", str(EXAMPLE))
        plugins = folder / "plugins.yaml"
        plugins.write_text(objects["ConfigMap"]["data"]["plugins.yaml"])
        (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
        own = {"--pool-namespace": namespace, "--config-file": str(plugins)}
        port, *others = free_ports(len(PORTS))
        arguments = [_with(word, own) for word in container["args"]]
        arguments += [f"{name}={one}" for name, one in zip(PORTS, (port, *others), strict=True)]
        user = control_plane.user_kubeconfig(ACCOUNT, namespace)
        arguments += ["--secure-serving=false", f"--kubeconfig={user}"]
        server = ServerProcess.start(control_plane.place.assets / EPP, arguments, folder)
        try:
            yield cls(server, f"{HOST}:{port}", _messages(folder))
        finally:
            server.kill()

    def picks(self, model: str) -> str:
        """The pod that gets a request, as host:port; empty: it answers that there is none."""
        self.server.check()
        body = json.dumps({"model": model, "prompt": "Once", "max_tokens": 1}).encode()
        request, response = (
            self.messages[f"tests.ext_proc.Processing{one}"] for one in ("Request", "Response")
        )
        path = {"key": ":path", "raw_value": b"/v1/completions"}
        asked = (
            request(request_headers={"headers": {"headers": [path]}}),
            request(request_body={"body": body, "end_of_stream": True}),
        )
        with grpc.insecure_channel(self.address) as channel:
            process = channel.stream_stream(PROCESS, request.SerializeToString, response.FromString)
            answers = process(iter(asked), timeout=SECONDS, wait_for_ready=True)
            first = next(answers)
            answers.cancel()
        changed = first.request_headers.response.header_mutation.set_headers
        found = {one.header.key: one.header.raw_value.decode() for one in changed}
        return found.get(PICKED, "")


@contextlib.contextmanager
def pools_known(control_plane: ControlPlane) -> Iterator[None]:
    """The cluster knows InferencePools, by their project's own definitions, until the end."""
    file = str(control_plane.place.assets / f"{EPP}.yaml")
    control_plane.kubectl("apply", "--server-side", "-f", file)
    control_plane.wait_until(lambda: _served(control_plane), "InferencePools are served")
    try:
        yield
    finally:
        control_plane.kubectl("delete", "-f", file)


def _served(control_plane: ControlPlane) -> bool:
    try:
        control_plane.kubectl("get", f"{INFERENCE_POOL.plural}.{INFERENCE_POOL.group}", "-A")
    except KubectlError:
        return False
    return True


def _with(word: str, own: dict[str, str]) -> str:
    """An argument of the example, with the test's own value where it has one."""
    name = word.partition("=")[0]
    return f"{name}={own[name]}" if name in own else word


def _messages(folder: Path) -> dict[str, Any]:
    """Classes of the messages, by name."""
    here, out = Path(__file__).parent, folder / "ext_proc.binpb"
    words = ("protoc", f"-I{here}", f"--descriptor_set_out={out}", "ext_proc.proto")
    assert protoc.main(words) == 0
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    return dict(message_factory.GetMessages(list(files.file)))
