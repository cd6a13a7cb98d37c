"""Kinds of objects that the operator reads and writes, with their API paths.

Plain data; knows neither their content nor a client.
"""

from dataclasses import dataclass
from urllib.parse import quote

from outrider.operator.naming import GROUP, KIND, VERSION

ServiceKey = tuple[str, str]
"""Namespace and name of a service."""
ChildKey = tuple[str, str]
"""Kind and name of an object, unique among the children of one service."""


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """One kind of object, all of them namespaced."""

    group: str
    """Empty: the core group."""
    version: str
    name: str
    plural: str

    @property
    def api_version(self) -> str:
        """The `apiVersion` of such objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """API path of the group."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    def at(
        self, namespace: str | None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the API path of all objects, of those in a namespace, of one of them, or of a
        subresource of that."""
        within = ("namespaces", namespace) if namespace else ()
        parts = (*within, self.plural, name, subresource)
        return "/".join((self.path, *(quote(part, safe="") for part in parts if part)))


SERVICE = ObjectKind(GROUP, VERSION, KIND, "speculativeservices")
ROLE_SCALER = ObjectKind(GROUP, VERSION, "SpeculativeRoleScaler", "speculativerolescalers")
POD = ObjectKind("", "v1", "Pod", "pods")
EVENT = ObjectKind("events.k8s.io", "v1", "Event", "events")
CONFIG_MAP = ObjectKind("", "v1", "ConfigMap", "configmaps")
SECRET = ObjectKind("", "v1", "Secret", "secrets")
SERVICE_ACCOUNT = ObjectKind("", "v1", "ServiceAccount", "serviceaccounts")
NETWORK_SERVICE = ObjectKind("", "v1", "Service", "services")
CLAIM = ObjectKind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
DEPLOYMENT = ObjectKind("apps", "v1", "Deployment", "deployments")
REPLICA_SET = ObjectKind("apps", "v1", "ReplicaSet", "replicasets")
STATEFUL_SET = ObjectKind("apps", "v1", "StatefulSet", "statefulsets")
BUDGET = ObjectKind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = ObjectKind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
LEASE = ObjectKind("coordination.k8s.io", "v1", "Lease", "leases")
ACCESS_REVIEW = ObjectKind(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews"
)
POD_MONITOR = ObjectKind("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors")
LEADER_WORKER_SET = ObjectKind(
    "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"
)
INSTALL_LWS = (
    "kubectl apply --server-side -f"
    " https://github.com/kubernetes-sigs/lws/releases/download/v0.8.0/manifests.yaml"
)
"""Command that installs LeaderWorkerSet in the release that the tests run."""
CERTIFICATE = ObjectKind("cert-manager.io", "v1", "Certificate", "certificates")
INFERENCE_POOL = ObjectKind("inference.networking.k8s.io", "v1", "InferencePool", "inferencepools")

CHILDREN = (
    SERVICE_ACCOUNT,
    CONFIG_MAP,
    CLAIM,
    NETWORK_SERVICE,
    NETWORK_POLICY,
    BUDGET,
    DEPLOYMENT,
    ROLE_SCALER,
)
"""Children of a service in every cluster, in the order in which they are made."""
OPTIONAL = (POD_MONITOR, LEADER_WORKER_SET, INFERENCE_POOL)
"""Children of a service where the cluster serves their kind."""
GUARDED = (SECRET,)
"""Children of a service where the operator signs the certificates of workers; read by name."""
KEPT = (SERVICE_ACCOUNT, SECRET)
"""Children that go with their service, never before: the operator may not delete them."""
ISSUED = (CERTIFICATE,)
"""Children of a service where cert-manager signs them."""
KINDS = (*CHILDREN, *OPTIONAL, *GUARDED, *ISSUED, POD, SERVICE, LEASE)
BY_NAME = {kind.name: kind for kind in KINDS}
