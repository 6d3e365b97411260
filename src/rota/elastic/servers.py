"""Gradients that meet at parameter servers.

Every worker sends each server the gradients of the parameters which that server keeps; when it
has those of all workers it makes the optimizer's step and sends the parameters back. Servers tell
each other before they step that they have everything, so that either all make a step or, by what
they hold, all still can: no parameter is ever ahead of another.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import torch

from rota.elastic.exchange import Lost
from rota.elastic.state import bytes_of, receive_into, receive_tensor, send_parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.elastic.protocol import Limits
    from rota.elastic.replica import Replica
    from rota.elastic.transfer import Door

_HEAD: Final = struct.Struct("!qq")
"""Number of the group, and of the step."""
_NORM: Final = struct.Struct("!d")


class Lanes:
    """Connections between workers and servers, and among servers, of one group."""

    def __init__(
        self, door: Door, number: int, name: str, members: list[dict[str, Any]], limits: Limits
    ) -> None:
        self.number = number
        kinds = {card["name"]: card["kind"] for card in members}
        self.workers = [other for other, kind in kinds.items() if kind == "worker"]
        self.servers = [other for other, kind in kinds.items() if kind == "server"]
        self.size = len(self.workers)
        self._door, self.lanes = door, dict[str, socket.socket]()
        order = [*self.workers, *self.servers]
        own = order.index(name)
        for rank, card in enumerate(members):
            other = card["name"]
            if other == name or "server" not in (kinds[name], kinds[other]):
                continue
            if own < rank:  # the later one is a server, and opens
                where = (card["host"], card["state_port"])
                lane = door.visit("lane", number, name, where, limits.connect_s)
            else:
                lane = door.guest("lane", number, other, limits.connect_s * 0.75)
            lane.settimeout(limits.stall_s)
            self.lanes[other] = lane

    def close(self) -> None:
        """Hang up."""
        for lane in self.lanes.values():
            lane.close()
        self._door.release(self.lanes.values())
        self.lanes = {}


class Servers:
    """One member's part in a group with parameter servers, worker or server."""

    def __init__(self, replica: Replica, name: str, kind: str, door: Door) -> None:
        self.replica, self.name, self.serves = replica, name, kind == "server"
        self.rank, self.size, self.parking = 0, 1, False
        self._door = door
        self._lanes: Lanes | None = None
        self.shards: Mapping[str, tuple[int, ...]] = {}
        self._full = False  # the gradients of all workers are there, and not yet used
        self._square = 0.0  # of the norm of these gradients, if they are to be clipped
        self._sums: list[torch.Tensor] = []
        self._parts: list[torch.Tensor] = []

    def connect(self, number: int, members: list[dict[str, Any]], limits: Limits) -> Lanes:
        """Meet the members of a group to come; in any thread."""
        return Lanes(self._door, number, self.name, members, limits)

    def adopt(self, lanes: Lanes, order: dict[str, Any]) -> None:
        """Train in this group from now on."""
        self._lanes, self.size = lanes, lanes.size
        self.shards = {name: tuple(keys) for name, keys in order["shards"].items()}
        mates = lanes.servers if self.serves else lanes.workers
        self.rank = mates.index(self.name)
        self.replica.clear()
        if self.serves:
            own = self._kept(self.name)
            self._sums, self._parts = ([torch.empty_like(p) for p in own] for _ in range(2))
        if order["broken"] and self.serves:
            self._push(lanes)
        elif order["broken"]:
            self._pull(lanes)

    def catch_up(self, at: int) -> None:
        """Come to the step that others have come to; what it takes is here."""
        replica = self.replica
        if replica.position.step < at:
            if self._full:
                self._apply()
            replica.position = replica.batches.after(replica.position, self.size)
        self._full = False

    def leave(self, *, lost: bool = False) -> None:
        """Train in no group."""
        del lost
        lanes, self._lanes, self.parking = self._lanes, None, False
        if lanes is not None:
            lanes.close()

    def cut(self) -> None:
        """Nothing to do: closing the door has cut the lanes."""

    def weight(self, samples: int, total: int) -> float:
        """What a mean over so many samples counts for; servers add up."""
        return samples / total

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def update(self, loss: torch.Tensor | None = None) -> None:
        """A worker's step: gradients out, parameters in."""
        if loss is not None:
            self.backward(loss)
        lanes, step = self._joined(), self.replica.position.step
        head = memoryview(_HEAD.pack(lanes.number, step) + bytes([self.parking]))
        try:
            for server in lanes.servers:
                parts = [bytes_of(_gradient(p)) for p in self._kept(server)]
                send_parts(lanes.lanes[server], [head, *parts])
            self._pull(lanes)
        except OSError as error:
            raise Lost(str(error)) from None

    def serve(self) -> None:
        """A server's step: gradients in, parameters out."""
        lanes, step = self._joined(), self.replica.position.step
        own, parking = self._kept(self.name), False
        try:
            for rank, worker in enumerate(lanes.workers):
                lane = lanes.lanes[worker]
                _expect(lane, lanes.number, step)
                flag = bytearray(1)
                receive_into(lane, memoryview(flag))
                parking = parking or bool(flag[0])
                for total, part in zip(self._sums, self._parts, strict=True):
                    receive_tensor(lane, total if rank == 0 else part)
                    if rank:
                        total.add_(part)
            for parameter, total in zip(own, self._sums, strict=True):
                parameter.grad = total
            mates = [lanes.lanes[name] for name in lanes.servers if name != self.name]
            if self.replica.clip_norm is not None:
                self._square = self._whole_square(mates, lanes.number, step)
            self._full = True
            for mate in mates:
                mate.sendall(_HEAD.pack(lanes.number, step))
            for mate in mates:
                _expect(mate, lanes.number, step)
        except OSError as error:
            raise Lost(str(error)) from None
        self._apply()
        self.replica.clear()
        self._full, self.parking = False, parking
        self._push(lanes)

    def _apply(self) -> None:
        """Make the step; what it takes is here."""
        self.replica.clip(self._square)
        self.replica.update()

    def _whole_square(self, mates: list[socket.socket], number: int, step: int) -> float:
        """The square of the gradients' norm, over all servers.

        It comes before a server says that it has everything: if one of them steps, all can.
        """
        whole = self.replica.square_norm()
        said = _HEAD.pack(number, step) + _NORM.pack(whole)
        for mate in mates:
            mate.sendall(said)
        for mate in mates:
            _expect(mate, number, step)
            data = bytearray(_NORM.size)
            receive_into(mate, memoryview(data))
            whole += _NORM.unpack(data)[0]
        return whole

    def _push(self, lanes: Lanes) -> None:
        """Send the workers what this server keeps; who cannot take it will be missed later."""
        head = memoryview(_HEAD.pack(lanes.number, self.replica.position.step))
        for worker in lanes.workers:
            with suppress(OSError):
                parts = [bytes_of(parameter) for parameter in self._kept(self.name)]
                send_parts(lanes.lanes[worker], [head, *parts])

    def _pull(self, lanes: Lanes) -> None:
        """Receive all parameters from those who keep them."""
        for server in lanes.servers:
            _expect(lanes.lanes[server], lanes.number, self.replica.position.step)
            for parameter in self._kept(server):
                receive_tensor(lanes.lanes[server], parameter)

    def _kept(self, server: str) -> list[torch.Tensor]:
        return [self.replica.parameters[key] for key in self.shards[server]]

    def _joined(self) -> Lanes:
        if self._lanes is None:
            raise Lost("the group was left")
        return self._lanes


def _expect(lane: socket.socket, number: int, step: int) -> None:
    """The head of a message; OSError if it belongs elsewhere."""
    data = bytearray(_HEAD.size)
    receive_into(lane, memoryview(data))
    if (found := _HEAD.unpack(data)) != (number, step):
        raise OSError(f"a message of step {found[1]} came in step {step}")


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
