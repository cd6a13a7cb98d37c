"""A small typed client of Outrider's workers, blocking and asyncio; needs grpcio and no torch.

    with Client("127.0.0.1:50051") as client, client.generate("Once upon a time") as stream:
        for chunk in stream:
            print(chunk.text, end="", flush=True)
    print(stream.result.tokens_per_second)

Given several addresses, or a name of several, it balances over them; see `Client`.
"""

from outrider.client.aio import AsyncClient, AsyncStream
from outrider.client.answer import Chunk, FinishReason, Result
from outrider.client.errors import (
    Cancelled,
    ClientError,
    DeadlineExceeded,
    Incomplete,
    InvalidRequest,
    Overloaded,
    ServerError,
    Unauthenticated,
    Unavailable,
)
from outrider.client.request import Options, Prompt, Sampling
from outrider.client.sync import Client, Stream
from outrider.contract.counters import Counters
from outrider.contract.inference import Format, Likely, Message, Model, Timing, TokenLogprobs, Usage
from outrider.contract.settings import PolicySettings
from outrider.contract.state import (
    EngineState,
    Link,
    LinkState,
    Memory,
    StageGroup,
    StageState,
    StageView,
    State,
    TimelineSpan,
)

__all__ = [
    "AsyncClient",
    "AsyncStream",
    "Cancelled",
    "Chunk",
    "Client",
    "ClientError",
    "Counters",
    "DeadlineExceeded",
    "EngineState",
    "FinishReason",
    "Format",
    "Incomplete",
    "InvalidRequest",
    "Likely",
    "Link",
    "LinkState",
    "Memory",
    "Message",
    "Model",
    "Options",
    "Overloaded",
    "PolicySettings",
    "Prompt",
    "Result",
    "Sampling",
    "ServerError",
    "StageGroup",
    "StageState",
    "StageView",
    "State",
    "Stream",
    "TimelineSpan",
    "Timing",
    "TokenLogprobs",
    "Unauthenticated",
    "Unavailable",
    "Usage",
]
