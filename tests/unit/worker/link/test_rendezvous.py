"""A target and a draft that meet in a store of torch.distributed, by the target's offer."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.errors import LinkBroken
from outrider.worker.link.distributed import join, open_rendezvous


def test_a_target_and_a_draft_join_by_what_the_offer_says() -> None:
    rendezvous = open_rendezvous("127.0.0.1:50052")
    offer = pb.Rendezvous.FromString(rendezvous.offer().SerializeToString())
    assert offer.host == "127.0.0.1"
    with ThreadPoolExecutor(2) as pool:
        target, draft = pool.submit(rendezvous.join), pool.submit(join, offer)
        for joined in (target, draft):
            joined.result().close()


def test_two_links_of_one_target_join_apart() -> None:
    first, second = (open_rendezvous("127.0.0.1:50052") for _ in range(2))
    assert first.port != second.port
    assert first.prefix != second.prefix


@pytest.mark.parametrize(
    "offer",
    [
        pb.Rendezvous(host="127.0.0.1", port=0),
        pb.Rendezvous(host="127.0.0.1", port=2**32 - 1),
        pb.Rendezvous(host="no such host", port=1),
        pb.Rendezvous(),
    ],
)
def test_an_offer_of_nowhere_breaks_the_link(offer: pb.Rendezvous) -> None:
    with pytest.raises(LinkBroken, match="cannot be joined"):
        join(offer)
