"""Advice as rules between fields, for the API server (CEL) and for the operator (Python).

A rule that does not hold is worth a sentence and refuses nothing. Leaves advice on pods to
`role_advice`, and advice that takes more than a comparison of fields to `advice`.
"""

from collections.abc import Callable, Iterator

from pydantic.alias_generators import to_snake

from outrider.contract.settings import Role
from outrider.operator.admission.role_advice import replaced, role_advice
from outrider.operator.admission.rule import AdviceRule
from outrider.operator.naming import DRAFT_CONTAINER
from outrider.operator.spec.engine import Pipeline
from outrider.operator.spec.roles import DraftScaling
from outrider.operator.spec.service import Spec

_PIPELINE, _SCALING = Pipeline(), DraftScaling()

_TARGET = (
    AdviceRule(
        "spec.target",
        "self.parallelism.pipeline > 1 || (!has(self.pipeline.cut) &&"
        f" self.pipeline.dtype == '{_PIPELINE.dtype}' && self.pipeline.link == '{_PIPELINE.link}')",
        "does nothing where parallelism.pipeline is 1",
        lambda t: t.parallelism.stages > 1 or t.pipeline == _PIPELINE,
        ".pipeline",
    ),
)


def _draft() -> Iterator[AdviceRule]:
    default = (
        f"self.scaling.mode == '{_SCALING.mode}' &&"
        f" self.scaling.minReplicas == {_SCALING.min_replicas} &&"
        f" self.scaling.maxReplicas == {_SCALING.max_replicas}"
    )
    yield AdviceRule(
        "spec.draft",
        f"!(self.placement in ['Colocated', 'SamePod']) || ({default})",
        "does nothing where placement is Colocated or SamePod: each target has one draft",
        lambda d: d.has_pods or d.scaling == _SCALING,
        ".scaling",
    )
    for key, words in (
        ("maxRows", "drafts never have so many draft tokens"),
        ("width", "no draft pass expands so many leaves"),
    ):
        yield AdviceRule(
            "spec",
            f"!has(self.draft) || self.speculation.nodesAhead >= self.speculation.{key}",
            f"is less than {key}: {words}",
            _has_nodes(key),
            ".speculation.nodesAhead",
        )


def _has_nodes(key: str) -> Callable[[Spec], bool]:
    def holds(spec: Spec) -> bool:
        most: int = getattr(spec.speculation, to_snake(key))
        return spec.draft is None or spec.speculation.nodes_ahead >= most

    return holds


def _same_pod() -> Iterator[AdviceRule]:
    """Yield the advice on the draft's container in its target's pods."""
    for rule in replaced("spec.target", DRAFT_CONTAINER):
        inside = rule.cel.replace("self", "self.target")
        cel = f"self.?draft.?placement.orValue('') != 'SamePod' || {inside}"
        yield AdviceRule("spec", cel, rule.message, _if_same_pod(rule), f".target{rule.field}")


def _if_same_pod(rule: AdviceRule) -> Callable[[Spec], bool]:
    return lambda spec: not spec.same_pod or rule.holds(spec.target)


ADVICE = (
    *role_advice(Role.TARGET),
    *_same_pod(),
    *role_advice(Role.DRAFT),
    *_TARGET,
    *_draft(),
)
"""All advice that comparing fields takes."""
