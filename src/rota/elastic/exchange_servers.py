"""Gradients that are combined at parameter servers.

Every worker sends each server the gradients of the parameters that the server keeps. A server that
has those of all workers makes the optimizer's step and sends the parameters back. Before a step
the servers tell each other that they have all gradients. So either all make the step, or each of
them still can: all parameters have always seen the same steps.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import torch

from rota.elastic.exchange import PeerLost
from rota.elastic.state_codec import bytes_of, receive_into, receive_tensor, send_parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.elastic.listener import MemberListener
    from rota.elastic.protocol import TimeLimits
    from rota.elastic.replica import Replica

_HEAD: Final = struct.Struct("!qq")
"""Head of a message: number of the group, number of the step."""
_NORM: Final = struct.Struct("!d")


class ServerGroup:
    """Connections between workers and servers, and among servers, of one group."""

    def __init__(
        self,
        listener: MemberListener,
        number: int,
        name: str,
        members: list[dict[str, Any]],
        limits: TimeLimits,
    ) -> None:
        self.number = number
        kinds = {card["name"]: card["kind"] for card in members}
        self.workers = [other for other, kind in kinds.items() if kind == "worker"]
        self.servers = [other for other, kind in kinds.items() if kind == "server"]
        self.size = len(self.workers)
        self._listener, self.links = listener, dict[str, socket.socket]()
        order = [*self.workers, *self.servers]
        own = order.index(name)
        for rank, card in enumerate(members):
            other = card["name"]
            if other == name or "server" not in (kinds[name], kinds[other]):
                continue
            if own < rank:  # the other one is a server, and accepts
                where = (card["host"], card["state_port"])
                link = listener.connect("servers", number, name, where, limits.connect_s)
            else:
                link = listener.accept("servers", number, other, limits.connect_s * 0.75)
            link.settimeout(limits.stall_s)
            self.links[other] = link

    def close(self) -> None:
        """Close the connections."""
        for link in self.links.values():
            link.close()
        self._listener.release(self.links.values())
        self.links = {}


class ServerExchange:
    """One member, worker or server, in a group with parameter servers."""

    def __init__(self, replica: Replica, name: str, kind: str, listener: MemberListener) -> None:
        self.replica, self.name, self.serves = replica, name, kind == "server"
        self.rank, self.size, self.parking = 0, 1, False
        self._listener = listener
        self._group: ServerGroup | None = None
        self.shards: Mapping[str, tuple[int, ...]] = {}
        self._full = False  # it has the gradients of all workers, not yet used
        self._square = 0.0  # squared norm of these gradients over all servers, for clipping
        self._sums: list[torch.Tensor] = []
        self._parts: list[torch.Tensor] = []

    def connect(
        self, number: int, members: list[dict[str, Any]], limits: TimeLimits
    ) -> ServerGroup:
        """Connect to the members of the next group; from any thread."""
        return ServerGroup(self._listener, number, self.name, members, limits)

    def adopt(self, group: ServerGroup, order: dict[str, Any]) -> None:
        """Train in this group from now on."""
        self._group, self.size = group, group.size
        self.shards = {name: tuple(keys) for name, keys in order["shards"].items()}
        others = group.servers if self.serves else group.workers
        self.rank = others.index(self.name)
        self.replica.zero_grad()
        if self.serves:
            own = self._kept(self.name)
            self._sums, self._parts = ([torch.empty_like(p) for p in own] for _ in range(2))
        if order["broken"] and self.serves:
            self._push(group)
        elif order["broken"]:
            self._pull(group)

    def catch_up(self, at: int) -> None:
        """Make the step that others have made; this member has all that it takes."""
        replica = self.replica
        if replica.position.step < at:
            if self._full:
                self._apply()
            replica.position = replica.batches.after(replica.position, self.size)
        self._full = False

    def equalize(self) -> None:
        raise AssertionError("with servers a network does not grow")

    def leave(self, *, lost: bool = False) -> None:
        """Leave the group, and close its connections."""
        del lost
        group, self._group, self.parking = self._group, None, False
        if group is not None:
            group.close()

    def cut(self) -> None:
        """Do nothing: `MemberListener.cancel` has closed the connections."""

    def weight(self, samples: int, total: int) -> float:
        """The factor for a mean over some samples; servers add up what workers send."""
        return samples / total

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def update(self, loss: torch.Tensor | None = None) -> None:
        """A worker's step: gradients out, parameters in."""
        if loss is not None:
            self.backward(loss)
        group, step = self._joined(), self.replica.position.step
        head = memoryview(_HEAD.pack(group.number, step) + bytes([self.parking]))
        try:
            for server in group.servers:
                parts = [bytes_of(_gradient(p)) for p in self._kept(server)]
                send_parts(group.links[server], [head, *parts])
            self._pull(group)
        except OSError as error:
            raise PeerLost(str(error)) from None

    def serve(self) -> None:
        """A server's step: gradients in, parameters out."""
        group, step = self._joined(), self.replica.position.step
        own, parking = self._kept(self.name), False
        try:
            for rank, worker in enumerate(group.workers):
                link = group.links[worker]
                _expect(link, group.number, step)
                flag = bytearray(1)
                receive_into(link, memoryview(flag))
                parking = parking or bool(flag[0])
                for total, part in zip(self._sums, self._parts, strict=True):
                    receive_tensor(link, total if rank == 0 else part)
                    if rank:
                        total.add_(part)
            for parameter, total in zip(own, self._sums, strict=True):
                parameter.grad = total
            others = [group.links[name] for name in group.servers if name != self.name]
            if self.replica.clip_norm is not None:
                self._square = self._whole_square(others, group.number, step)
            self._full = True
            for other in others:
                other.sendall(_HEAD.pack(group.number, step))
            for other in others:
                _expect(other, group.number, step)
        except OSError as error:
            raise PeerLost(str(error)) from None
        self._apply()
        self.replica.zero_grad()
        self._full, self.parking = False, parking
        self._push(group)

    def _apply(self) -> None:
        """Make the step with the gradients that are here."""
        self.replica.clip(self._square)
        self.replica.update()

    def _whole_square(self, others: list[socket.socket], number: int, step: int) -> float:
        """The squared norm of the gradients, over all servers.

        It is exchanged before a server says that it has all gradients: so if one steps, all can.
        """
        whole = self.replica.square_norm()
        said = _HEAD.pack(number, step) + _NORM.pack(whole)
        for other in others:
            other.sendall(said)
        for other in others:
            _expect(other, number, step)
            data = bytearray(_NORM.size)
            receive_into(other, memoryview(data))
            whole += _NORM.unpack(data)[0]
        return whole

    def _push(self, group: ServerGroup) -> None:
        """Send the workers what this server keeps; a lost worker is noticed in the next step."""
        head = memoryview(_HEAD.pack(group.number, self.replica.position.step))
        for worker in group.workers:
            with suppress(OSError):
                parts = [bytes_of(parameter) for parameter in self._kept(self.name)]
                send_parts(group.links[worker], [head, *parts])

    def _pull(self, group: ServerGroup) -> None:
        """Receive all parameters from the servers that keep them."""
        for server in group.servers:
            _expect(group.links[server], group.number, self.replica.position.step)
            for parameter in self._kept(server):
                receive_tensor(group.links[server], parameter)

    def _kept(self, server: str) -> list[torch.Tensor]:
        return [self.replica.parameters[key] for key in self.shards[server]]

    def _joined(self) -> ServerGroup:
        if self._group is None:
            raise PeerLost("the group was left")
        return self._group


def _expect(link: socket.socket, number: int, step: int) -> None:
    """Read the head of a message; OSError if it is of another group or step."""
    data = bytearray(_HEAD.size)
    receive_into(link, memoryview(data))
    if (found := _HEAD.unpack(data)) != (number, step):
        raise OSError(f"a message of step {found[1]} came in step {step}")


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
