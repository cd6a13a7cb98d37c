"""Targets that speak TLS with clients, on a real API server: the operator still reads metrics."""

import ssl

from outrider.contract.process import HTTP_PORT
from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import SERVICE
from tests.certificate_files import LOOPBACK_CERT, LOOPBACK_KEY
from tests.kube.operator_process import OperatorProcess
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Space, service

SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "type": "kubernetes.io/tls",
    "metadata": {"name": "chat-tls"},
    "stringData": {"tls.crt": LOOPBACK_CERT.read_text(), "tls.key": LOOPBACK_KEY.read_text()},
}


def test_a_service_takes_up_tls_and_its_metrics_are_read_before_and_after(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    space.apply(SECRET)
    space.apply(service("chat"))
    space.until_condition("chat", "MetricsAvailable", "True", "MetricsFound")
    plain = {worker.name for worker in workers.wait_for(Role.TARGET, 1)}
    space.patch(SERVICE, "chat", {"spec": {"access": {"tlsSecretRef": {"name": "chat-tls"}}}})

    def replaced() -> bool:
        names = {worker.name for worker in workers.of(Role.TARGET)}
        return bool(names) and not names & plain

    space.until(replaced, "its target is another one")
    space.until_condition("chat", "Ready", "True", "Serving")
    space.until_condition("chat", "MetricsAvailable", "True", "MetricsFound")
    (target,) = workers.wait_for(Role.TARGET, 1)
    assert ssl.get_server_certificate((target.ip, HTTP_PORT)) == LOOPBACK_CERT.read_text()
    assert space.there(SERVICE, "chat")["status"]["url"].startswith("https://chat.")
