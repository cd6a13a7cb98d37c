"""Age of the metrics that the operator's control loop decides on."""

from outrider.operator.spec.part import Seconds, SpecPart


class Metrics(SpecPart):
    """Reading of the workers' metrics by the operator."""

    stale_after_seconds: Seconds = 60
    """Age of the newest metrics from which on everything is left as it is."""
