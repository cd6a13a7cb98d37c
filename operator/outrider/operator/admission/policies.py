"""Admission policies of the chart, as far as they follow from the rules. Pure.

`python -m tools.crds` writes them; the chart adds names, scope and what is to happen.
"""

import re
from typing import Any

from outrider.operator.admission.advice_rules import ADVICE
from outrider.operator.admission.privilege_rules import RULES, VARIABLES
from outrider.operator.admission.rule import AdviceRule

_SERVICE = "dyn(object)"
_SELF = re.compile(r"\bself\b")


def advice_validations() -> list[dict[str, Any]]:
    """Return the validations of the policy that warns.

    They are about `dyn(object)`: an API server that knows the definition takes offence at fields of
    a `podTemplate`, which has whatever pods have.
    """
    return [
        {"expression": expression(rule), "message": f"{rule.place}: {rule.message}"}
        for rule in ADVICE
    ]


def privileges() -> dict[str, Any]:
    """Return variables of the policy on privileges, and its validations by name. The end of each
    message is the chart's, which knows who is trusted."""
    return {
        "variables": [{"name": name, "expression": cel} for name, cel in VARIABLES.items()],
        "validations": {
            rule.name: {"expression": rule.cel, "message": rule.message} for rule in RULES
        },
    }


def expression(rule: AdviceRule) -> str:
    """Return a rule over the whole `object`, which holds where it has no such part."""
    part = f"{_SERVICE}.{rule.path}".rstrip(".")
    cel = _SELF.sub(part, rule.cel)
    steps = rule.path.split(".")[1:]  # `spec` is always there
    if not steps:
        return cel
    there = f"{_SERVICE}.spec" + "".join(f".?{step}" for step in steps) + ".hasValue()"
    return f"!{there} || ({cel})"
