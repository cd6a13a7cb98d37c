"""What `bench.cpu_peers` quotes, and the order in which its sides are asked."""

from bench.cpu_peers import OURS, THEIRS, all_ratios, turns


def test_ratios_are_to_the_faster_peer_at_decoding_and_at_prefill() -> None:
    decode = {key: {"median": 200.0} for key in OURS} | {"serial int4": {"median": 300.0}}
    prefill = {key: {"median": 600.0} for key in OURS}
    peers = {name: {"median": rate} for name, rate in zip(THEIRS, (80.0, 100.0), strict=True)}
    found = {"decode": decode | peers, "prefill": prefill | peers}
    ratios = all_ratios({"2": found})
    assert len(ratios) == 2 * len(OURS)
    assert ratios["plain_over_llama_cpp_2_threads"] == 2
    assert ratios["serial_int4_over_llama_cpp_2_threads"] == 3
    assert ratios["plain_prefill_over_llama_cpp_2_threads"] == 6


def test_each_side_is_the_first_as_often_as_others() -> None:
    names = ["a", "b", "c"]
    orders = [turns(names, number) for number in range(6)]
    assert [order[0] for order in orders] == ["a", "b", "c"] * 2
    assert all(sorted(order) == names for order in orders)
