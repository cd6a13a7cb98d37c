"""Sampling params as protobuf has them, and back."""

import dataclasses
from typing import Any

from outrider.protos.v1 import inference_pb2
from outrider.worker.sampling.params import SamplingParams


def sampling_message(params: SamplingParams) -> inference_pb2.Sampling:
    """Return the message of sampling params."""
    values: dict[str, Any] = {f.name: getattr(params, f.name) for f in dataclasses.fields(params)}
    return inference_pb2.Sampling(**values | {"logit_bias": dict(params.logit_bias)})


def sampling_params(message: inference_pb2.Sampling, **given: int) -> SamplingParams:
    """Return the params of a message; fields that are not set take `given`, or else their
    defaults."""
    values: dict[str, Any] = given | {field.name: value for field, value in message.ListFields()}
    return SamplingParams(**values | {"logit_bias": tuple(sorted(message.logit_bias.items()))})
