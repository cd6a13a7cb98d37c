import torch
from torch import Tensor
from torch.nn import functional

from outrider.kernels.gpu.gated_mlp import gated
from outrider.kernels.gpu.heads import HeadParts, RowPlaces
from outrider.kernels.gpu.linear import linear
from outrider.kernels.gpu.norm import add_norm
from outrider.kernels.gpu.projection import project
from outrider.kernels.gpu.tiles import make_scratch
from outrider.kernels.gpu.tiling import plan
from outrider.kernels.gpu.weights import plain
from tests.kernel_outputs import assert_close, unwritten

HIDDEN, FFN, HEADS, KV_HEADS, SIZE, ROWS = 64, 96, 4, 2, 32, 5


def rotary(theta: float) -> Tensor:
    angles = torch.outer(torch.arange(8.0), theta ** -(torch.arange(0, SIZE, 2) / SIZE))
    return torch.stack((angles.cos(), angles.sin()), 1)


def test_a_model_of_these_kernels_is_hugging_faces_llama(device: str) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS}
    config = LlamaConfig(
        vocab_size=40, hidden_size=HIDDEN, intermediate_size=FFN, head_dim=SIZE, **sizes
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False).to(device)
    tokens = torch.arange(3, 3 + ROWS, device=device)
    logits = forward(model, tokens, device)
    assert_close(logits, model(tokens[None]).logits[0])


def forward(model: torch.nn.Module, tokens: Tensor, device: str) -> Tensor:
    """Logits of all rows of one sequence, whose positions are its slots."""
    matrices = dict(model.named_parameters())
    epsilon = 1e-6
    kind = {"dtype": torch.float32, "device": device}
    positions = torch.arange(ROWS, dtype=torch.int32, device=device)
    residual = functional.embedding(tokens, matrices["model.embed_tokens.weight"])
    normed, update = (unwritten(ROWS, HIDDEN, **kind) for _ in range(2))
    wide = unwritten(ROWS, FFN, **kind)
    last: Tensor | None = None

    def apply(x: Tensor, name: str, out: Tensor) -> None:
        weights = plain(matrices[name])
        linear(x, weights, out, make_scratch(ROWS, [plan(weights)], device))

    for layer in ("model.layers.0", "model.layers.1"):
        add_norm(residual, last, matrices[f"{layer}.input_layernorm.weight"], epsilon, normed)
        qkv = plain(torch.cat([matrices[f"{layer}.self_attn.{n}_proj.weight"] for n in "qkv"]))
        q = unwritten(ROWS, HEADS, SIZE, **kind)
        k, v = (unwritten(KV_HEADS, 8, SIZE, **kind) for _ in range(2))
        scratch = make_scratch(ROWS, [plan(qkv, SIZE // 2)], device)
        places = RowPlaces(positions, positions)
        project(normed, qkv, HeadParts(), rotary(1e4).to(device), places, q, k, v, scratch)
        seen = functional.scaled_dot_product_attention(
            q.transpose(0, 1), k[:, :ROWS], v[:, :ROWS], is_causal=True, enable_gqa=True
        )
        context = seen.transpose(0, 1).reshape(ROWS, -1).contiguous()
        apply(context, f"{layer}.self_attn.o_proj.weight", update)
        scale = matrices[f"{layer}.post_attention_layernorm.weight"]
        add_norm(residual, update, scale, epsilon, normed)
        gates = plain(torch.cat([matrices[f"{layer}.mlp.{n}_proj.weight"] for n in ("gate", "up")]))
        gated(normed, gates, wide, make_scratch(ROWS, [plan(gates)], device))
        apply(wide, f"{layer}.mlp.down_proj.weight", update)
        last = update
    add_norm(residual, last, matrices["model.norm.weight"], epsilon, normed)
    logits = unwritten(ROWS, 40, **kind)
    apply(normed, "lm_head.weight", logits)
    return logits
