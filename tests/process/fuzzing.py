"""A target that is fast enough to be asked thousands of things, and what must hold of it then.

The requests themselves are made in `test_fuzz_http` and `test_fuzz_grpc`.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
from hypothesis import strategies as st

from outrider.contract.settings import Dtype, ModelSettings, PolicySettings, Role
from tests.process import workers
from tests.process.workers import Worker
from tests.tiny_models import write_draft_of, write_tiny

SECONDS = 30.0
"""Seconds for one request: far more than any takes, so that a hang is found."""
CONTEXT = 96
PROMPT = "Once upon"
NASTY_NUMBERS = (
    *(0, -1, 1, 2, 63, 64, 255, 511, 512, 2**31 - 1, 2**31, 2**32, 2**53, 2**63, 2**64, 10**400),
    *(0.5, -0.0, 1e-320, 1e38, 1e39, 1e308, -1e308, math.inf, -math.inf, math.nan),
)
NASTY_TEXTS = (
    *("", " ", "\x00", "\ufeff", "\ud800", "\udfff\ud800", "é" * 40, "🇫🇷", "<|end|>", "null"),
    *("system", "tool", "json_object", "x" * 3000, "{{ 7 * 7 }}", "{% raw %}", "\r\n\r\n", "%00"),
)
NASTY_REGEXES = (
    *("", "(", "(?=a)b", "a&b", "(a|b)*a(a|b){200}", "(a{1,1000}){1,1000}", "[a-", "\\p{Han}{9}"),
    *(".{0,60000}", "([a-z]+ ?){1,500}x(.*y){30}"),
)
NASTY_SCHEMAS = (
    *("", "null", "true", "false", "[]", "{", '{"$ref": "#"}', '{"type": "thing"}', '{"not": {}}'),
    *('{"type": "integer", "multipleOf": 99999989}', '{"minimum": 5, "maximum": 1}', "[" * 5000),
    *('{"$ref": "http://127.0.0.1:9/x"}', '{"type": "string", "minLength": 1000000000}'),
    '{"$defs": {"a": {"$ref": "#/$defs/a"}}, "type": "object", '
    '"properties": {"b": {"$ref": "#/$defs/a"}}, "required": ["b"], "additionalProperties": false}',
    *('{"type": "string", "pattern": "("}', '{"enum": []}', '{"items": ' * 90 + "{}" + "}" * 90),
)


def seldom(examples: int) -> hypothesis.settings:
    """The same examples in every run, so that a passing suite passes again."""
    return hypothesis.settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


def texts() -> st.SearchStrategy[str]:
    """Odd texts, lone surrogates among them."""
    return st.one_of(st.sampled_from(NASTY_TEXTS), st.text(st.characters(), max_size=20))


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """A target that is asked odd things, and what it says to a sane one."""

    worker: Worker
    expected: str

    def check_alive(self) -> None:
        """Still answers, rightly."""
        assert self.sane() == self.expected

    def check_idle(self) -> None:
        """Nothing is left of what it was asked."""
        self.worker.until(lambda s: s.running == s.waiting == s.counters.kv_slots_used == 0)
        log = self.worker.log.read_text()
        assert "Traceback" not in log, log[log.index("Traceback") :][:3000]

    def sane(self) -> str:
        """What it says to a usual request."""
        return self.worker.client.complete(
            PROMPT, max_tokens=12, ignore_end=True, timeout=SECONDS
        ).text


@contextlib.contextmanager
def fuzzed(scratch: Path) -> Iterator[Fuzzed]:
    """A target with its draft inside; ended with the block."""
    model = write_tiny(scratch / "target", tie_word_embeddings=False)
    draft = write_draft_of(model, scratch / "draft")
    settings = workers.settings_for(
        Role.TARGET,
        model,
        scratch / "cache",
        max_context=CONTEXT,
        max_running=8,
        colocated=ModelSettings(uri=f"file://{draft}", dtype=Dtype.FP32),
        policy=PolicySettings(off_below_percent=0),
    )
    with workers.started(settings, scratch) as worker:
        target = Fuzzed(worker, "")
        yield Fuzzed(worker, target.sane())
