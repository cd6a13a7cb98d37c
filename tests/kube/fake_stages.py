"""Stages of a fake pipelined target: they meet, and where one is lost all end, to begin again.

The rule of the real ones, without a layer: the first asks all others, they ask the first. Host
names are those of pods; a file that `pod_workers` keeps says which address each has now.
"""

import asyncio
import json
import logging
from pathlib import Path

import grpc
from grpc import aio

from outrider.contract.stages import StagePlace
from outrider.protos.v1.internal import control_pb2 as pb
from outrider.protos.v1.internal import control_pb2_grpc

POLL_SECONDS = 0.1
CALL_SECONDS = 2.0
OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),
)


class FakeStages:
    """What one stage knows of those that it depends on."""

    def __init__(self, place: StagePlace, hosts: Path) -> None:
        """`hosts`: the file with the address of each pod by its name."""
        self._others = place.addresses[1:] if place.leads else place.addresses[:1]
        self._hosts = hosts
        self._met: dict[str, int] = {}
        """Lives of those that have answered, by their addresses."""
        self._channels: dict[str, aio.Channel] = {}
        self.lost = False
        """Whether one that had answered is gone."""

    @property
    def complete(self) -> bool:
        """Whether all have answered."""
        return len(self._met) == len(self._others)

    async def follow(self, ended: asyncio.Event) -> None:
        """Until one that has answered is silent, or is in another life: then it sets `ended`."""
        while await self._see_all():
            await asyncio.sleep(POLL_SECONDS)
        logging.info("a stage is lost: all begin again")
        self.lost = True
        ended.set()

    async def close(self) -> None:
        """Closes the connections."""
        for channel in self._channels.values():
            await channel.close()

    async def _see_all(self) -> bool:
        lives = await asyncio.gather(*map(self._ask, self._others))
        for address, life in zip(self._others, lives, strict=True):
            if life != self._met.get(address, life):
                return False
            if life is not None:
                self._met[address] = life
        return True

    async def _ask(self, address: str) -> int | None:
        """The life of a stage; None where it is silent."""
        name, _, port = address.rpartition(":")
        ip = json.loads(self._hosts.read_text()).get(name.partition(".")[0])
        if ip is None:
            return None
        place = f"{ip}:{port}"
        if place not in self._channels:
            self._channels[place] = aio.insecure_channel(place, OPTIONS)
        try:
            control = control_pb2_grpc.ControlStub(self._channels[place])
            state = await control.GetState(pb.GetStateRequest(), timeout=CALL_SECONDS)
        except grpc.RpcError:
            return None
        return int(state.incarnation)
