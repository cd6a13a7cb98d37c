"""Names of a model's tensors in a Hugging Face checkpoint, and their shapes."""

from outrider.worker.model.config import ModelConfig

EMBEDDING = "model.embed_tokens.weight"
LAYERS = "model.layers."
"""Begin of the names of each layer's tensors, before its number."""
NORM = "model.norm.weight"
HEAD = "lm_head.weight"
UPDATE_NORMS = ("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")
"""Norms over what attention and the feed-forward layer add to the residual, in a layer that has
them."""


def ffn_norm(config: ModelConfig) -> str:
    """Return the name, in a layer, of the norm before the feed-forward layer."""
    return "pre_feedforward_layernorm.weight" if config.update_norms else UPDATE_NORMS[0]


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return Hugging Face tensor name → shape; a linear layer is [out, in]."""
    shapes: dict[str, tuple[int, ...]] = {
        EMBEDDING: (config.vocab, config.hidden),
        NORM: (config.hidden,),
    }
    if not config.tied:
        shapes[HEAD] = (config.outputs, config.hidden)
    for layer in range(config.layers):
        for name, shape in _layer_shapes(config).items():
            shapes[f"{LAYERS}{layer}.{name}"] = shape
    return shapes


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (config.hidden,),
        "self_attn.q_proj.weight": (queries, config.hidden),
        "self_attn.k_proj.weight": (keys, config.hidden),
        "self_attn.v_proj.weight": (keys, config.hidden),
        "self_attn.o_proj.weight": (config.hidden, queries),
        ffn_norm(config): (config.hidden,),
        "mlp.gate_proj.weight": (config.ffn, config.hidden),
        "mlp.up_proj.weight": (config.ffn, config.hidden),
        "mlp.down_proj.weight": (config.hidden, config.ffn),
    }
    if config.update_norms:
        shapes |= {name: (config.hidden,) for name in UPDATE_NORMS}
    if config.qkv_bias:
        shapes["self_attn.q_proj.bias"] = (queries,)
        shapes["self_attn.k_proj.bias"] = (keys,)
        shapes["self_attn.v_proj.bias"] = (keys,)
    if config.qk_norm:
        shapes["self_attn.q_norm.weight"] = (config.head_dim,)
        shapes["self_attn.k_norm.weight"] = (config.head_dim,)
    return shapes
