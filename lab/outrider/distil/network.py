"""A draft as a torch module: some layers of a Llama.

Embedding and head are the target's, or of the model whose layers it has, and stay as they are.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from outrider.worker.model.config import ModelConfig
from outrider.worker.model.rotary import rotary_table
from outrider.worker.model.tensor_names import EMBEDDING, HEAD, LAYERS, NORM

POSITIONS = 2048

Weights = Mapping[str, NDArray[np.float32]]


class Rotary(NamedTuple):
    """Cosines and sines of some rows' positions, [rows, head_dim / 2] each."""

    cos: Tensor
    sin: Tensor

    def turn(self, x: Tensor) -> Tensor:
        """Turn queries or keys [..., heads, rows, head_dim]."""
        a, b = x.chunk(2, -1)
        return torch.cat([a * self.cos - b * self.sin, b * self.cos + a * self.sin], -1)


class Layer(nn.Module):
    """One layer of the Llama family."""

    def __init__(self, config: ModelConfig, weights: Weights, number: int) -> None:
        super().__init__()
        self._config = config

        def own(*names: str, kind: str = "weight") -> nn.Parameter:
            parts = [weights[f"{LAYERS}{number}.{name}.{kind}"] for name in names]
            return nn.Parameter(torch.from_numpy(np.concatenate(parts)))

        self.attention_norm = own("input_layernorm")
        self.qkv = own(*(f"self_attn.{x}_proj" for x in "qkv"))
        self.qkv_bias, self.query_norm, self.key_norm = None, None, None
        if config.qkv_bias:
            self.qkv_bias = own(*(f"self_attn.{x}_proj" for x in "qkv"), kind="bias")
        if config.qk_norm:
            self.query_norm, self.key_norm = own("self_attn.q_norm"), own("self_attn.k_norm")
        self.output = own("self_attn.o_proj")
        self.ffn_norm = own("post_attention_layernorm")
        self.gates = own("mlp.gate_proj", "mlp.up_proj")
        self.down = own("mlp.down_proj")

    def forward(self, x: Tensor, rotary: Rotary) -> Tensor:
        """Return x [texts, rows, hidden] after this layer."""
        config = self._config
        heads = [config.heads, config.kv_heads, config.kv_heads]
        made = F.linear(self._norm(x, self.attention_norm), self.qkv, self.qkv_bias)
        made = made.unflatten(-1, (sum(heads), config.head_dim)).transpose(-2, -3)
        queries, keys, values = made.split(heads, -3)
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys = self._norm(queries, self.query_norm), self._norm(keys, self.key_norm)
        queries, keys = rotary.turn(queries), rotary.turn(keys)
        context = F.scaled_dot_product_attention(
            queries, keys, values, is_causal=True, enable_gqa=True
        )
        x = x + F.linear(context.transpose(-2, -3).flatten(-2), self.output)
        gate, up = F.linear(self._norm(x, self.ffn_norm), self.gates).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.down)

    def tensors(self) -> dict[str, Tensor]:
        """Return its parameters as a checkpoint names them, behind the layer's number."""
        config = self._config
        sizes = [heads * config.head_dim for heads in (config.heads, *[config.kv_heads] * 2)]
        names = [f"self_attn.{x}_proj" for x in "qkv"]
        found = dict(zip(names, self.qkv.split(sizes), strict=True))
        found |= dict(zip(("mlp.gate_proj", "mlp.up_proj"), self.gates.chunk(2), strict=True))
        found |= {
            "self_attn.o_proj": self.output,
            "mlp.down_proj": self.down,
            "input_layernorm": self.attention_norm,
            "post_attention_layernorm": self.ffn_norm,
        }
        if self.query_norm is not None and self.key_norm is not None:
            found |= {"self_attn.q_norm": self.query_norm, "self_attn.k_norm": self.key_norm}
        tensors = {f"{name}.weight": tensor.detach() for name, tensor in found.items()}
        if self.qkv_bias is not None:
            parts = self.qkv_bias.detach().split(sizes)
            tensors |= {f"{n}.bias": part for n, part in zip(names, parts, strict=True)}
        return tensors

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self._config.norm_eps)


class Draft(nn.Module):
    """Layers between a model's embedding and some rows of its head."""

    embedding: Tensor
    head: Tensor
    target_head: Tensor | None
    """The same rows of the target's head, where they are not its own."""
    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        layers: Sequence[int],
        target_head: Tensor | None = None,
    ) -> None:
        """Take the numbered layers of `weights`, whose `HEAD` has the draft's outputs."""
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList([Layer(config, weights, number) for number in layers])
        self.norm = nn.Parameter(torch.from_numpy(weights[NORM].copy()))
        table = torch.from_numpy(rotary_table(config, POSITIONS))
        fixed: dict[str, Tensor | None] = {
            "embedding": torch.from_numpy(weights[EMBEDDING]),
            "head": torch.from_numpy(weights[HEAD]),
            "target_head": target_head,
            "cos": table[:, 0],
            "sin": table[:, 1],
        }
        for name, tensor in fixed.items():
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return hidden states [texts, rows, hidden] of whole texts, [texts, rows] token ids.

        They are those after the final norm, which `logits` takes.
        """
        x, rows = self.embedding[tokens], tokens.shape[-1]
        rotary = Rotary(self.cos[:rows], self.sin[:rows])
        for layer in self.layers:
            x = layer(x, rotary)
        return F.rms_norm(x, self.norm.shape, self.norm, self.config.norm_eps)

    def tensors(self) -> dict[str, Tensor]:
        """Return what was trained, as a checkpoint names it."""
        found = {NORM: self.norm.detach()}
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            found |= {f"{LAYERS}{number}.{n}": tensor for n, tensor in layer.tensors().items()}
        return found

    def digest(self) -> str:
        """Return what tells it apart: 16 hex digits of the SHA-256 of weights and output ids."""
        found = hashlib.sha256(repr(self.config.output_ids).encode())
        for tensor in self.state_dict().values():
            found.update(tensor.cpu().contiguous().view(torch.uint8).numpy())
        return found.hexdigest()[:16]

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [..., outputs] of the draft's own outputs."""
        return F.linear(hidden, self.head)

    def target_logits(self, features: Tensor) -> Tensor:
        """Return the target's logits [..., outputs] of the same outputs, of its features."""
        return F.linear(features, self.head if self.target_head is None else self.target_head)
