"""Shape of a model, as its Hugging Face `config.json` gives it.

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
    GEMMA3 = "gemma3_text"
    PHI3 = "phi3"

    @property
    def architecture(self) -> str:
        """Name of the class in transformers."""
        return f"{self.removesuffix('_text').capitalize()}ForCausalLM"


class Activation(enum.StrEnum):
    """Functions of the gates; the value is their name in config.json."""

    SILU = "silu"
    GELU_TANH = "gelu_pytorch_tanh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """Llama 3's frequency-dependent stretching of rotary wavelengths."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearScaling:
    """All rotary wavelengths stretched alike."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LongScaling:
    """Each rotary wavelength stretched by a factor of its own: LongRoPE (arXiv:2402.13753)."""

    short: tuple[float, ...]
    """Factors for contexts of at most `original_context` tokens."""
    long: tuple[float, ...]
    """Factors for longer contexts, at all of their positions."""
    original_context: int
    amplitude: float
    """Factor of cosines and sines."""


RopeScaling = Llama3Scaling | LinearScaling | LongScaling


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
    """Most positions that the model was made for, or is served with where its rotary positions
    depend on that."""
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    rotary_dim: int | None = None
    """Phi-3: numbers of each head that turn; None: all."""
    window_rope_theta: float | None = None
    """Gemma 3: base of layers with a window, whose wavelengths are not stretched."""
    qkv_bias: bool = False
    """Qwen2: biases on q, k and v."""
    qk_norm: bool = False
    """Qwen3, Gemma 3: RMSNorm over each head of q and k, before the rotation."""
    update_norms: bool = False
    """Gemma 3: RMSNorm over what attention and the feed-forward layer add to the residual."""
    query_size: float | None = None
    """Gemma 3: number whose root divides the scores of attention; None: head_dim."""
    embedding_scale: float = 1.0
    """Gemma 3: factor of the embedding, which the head does not have."""
    activation: Activation = Activation.SILU
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
