"""Metrics by vLLM's names, for readers that know no others."""

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from outrider.contract import metrics
from outrider.contract.counters import Counters
from outrider.contract.settings import Role
from outrider.contract.state import State
from outrider.worker.server.metrics.exposition import Exposition, WithVllmNames
from outrider.worker.server.metrics.latencies import Latencies

OWN = {"model_name": "chat", "engine": "0"}


def shown() -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples of a target, by name."""
    exposition = Exposition(Role.TARGET, "chat")
    Latencies.start(exposition.registry, exposition.common).first_token.observe(0.02)
    counters = Counters(kv_slots=10, kv_slots_used=4, prompt_tokens=7, requests_finished=3)
    state = State(role=Role.TARGET, model="chat", waiting=5, running=2, counters=counters)
    exposition.show(lambda: state)
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    text = generate_latest(WithVllmNames(exposition.registry)).decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def test_what_a_picker_asks_for_is_there_with_vllms_labels() -> None:
    found = shown()
    assert found["vllm:num_requests_waiting"] == [(OWN, 5.0)]
    assert found["vllm:num_requests_running"] == [(OWN, 2.0)]
    for name in ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"):
        assert found[name] == [(OWN, 0.4)]
    assert found["vllm:prompt_tokens_total"] == [(OWN, 7.0)]
    assert ({**OWN, "finished_reason": "stop"}, 3.0) in found["vllm:request_success_total"]
    assert found["vllm:time_to_first_token_seconds_sum"] == [(OWN, 0.02)]


def test_every_one_has_the_values_of_ours() -> None:
    found = shown()
    for metric, names in metrics.VLLM.items():
        own = [samples for name, samples in found.items() if name.startswith(metric.name)]
        for name in names:
            others = [samples for key, samples in found.items() if key.startswith(name)]
            assert [[value for _, value in one] for one in others] == [
                [value for _, value in one] for one in own
            ], name
