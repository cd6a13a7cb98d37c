"""Shape of a Llama-family model, as its Hugging Face `config.json` gives it.

Knows nothing of weights or files.
"""

import enum
from dataclasses import dataclass, replace


class Family(enum.StrEnum):
    """Model families that load; the value is `model_type` in config.json."""

    LLAMA = "llama"
    MISTRAL = "mistral"
    QWEN2 = "qwen2"
    QWEN3 = "qwen3"

    @property
    def architecture(self) -> str:
        """Name of the class in transformers."""
        return f"{self.capitalize()}ForCausalLM"


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Llama 3's frequency-dependent stretching of rotary wavelengths."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Everything that the forward pass needs to know about shapes."""

    family: Family
    hidden: int
    """Width of the residual stream."""
    ffn: int
    """Width of the gated feed-forward layer."""
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    """Rows of the embedding, padding included."""
    context: int
    """Most positions that the model was made for."""
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    qkv_bias: bool = False
    """Qwen2: biases on q, k and v."""
    qk_norm: bool = False
    """Qwen3: RMSNorm over each head of q and k, before the rotation."""
    tied: bool = True
    """The output head is the embedding."""
    windows: tuple[int, ...] = ()
    """Latest positions that each layer sees, 0 for all; empty: every layer sees all."""
    bos_id: int | None = None
    end_ids: tuple[int, ...] = ()
    """Tokens that end an answer."""
    output_ids: tuple[int, ...] | None = None
    """A draft's reduced output vocabulary: row i of its head is target token output_ids[i]."""
    output_share: float = 1.0
    """Share of the target's tokens that these outputs cover, as its recipe measured; above 0."""

    @property
    def outputs(self) -> int:
        """Columns of the logits."""
        return self.vocab if self.output_ids is None else len(self.output_ids)

    def window_of(self, layer: int) -> int:
        """Return the latest positions that a layer sees, 0 for all."""
        return self.windows[layer] if self.windows else 0

    def part(self, first: int, last: int) -> "ModelConfig":
        """Return the config with layers first … last - 1 alone."""
        return replace(self, layers=last - first, windows=self.windows[first:last])

    @property
    def kv_shape(self) -> tuple[int, int, int]:
        """Layers, key heads, and numbers of one head: the shape of a KV cache."""
        return self.layers, self.kv_heads, self.head_dim

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of all layers, in fp32."""
        return 2 * 4 * self.layers * self.kv_heads * self.head_dim
