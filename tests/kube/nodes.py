"""Nodes without machines, on which kwok makes pods run.

Pure data.
"""


def node(name: str, cpu: str = "64", memory: str = "512Gi", gpus: int = 8) -> dict[str, object]:
    """A node with room; kwok reports it ready, once."""
    room = {"cpu": cpu, "memory": memory, "pods": "500", "nvidia.com/gpu": str(gpus)}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "type": "kwok",
    }
    metadata = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {"allocatable": room, "capacity": room},
    }
