"""The demo's draft as a GGUF file, which peers can read: `python -m bench.sides.peer_draft OUT`.

Weights are Q8_0, which loses next to nothing of the checkpoint's int8. The file has the target's
embedding and tokenizer; peers know no output head of fewer tokens, so theirs is the whole
vocabulary and a pass of the draft costs them more.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from bench.sides.services import SERVICE
from outrider.cli.service.file import read_service
from outrider.worker.checkpoints.source import ModelSource

NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Names of a layer's tensors: in a checkpoint, and in a GGUF file."""
OF_THE_FILE = ("GGUF.", "general.architecture", "general.name", "llama.block_count")
"""Begins of keys that are not copied from the target."""

SCALE = ".scale"

Floats = NDArray[np.float32]


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    write(parser.parse_args().out)
    return 0


def write(out: Path) -> None:
    """Write the draft of `examples/smollm2.yaml` to a file."""
    spec = read_service(SERVICE).spec
    assert spec.draft is not None
    folder = ModelSource.parse(spec.draft.model.uri).resolve()
    target = gguf.GGUFReader(ModelSource.parse(spec.target.model.uri).resolve())
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_name("draft")
    writer.add_block_count(config["num_hidden_layers"])
    for field in target.fields.values():
        if not field.name.startswith(OF_THE_FILE):
            kind = field.types[0]
            of = field.types[-1] if kind is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type=of)
    for tensor in target.tensors:
        if tensor.name == "token_embd.weight":
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    for name, value in tensors(folder, config):
        if value.ndim == 1:
            writer.add_tensor(name, value)
            continue
        packed = gguf.quants.quantize(value, gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(folder: Path, config: dict[str, int]) -> Iterator[tuple[str, Floats]]:
    """Yield the draft's own tensors as floats, by their names in a GGUF file."""
    heads = {
        "attn_q": config["num_attention_heads"],
        "attn_k": config["num_key_value_heads"],
    }
    for name, value in checkpoint(folder):
        if name == "model.norm.weight":
            yield "output_norm.weight", value
            continue
        _, _, layer, kind = name.split(".", 3)
        short = NAMES[kind.removesuffix(".weight")]
        written = interleaved(value, heads[short]) if short in heads else value
        yield f"blk.{layer}.{short}.weight", written


def checkpoint(folder: Path) -> Iterator[tuple[str, Floats]]:
    """Yield the tensors of a checkpoint of int8 matrices with a scale for each row, as floats."""
    with safe_open(folder / "model.safetensors", "np") as file:
        names = set(file.keys())
        for name in sorted(names):
            if name.endswith(SCALE):
                continue
            value = file.get_tensor(name).astype(np.float32)
            if name + SCALE in names:
                value *= file.get_tensor(name + SCALE)[:, None]
            yield name, value


def interleaved(value: Floats, heads: int) -> Floats:
    """Return a projection with the two halves of each head's rows taken in turns, as llama.cpp's
    rotary embedding reads them."""
    rows, columns = value.shape
    halves = value.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))


if __name__ == "__main__":
    raise SystemExit(main())
