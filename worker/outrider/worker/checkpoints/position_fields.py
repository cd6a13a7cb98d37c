"""What the layers of a config.json make of positions: windows, and rotary scaling."""

from outrider.worker.checkpoints.config_fields import ConfigFields
from outrider.worker.model.config import Family, RopeScaling

FULL, SLIDING = "full_attention", "sliding_attention"
"""Kinds of layers, as `layer_types` names them."""
DEFAULT_WINDOWS = dict.fromkeys((Family.MISTRAL, Family.QWEN2, Family.QWEN3), 4096)
"""Windows that transformers takes when the file says nothing."""
SWITCHED = (Family.QWEN2, Family.QWEN3)
"""Families whose windows `use_sliding_window` turns on, in the layers that are not the first."""
FIRST_LAYERS = 28
"""Layers without a window that transformers takes then, when the file says nothing."""


def windows_of(reader: ConfigFields, family: Family, layers: int) -> tuple[int, ...]:
    """Return each layer's window, 0 for none; nothing where no layer has one.

    Raises `ModelError`.
    """
    window = _window(reader, family)
    usual = _usual_kinds(reader, family, layers) if window else [FULL] * layers
    known = (FULL, SLIDING) if window else (FULL,)
    kinds = reader.values.get("layer_types") or usual
    sound = isinstance(kinds, list) and len(kinds) == layers and all(x in known for x in kinds)
    reader.check(sound, "layer_types", kinds, f"{layers} times {' or '.join(known)}")
    if family not in SWITCHED:  # transformers does not look at the kinds
        reader.check(len(set(kinds)) == 1, "layer_types", kinds, f"{usual[0]} throughout")
        kinds = usual
    return tuple(window if kind == SLIDING else 0 for kind in kinds) if SLIDING in kinds else ()


def rope_of(reader: ConfigFields) -> tuple[float, RopeScaling | None]:
    """Read base and scaling; both are in `rope_parameters` since transformers 5.

    Raises `ModelError`.
    """
    found = reader.values.get("rope_parameters") or reader.values.get("rope_scaling") or {}
    reader.check(isinstance(found, dict), "rope_parameters", found, "an object")
    inner = ConfigFields(found, f"{reader.where}: rope_parameters")
    theta = inner.number("rope_theta", reader.number("rope_theta", 10000.0))
    kind = found.get("rope_type", found.get("type", "default"))
    if kind == "default":
        return theta, None
    inner.check(kind == "llama3", "rope_type", kind, "default, llama3")
    return theta, RopeScaling(
        factor=inner.number("factor"),
        low_freq_factor=inner.number("low_freq_factor"),
        high_freq_factor=inner.number("high_freq_factor"),
        original_context=inner.count("original_max_position_embeddings"),
    )


def _window(reader: ConfigFields, family: Family) -> int:
    """Return the window of the layers that have one, 0 where none has."""
    default, values = DEFAULT_WINDOWS.get(family), reader.values
    off = family in SWITCHED and not values.get("use_sliding_window")
    if off or family is Family.LLAMA or values.get("sliding_window", default) is None:
        return 0
    return reader.count("sliding_window", default)


def _usual_kinds(reader: ConfigFields, family: Family, layers: int) -> list[str]:
    """Return the kinds of layers of a family with windows, where the file does not list them."""
    first = reader.count("max_window_layers", FIRST_LAYERS, 0) if family in SWITCHED else 0
    return [SLIDING if layer >= first else FULL for layer in range(layers)]
