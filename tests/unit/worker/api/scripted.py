"""The HTTP API of a target whose engine says what a test says."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from outrider.contract.inference import Timing, Usage
from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.worker.api.auth import ApiKeys
from outrider.worker.api.availability import Availability
from outrider.worker.api.http.app import target_application
from outrider.worker.api.inference import Inference
from outrider.worker.api.request import ServedModel
from outrider.worker.api.response_format import ResponseFormats
from outrider.worker.api.text import Text
from outrider.worker.messages import Finish, Finished, Submit, TokenLogprob, Tokens
from tests.tiny_models import END_ID
from tests.unit.worker.api.test_forced_calls import tokenizer
from tests.unit.worker.handles import Handle

CONTEXT = 64
VOCABULARY = 300


class ScriptedHandle(Handle):
    """An engine that answers each request with the same tokens; bytes are a token each."""

    def __init__(self, answer: Sequence[int]) -> None:
        super().__init__()
        self.answer = answer

    def send(self, message: Any) -> None:
        """Answer a request."""
        super().send(message)
        if isinstance(message, Submit):
            asyncio.get_running_loop().call_soon(self.deliver, self.messages(message))

    def messages(self, submit: Submit) -> list[Any]:
        """Return what the engine sends for a request."""
        ids = tuple(self.answer[: submit.max_tokens])
        usage = Usage(prompt_tokens=len(submit.prompt), completion_tokens=len(ids))
        finish = Finish.LENGTH if len(ids) == submit.max_tokens else Finish.STOP
        scores = () if submit.logprobs is None else (TokenLogprob(-1.0, ()),) * len(ids)
        tokens = [Tokens(submit.request, ids, (len(ids),), scores)] if ids else []
        return [*tokens, Finished(submit.request, finish, usage, Timing())]


@dataclass(slots=True)
class Scripted:
    """A target that is asked over HTTP."""

    text: Text
    answer: Sequence[int] = b"hello"
    settings: dict[str, Any] = field(default_factory=dict)
    default_sampling: dict[str, float] = field(default_factory=dict)
    """The model's own sampling params."""
    formats: bool = False
    """Whether answers may have a format."""
    handle: type[ScriptedHandle] = ScriptedHandle
    keys: ApiKeys | None = None
    allowed: tuple[str, ...] = ()
    """Hosts and origins whose pages may ask."""
    private: bool = False
    """Whether it answers to no other hosts and pages."""
    submits: list[Submit] = field(default_factory=list)
    """What the engine was asked last."""

    def post(self, path: str, **body: Any) -> httpx.Response:
        """Return the response to one request."""
        return self.ask("POST", path, json=body)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Return the response to one request that may have headers; a bug is one, too."""
        return asyncio.run(self._ask(method, path, more))

    async def _ask(self, method: str, path: str, more: dict[str, Any]) -> httpx.Response:
        engine = self.handle(self.answer)
        inference = self._inference(engine)
        app = target_application(inference, self.keys, (), self.allowed, self.private)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://target") as client:
            response = await client.request(method, path, **more)
        self.submits = [sent for sent in engine.sent if isinstance(sent, Submit)]
        return response

    def _inference(self, engine: ScriptedHandle) -> Inference:
        model = ServedModel(
            name="tiny",
            context_length=CONTEXT,
            vocabulary_size=VOCABULARY,
            revision="r1",
            has_chat_template=True,
            end_ids=(END_ID,),
            default_sampling=self.default_sampling,
        )
        settings = WorkerSettings(
            role=Role.TARGET, name="tiny", model=ModelSettings(uri="file://tiny"), **self.settings
        )
        formats = ResponseFormats(tokenizer if self.formats else None)
        return Inference(model, self.text, engine, settings, formats, Availability())
