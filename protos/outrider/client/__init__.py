"""A small typed client of Outrider's workers, blocking and asyncio; needs grpcio and no torch.

    with Client("127.0.0.1:50051") as client, client.generate("Once upon a time") as stream:
        for chunk in stream:
            print(chunk.text, end="", flush=True)
    print(stream.result.tokens_per_second)

Given several addresses, or a name of several, it balances over them; see `Client`.
"""

from outrider.client.aio import AsyncClient as AsyncClient
from outrider.client.aio import AsyncStream as AsyncStream
from outrider.client.answer import Chunk as Chunk
from outrider.client.answer import FinishReason as FinishReason
from outrider.client.answer import Likely as Likely
from outrider.client.answer import Result as Result
from outrider.client.answer import Timing as Timing
from outrider.client.answer import TokenLogprobs as TokenLogprobs
from outrider.client.answer import Usage as Usage
from outrider.client.errors import Cancelled as Cancelled
from outrider.client.errors import ClientError as ClientError
from outrider.client.errors import DeadlineExceeded as DeadlineExceeded
from outrider.client.errors import Incomplete as Incomplete
from outrider.client.errors import InvalidRequest as InvalidRequest
from outrider.client.errors import Overloaded as Overloaded
from outrider.client.errors import ServerError as ServerError
from outrider.client.errors import Unauthenticated as Unauthenticated
from outrider.client.errors import Unavailable as Unavailable
from outrider.client.request import Format as Format
from outrider.client.request import Message as Message
from outrider.client.request import Options as Options
from outrider.client.request import Prompt as Prompt
from outrider.client.request import Sampling as Sampling
from outrider.client.state import EngineView as EngineView
from outrider.client.state import Link as Link
from outrider.client.state import LinkState as LinkState
from outrider.client.state import MemoryView as MemoryView
from outrider.client.state import Model as Model
from outrider.client.state import StageGroupView as StageGroupView
from outrider.client.state import StageState as StageState
from outrider.client.state import StageView as StageView
from outrider.client.state import State as State
from outrider.client.state import TimelineSpan as TimelineSpan
from outrider.client.sync import Client as Client
from outrider.client.sync import Stream as Stream
from outrider.contract.counters import Counters as Counters
from outrider.contract.settings import PolicySettings as PolicySettings
