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
from outrider.client.answer import Result as Result
from outrider.client.errors import Cancelled as Cancelled
from outrider.client.errors import ClientError as ClientError
from outrider.client.errors import DeadlineExceeded as DeadlineExceeded
from outrider.client.errors import Incomplete as Incomplete
from outrider.client.errors import InvalidRequest as InvalidRequest
from outrider.client.errors import Overloaded as Overloaded
from outrider.client.errors import ServerError as ServerError
from outrider.client.errors import Unauthenticated as Unauthenticated
from outrider.client.errors import Unavailable as Unavailable
from outrider.client.request import Options as Options
from outrider.client.request import Prompt as Prompt
from outrider.client.request import Sampling as Sampling
from outrider.client.sync import Client as Client
from outrider.client.sync import Stream as Stream
from outrider.contract.counters import Counters as Counters
from outrider.contract.inference import Format as Format
from outrider.contract.inference import Likely as Likely
from outrider.contract.inference import Message as Message
from outrider.contract.inference import Model as Model
from outrider.contract.inference import Timing as Timing
from outrider.contract.inference import TokenLogprobs as TokenLogprobs
from outrider.contract.inference import Usage as Usage
from outrider.contract.settings import PolicySettings as PolicySettings
from outrider.contract.state import EngineState as EngineState
from outrider.contract.state import Link as Link
from outrider.contract.state import LinkState as LinkState
from outrider.contract.state import Memory as Memory
from outrider.contract.state import StageGroup as StageGroup
from outrider.contract.state import StageState as StageState
from outrider.contract.state import StageView as StageView
from outrider.contract.state import State as State
from outrider.contract.state import TimelineSpan as TimelineSpan
