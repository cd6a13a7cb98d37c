"""Which workers follow from a service."""

import dataclasses

import pytest

from outrider.contract.settings import (
    AllReduceKind,
    Device,
    Dtype,
    ModelSettings,
    PipelineSettings,
    PrefillKind,
    Role,
    StageDtype,
    WorkerSettings,
)
from outrider.operator.control.settings import SpeculationMode
from outrider.operator.plan import Plan, PlanOptions, control, plan
from outrider.operator.spec import load

TARGET = ModelSettings(uri="package://p/target.gguf")
DRAFT = ModelSettings(uri="file:///draft", embeddings_from=TARGET.uri)
TEXT = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: tiny}
spec:
  target: {model: {uri: "package://p/target.gguf"}, engine: {threads: 2, maxContext: 512}}
  draft: {model: {uri: "file:///draft", embeddingsFrom: Target}%s}
  speculation: {maxRows: 4, depth: 5, width: 6, nodesAhead: 7%s}
"""


def planned(draft: str = "", speculation: str = "", options: PlanOptions | None = None) -> Plan:
    return plan(load(TEXT % (draft, speculation)), options or PlanOptions())


def test_a_separate_draft_is_a_worker_that_the_target_links_to() -> None:
    draft, target = planned().workers
    assert (draft.name, draft.role, draft.settings.model) == ("tiny-draft-0", Role.DRAFT, DRAFT)
    assert (target.name, target.role, target.settings.model) == (
        "tiny-target-0",
        Role.TARGET,
        TARGET,
    )
    assert target.links == ("tiny-draft-0",)
    assert draft.links == ()
    assert target.settings.colocated is None


def test_each_replica_is_a_worker_and_the_target_starts_last() -> None:
    names = [worker.name for worker in planned(", replicas: 2").workers]
    assert names == ["tiny-draft-0", "tiny-draft-1", "tiny-target-0"]


def test_each_target_pairs_with_every_draft_and_drafts_hold_sessions_for_all() -> None:
    text = TEXT.replace("engine: {threads: 2,", "replicas: 3, engine: {maxRunning: 4, threads: 2,")
    made = plan(load(text % (", replicas: 2", "")), PlanOptions())
    targets, drafts = made.of(Role.TARGET), made.of(Role.DRAFT)
    assert [target.name for target in targets] == [f"tiny-target-{n}" for n in range(3)]
    assert {target.links for target in targets} == {("tiny-draft-0", "tiny-draft-1")}
    assert {target.settings.max_running for target in targets} == {4}
    assert {draft.settings.max_running for draft in drafts} == {12}
    assert made.workers == (*drafts, *targets)


def test_a_draft_may_say_how_many_sessions_it_holds() -> None:
    made = plan(load(TEXT % (", engine: {maxRunning: 3, kvMemory: 512Mi}", "")), PlanOptions())
    (draft,) = made.of(Role.DRAFT)
    assert draft.settings.max_running == 3
    assert draft.settings.kv_bytes == 512 << 20


def test_limits_of_requests_are_the_targets_only() -> None:
    limits = "{maxSeconds: 90, maxQueueSeconds: 5, maxWaiting: 0}"
    text = TEXT.replace("engine: {", f"replicas: 2, requests: {limits}, engine: {{")
    made = plan(load(text % ("", "")), PlanOptions())
    for worker in made.workers:
        told = worker.settings
        found = (told.request_seconds, told.queue_seconds, told.max_waiting)
        assert found == ((90, 5, 0) if worker.role is Role.TARGET else (570, 60, 64))


def test_limits_of_requests_that_are_left_out_are_the_contract_s() -> None:
    (target,) = planned().of(Role.TARGET)
    own = WorkerSettings(role=Role.TARGET, name="tiny", model=TARGET)
    for name in ("request_seconds", "queue_seconds", "max_waiting"):
        assert getattr(target.settings, name) == getattr(own, name)


def test_a_colocated_draft_lives_in_the_target_s_settings() -> None:
    (target,) = planned(", placement: Colocated, engine: {dtype: int8}").workers
    assert target.settings.colocated == dataclasses.replace(DRAFT, dtype=Dtype.INT8)
    assert target.links == ()


def test_targets_and_drafts_of_one_pod_are_pairs() -> None:
    text = TEXT.replace("engine: {threads: 2,", "replicas: 2, engine: {maxRunning: 4, threads: 2,")
    made = plan(load(text % (", placement: SamePod", "")), PlanOptions())
    assert [draft.name for draft in made.of(Role.DRAFT)] == ["tiny-draft-0", "tiny-draft-1"]
    links = [target.links for target in made.of(Role.TARGET)]
    assert links == [("tiny-draft-0",), ("tiny-draft-1",)]
    assert {draft.settings.max_running for draft in made.of(Role.DRAFT)} == {4}
    assert not made.control.draft.managed
    assert not made.control.draft.colocated


@pytest.mark.parametrize("placement", ["Auto", "Separate"])
def test_auto_is_separate(placement: str) -> None:
    assert planned(f", placement: {placement}") == planned()


@pytest.mark.parametrize("placement", ["", ", placement: Colocated", ", placement: SamePod"])
def test_disabled_speculation_starts_no_draft(placement: str) -> None:
    (target,) = planned(placement, ", mode: Disabled").workers
    assert target.settings.colocated is None
    assert target.settings.policy.speculate is False


def test_no_replicas_leave_a_target_alone() -> None:
    assert [w.name for w in planned(", replicas: 0").workers] == ["tiny-target-0"]


def test_the_policy_is_the_service_s() -> None:
    for worker in planned().workers:
        policy = worker.settings.policy
        assert (policy.max_rows, policy.depth, policy.width, policy.nodes_ahead) == (4, 5, 6, 7)


def test_static_speculation_never_turns_drafting_off() -> None:
    for worker in planned(speculation=", mode: Static").workers:
        assert worker.settings.policy.speculate is True
        assert worker.settings.policy.off_below_percent == 0


def test_the_switch_takes_the_service_s_gains() -> None:
    gains = ", disable: {gainBelowPercent: 90}, enable: {gainAbovePercent: 95}"
    for worker in planned(speculation=gains).workers:
        policy = worker.settings.policy
        assert (policy.off_below_percent, policy.on_above_percent) == (90, 95)


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ("", (105, 115)),
        (", disable: {gainBelowPercent: 150}", (150, 160)),
        (", enable: {gainAbovePercent: 100}", (99, 100)),
    ],
)
def test_a_gain_that_is_left_out_follows_the_other(gains: str, expected: tuple[int, int]) -> None:
    for worker in planned(speculation=gains).workers:
        policy = worker.settings.policy
        assert (policy.off_below_percent, policy.on_above_percent) == expected


@pytest.mark.parametrize(
    ("service", "because"),
    [
        (TEXT % ("", ", mode: Disabled"), ""),
        (TEXT[: TEXT.index("  draft:")], "the service has no draft"),
        (
            TEXT[: TEXT.index("  draft:")] + "  draftsOf: pool\n",
            "its drafts are those of the service pool, in a cluster",
        ),
    ],
)
def test_why_drafting_is_off_is_said_by_what_the_service_has(service: str, because: str) -> None:
    control = plan(load(service), PlanOptions()).control
    assert (control.mode, control.draftless) == (SpeculationMode.DISABLED, because)


def test_the_loop_knows_the_gpus_of_both_roles() -> None:
    control = planned().control
    assert (control.draft.draft_gpus, control.draft.target_gpus) == (0, 0)
    six = "resources: {requests: {cpu: 12}, limits: {nvidia.com/gpu: 3, memory: 1Gi}}"
    two = ", resources: {limits: {nvidia.com/gpu: '2'}}"
    spread = "target: {parallelism: {tensor: 6, nodes: 2}, " + six + ", "
    service = load(TEXT.replace("target: {", spread) % (two, ""))
    control = plan(service, PlanOptions()).control
    assert (control.draft.draft_gpus, control.draft.target_gpus) == (2, 6)
    assert control.gain_below_percent is None


def test_gpus_that_follow_from_ranks_count_as_those_that_are_named() -> None:
    wide = "target: {parallelism: {tensor: 6, nodes: 2}, "
    text = TEXT.replace("target: {", wide).replace("engine: {", "engine: {device: GPU, ")
    service = load(text % (", engine: {device: GPU}, parallelism: {tensor: 2}", ""))
    control = plan(service, PlanOptions()).control
    assert (control.draft.draft_gpus, control.draft.target_gpus) == (2, 6)


@pytest.mark.parametrize(
    ("limits", "gpus"),
    [
        ("nvidia.com/mig-1g.10gb: 2", 2 / 7),
        ("nvidia.com/mig-3g.20gb: '1'", 3 / 7),
        ("nvidia.com/mig-7g.80gb: 1", 1),
        ("nvidia.com/mig-1g.10gb.me: 1", 1 / 7),
        ("nvidia.com/mig-1g.6gb: 1", 1 / 4),
        ("nvidia.com/mig-2g.12gb.me: 1", 2 / 4),
        ("nvidia.com/mig-4g.24gb: 1", 1),
        ("nvidia.com/mig-4g.20gb: 1", 4 / 7),
        ("amd.com/gpu: 2", 2),
        ("example.com/nic: 2", 0),
    ],
)
def test_a_part_of_a_gpu_counts_by_its_share(limits: str, gpus: float) -> None:
    draft = f", resources: {{limits: {{{limits}}}}}"
    control = plan(load(TEXT % (draft, "")), PlanOptions()).control
    assert control.draft.draft_gpus == pytest.approx(gpus)


MODEL = "podTemplate: {spec: {nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}}}"


@pytest.mark.parametrize(
    ("draft", "prices", "price"),
    [
        ("nvidia.com/gpu: 2", {"nvidia.com/gpu": 3.0}, 6.0),
        ("nvidia.com/gpu: 2", {}, 0.0),
        ("nvidia.com/gpu: 2", {"nvidia.com/gpu": 3.0, "NVIDIA-L4": 1.0}, 2.0),
        ("nvidia.com/mig-2g.20gb: 1", {"nvidia.com/gpu": 7.0}, 2.0),
        ("nvidia.com/mig-2g.20gb: 1", {"nvidia.com/gpu": 7.0, "nvidia.com/mig-2g.20gb": 2.5}, 2.5),
        ("nvidia.com/mig-2g.20gb: 1", {"NVIDIA-H100": 7.0}, 0.0),
        ("nvidia.com/gpu: 0, nvidia.com/mig-1g.5gb: 1", {"nvidia.com/mig-1g.5gb": 0.5}, 0.5),
        ("nvidia.com/gpu.shared: 1", {"nvidia.com/gpu.shared": 0.4}, 0.4),
        ("amd.com/gpu: 1", {"nvidia.com/gpu": 3.0}, 0.0),
        ("example.com/nic: 2", {"nvidia.com/gpu": 3.0}, 0.0),
    ],
)
def test_a_gpu_has_the_price_of_its_model_or_of_its_resource(
    draft: str, prices: dict[str, float], price: float
) -> None:
    model = f", {MODEL}" if "NVIDIA-L4" in prices else ""
    text = TEXT % (f", resources: {{limits: {{{draft}}}}}{model}", "")
    found = control(load(text), prices=prices).draft
    assert found.draft_price == pytest.approx(price)
    assert found.target_price == 0, "no GPUs"


def test_a_revision_goes_with_the_uri_and_to_who_borrows_from_it() -> None:
    text = TEXT.replace('"package://p/target.gguf"', '"hf://o/target", revision: v2')
    draft, target = plan(load(text % ("", "")), PlanOptions()).workers
    assert target.settings.model.uri == "hf://o/target@v2"
    assert draft.settings.model.embeddings_from == "hf://o/target@v2"


def test_each_role_has_its_own_threads_and_the_draft_the_target_s_context() -> None:
    draft, target = planned().workers
    assert (target.settings.threads, draft.settings.threads) == (2, 1)
    assert (target.settings.max_context, draft.settings.max_context) == (512, 512)


def test_each_role_has_its_own_number_of_ranks() -> None:
    text = TEXT.replace("target: {", "target: {parallelism: {tensor: 3}, ")
    service = load(text % (", parallelism: {tensor: 2}", ""))
    draft, target = plan(service, PlanOptions()).workers
    assert (target.settings.tensor_parallel, draft.settings.tensor_parallel) == (3, 2)


def test_the_target_is_cut_over_its_stages_and_the_draft_never() -> None:
    stages = "parallelism: {pipeline: 2}, pipeline: {cut: [14, 16], dtype: bf16}"
    text = TEXT.replace("target: {", f"target: {{{stages}, ")
    draft, target = plan(load(text % ("", "")), PlanOptions()).workers
    assert target.settings.pipeline == PipelineSettings(
        stages=2, cut=(14, 16), dtype=StageDtype.BF16
    )
    assert draft.settings.pipeline == PipelineSettings()


def test_prompts_are_the_targets_alone_to_leave_to_the_library() -> None:
    text = TEXT.replace("threads: 2", "threads: 2, prefill: Library")
    draft, target = plan(load(text % ("", "")), PlanOptions()).workers
    assert target.settings.prefill is PrefillKind.LIBRARY
    assert draft.settings.prefill is PrefillKind.EXACT


def test_each_role_has_its_own_all_reduce() -> None:
    text = TEXT.replace("target: {", "target: {parallelism: {tensor: 2}, ").replace(
        "threads: 2", "threads: 2, allReduce: OneShot"
    )
    draft, target = plan(load(text % ("", "")), PlanOptions()).workers
    kinds = (target.settings.all_reduce, draft.settings.all_reduce)
    assert kinds == (AllReduceKind.ONE_SHOT, AllReduceKind.GATHER)


def test_each_role_has_its_own_device() -> None:
    text = TEXT.replace("threads: 2", "threads: 2, device: GPU")
    draft, target = plan(load(text % (", engine: {device: CPU}", "")), PlanOptions()).workers
    assert (target.settings.device, draft.settings.device) == (Device.GPU, Device.CPU)
    assert {worker.settings.device for worker in planned().workers} == {Device.AUTO}


def test_options_stand_above_the_service() -> None:
    options = PlanOptions(dtype=Dtype.FP32, threads=3, cache="/cache")
    draft, target = planned(options=options).workers
    assert (target.settings.threads, draft.settings.threads) == (3, 1)
    assert {w.settings.model.dtype for w in (draft, target)} == {Dtype.FP32}
    assert {w.settings.cache for w in (draft, target)} == {"/cache"}


@pytest.mark.parametrize("placement", ["", ", placement: Colocated"])
def test_keys_and_certificates_are_the_targets_only(placement: str) -> None:
    options = PlanOptions(api_keys_file="/keys", tls_cert="/cert", tls_key="/key")
    made = planned(placement, options=options)
    for worker in made.workers:
        told = worker.settings
        guard = (told.api_keys_file, told.tls_cert, told.tls_key)
        target = worker.role is Role.TARGET
        assert guard == (("/keys", "/cert", "/key") if target else (None, None, None))


def test_each_model_is_prepared_once_and_the_target_s_first() -> None:
    prepared = planned(", replicas: 3").preparations
    assert [worker.name for worker in prepared] == ["tiny-target-0", "tiny-draft-0"]


def test_the_same_service_gives_the_same_plan() -> None:
    assert planned() == planned()
    assert hash(planned()) == hash(planned())


def test_settings_survive_their_file() -> None:
    for worker in planned().workers:
        assert WorkerSettings.from_json(worker.settings.to_json()) == worker.settings
