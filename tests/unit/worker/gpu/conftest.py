"""The GPU runner on `gpu_device`'s device; its models are checkpoints."""

from tests.gpu_device import device, dtype, ignored

__all__ = ["collect_ignore_glob", "device", "dtype"]
collect_ignore_glob = ignored("grpc", "numba", "safetensors", "tokenizers", "transformers")
