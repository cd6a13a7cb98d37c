"""Messages of the gRPC API to plain requests, and plain responses to messages."""

import dataclasses

import pytest

from outrider.contract.inference import Likely, Timing, TokenLogprobs, Usage
from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.api import convert
from outrider.worker.api.prompt import Chat
from outrider.worker.api.request import GenerateRequest
from outrider.worker.api.response import AnswerEnd, GenerateResponse
from outrider.worker.api.response_format import ResponseFormat
from outrider.worker.messages import Finish
from outrider.worker.sampling.params import SamplingParams

SAMPLED = {"temperature": 0.5, "top_k": 7, "top_p": 0.25, "min_p": 0.125, "seed": 11, "choice": 2}


def test_a_request_without_settings_has_the_defaults() -> None:
    request = convert.generate_request(pb.GenerateRequest(text="hi"))
    seed = request.sampling["seed"]
    bare = GenerateRequest("hi", {"seed": seed, "logit_bias": ()})
    assert dataclasses.replace(request, stop=()) == bare
    assert seed != convert.generate_request(pb.GenerateRequest(text="hi")).sampling["seed"]


def test_what_a_request_does_not_say_is_as_the_model_says() -> None:
    message = pb.GenerateRequest(text="hi", sampling=pb.Sampling(temperature=0.0, seed=1))
    request, model = convert.generate_request(message), {"temperature": 0.7, "top_p": 0.8}
    assert request.sampling_params(model) == SamplingParams(temperature=0.0, top_p=0.8, seed=1)
    assert request.sampling_params({}) == SamplingParams(seed=1)


def test_every_setting_is_converted() -> None:
    message = pb.GenerateRequest(
        tokens=pb.TokenIds(ids=[1, 2]),
        model="tiny",
        max_tokens=0,
        stop=["a"],
        ignore_end=True,
        speculate=False,
        priority=-3,
        logprobs=0,
        stream_interval_ms=0,
        prediction="",
        format=pb.Format(regex="a+"),
        sampling=pb.Sampling(**SAMPLED, logit_bias={9: 1.5, 3: -2.0}),  # type: ignore[arg-type]
    )
    request = convert.generate_request(message)
    assert list(request.prompt or ()) == [1, 2]
    assert request.sampling_params({}) == SamplingParams(
        **SAMPLED, logit_bias=((3, -2.0), (9, 1.5))
    )  # type: ignore[arg-type]
    assert (request.model, request.max_tokens, list(request.stop)) == ("tiny", 0, ["a"])
    assert (request.ignore_end, request.speculate) == (True, False)
    assert (request.priority, request.logprobs, request.stream_interval_ms) == (-3, 0, 0)
    assert request.response_format == ResponseFormat(regex="a+")
    assert request.prediction == "", "to be refused"


def test_a_chat_keeps_its_turns_and_tools() -> None:
    chat = pb.Chat(messages=[pb.ChatMessage(role="user", content="hi")], tools_json="[]")
    prompt = convert.generate_request(pb.GenerateRequest(chat=chat)).prompt
    assert isinstance(prompt, Chat)
    assert ([turn.content for turn in prompt.turns], prompt.tools_json) == (["hi"], "[]")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (pb.Format(), None),
        (pb.Format(json_object=False), "json_object"),
        (pb.Format(json_schema=""), "json_schema"),
    ],
)
def test_a_response_format_says_which_field_is_set(message: pb.Format, kind: str | None) -> None:
    wanted = convert.generate_request(pb.GenerateRequest(format=message)).response_format
    assert wanted is not None
    assert wanted.kind == kind


def test_a_request_without_prompt_or_input_has_none() -> None:
    assert convert.generate_request(pb.GenerateRequest()).prompt is None
    assert convert.prompt_of(pb.TokenizeRequest(), "input") is None


def test_a_response_keeps_tokens_logprobs_and_summary() -> None:
    token, other = Likely(5, -0.5, b"x"), Likely(6, -1.5, b"y")
    usage = Usage(prompt_tokens=3, first_hits=1)
    end = AnswerEnd(Finish.LENGTH, usage, Timing(total_seconds=2.5), 11)
    logprobs = (TokenLogprobs(token, (other,)),)
    message = convert.generate_response(GenerateResponse("x", (5,), 2, logprobs, end))
    assert message == pb.GenerateResponse(
        token_ids=[5],
        text="x",
        finish_reason=pb.FINISH_REASON_LENGTH,
        usage=pb.Usage(prompt_tokens=3, first_hits=1),
        timing=pb.Timing(total_seconds=2.5),
        seed=11,
        passes=2,
        logprobs=[
            pb.TokenLogprobs(
                token=pb.Likely(id=5, logprob=-0.5, text=b"x"),
                top=[pb.Likely(id=6, logprob=-1.5, text=b"y")],
            )
        ],
    )
