"""All-reduce of gradients among the workers: torch's DistributedDataParallel on a changing group.

Gradients are reduced once per step, in `update`, however often `backward` was called before: only
there the hooks of DistributedDataParallel are active. So its communication still overlaps with
the last backward, and workers need not call `backward` equally often.

Reductions on CPUs are begun and waited for here (`WorkerGroup.wait`), because torch would wait for
a member that is gone. They work on torch's buckets, of which the gradients are views.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rota.elastic.exchange import PeerLost
from rota.elastic.worker_group import (
    WorkerGroup,
    dispose,
    dist,
    first_line,
    gloo_options,
    group_of,
    is_loss,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.elastic.listener import MemberListener
    from rota.elastic.protocol import TimeLimits
    from rota.elastic.replica import Replica

_MOST_BUFFER: Final = 1 << 28
"""Bytes of the model's buffers that are sent in one message."""
_MOST_ELEMENTS: Final = 1 << 22
"""Elements that are copied to be sent in one message, unless a tensor has more."""


class AllReduceExchange:
    """One worker in a group that reduces gradients, and the model bound to that group."""

    serves = False
    shards: Mapping[str, tuple[int, ...]] = MappingProxyType({})

    def __init__(
        self,
        replica: Replica,
        name: str = "",
        listener: MemberListener | None = None,
        *,
        unused: bool,
    ) -> None:
        self.replica, self._name, self._listener, self._unused = replica, name, listener, unused
        self.rank, self.size, self.parking = 0, 1, False
        self._group: WorkerGroup | None = None
        self._bound: Any = None
        self._pending = False  # there are gradients that were not reduced yet

    def connect(
        self, number: int, members: list[dict[str, Any]], limits: TimeLimits
    ) -> WorkerGroup:
        """Form the next group while the present one still trains; from any thread."""
        return WorkerGroup(
            self._listener,
            number,
            self._name,
            members,
            device=self.replica.device,
            connect_s=limits.connect_s * 0.75,
            step_s=limits.stall_s,
        )

    def adopt(self, group: WorkerGroup, order: dict[str, Any]) -> None:
        """Train in this group from now on; the former one was left before."""
        del order
        self._group, self.rank, self.size = group, group.rank, group.size
        if group.size > 1:
            # All workers have the same state already, so nothing needs to be sent.
            self._bound = DistributedDataParallel(
                self.replica.model,
                process_group=group.process_group,
                init_sync=False,
                find_unused_parameters=self._unused,
                gradient_as_bucket_view=True,
            )
            if self.replica.device.type != "cuda":  # a call of NCCL can be aborted
                self._bound.register_comm_hook(group, _begin)
            self._trained = [p for p in self.replica.model.parameters() if p.requires_grad]
            self._buffers = list(self.replica.model.buffers())

    def catch_up(self, at: int) -> None:
        """Do nothing: a worker that is behind receives the state of one that is not."""

    def equalize(self) -> None:
        """Let all workers have the parameters and buffers of the first one."""
        group = self._group
        if group is None or group.size == 1:
            return
        try:
            with torch.no_grad():
                self._send(group, self.replica.tensors())
        except RuntimeError as error:
            self._reraise(error)

    def leave(self, *, lost: bool = False) -> None:
        """Leave the group; `lost` also ends the calls of other workers that wait in it."""
        self._bound, self._pending, self.parking = None, False, False
        group, self._group = self._group, None
        if group is not None:
            group.close(lost=lost)

    def cut(self) -> None:
        """Let every call that waits for other workers fail at once; from any thread."""
        group = self._group
        if group is not None:
            group.cut()

    def weight(self, samples: int, total: int) -> float:
        """The factor for a mean over some samples; the group averages over its workers."""
        return samples * self.size / total

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        self._pending = True

    def update(self, loss: torch.Tensor | None = None) -> None:
        pending, self._pending = self._pending or loss is None, False
        if self._bound is None:
            if loss is not None:
                loss.backward()  # type: ignore[no-untyped-call]
        else:
            try:
                self._reduce(loss, pending)
            except RuntimeError as error:
                self._reraise(error)
        self.replica.clip()
        self.replica.update()

    def _reduce(self, loss: torch.Tensor | None, pending: bool) -> None:
        """Add the gradient of the last loss, and average all gradients over the workers."""
        roots = [] if loss is None else [loss]
        if pending:
            # Parameters that already have gradients may get none from this loss.
            roots.append(_TouchAll.apply(*self._trained))  # type: ignore[no-untyped-call]
        reducer = self._bound.reducer
        reducer._rebuild_buckets()
        reducer.prepare_for_forward()
        reducer.prepare_for_backward(roots if self._unused else [])
        torch.autograd.backward(roots)
        group = self._group
        assert group is not None
        group.wait()
        if self._buffers:
            self._send(group, self._buffers)

    def _send(self, group: WorkerGroup, tensors: list[torch.Tensor]) -> None:
        """Let all workers have these tensors of the first one; each is changed whole or not."""
        if self.replica.device.type == "cuda":
            dist._broadcast_coalesced(group.process_group, tensors, _MOST_BUFFER, 0)
            return
        for parts in _messages(tensors):
            flat = torch.cat([part.reshape(-1) for part in parts])
            group.begin(group.process_group.broadcast(flat, 0))
            group.wait()
            sizes = [part.numel() for part in parts]
            for own, given in zip(parts, torch.split(flat, sizes), strict=True):
                own.copy_(given.view_as(own))

    def serve(self) -> None:
        raise AssertionError("a group of workers has no servers")

    def _reraise(self, error: RuntimeError) -> NoReturn:
        """Raise PeerLost if other workers are lost, and the error itself if the script is wrong."""
        if self.size == 1 or not is_loss(error):
            raise error
        raise PeerLost(first_line(error)) from None


def _begin(group: WorkerGroup, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations
    """Begin to average a bucket of gradients; its future is done, as it is waited for later."""
    gradients = bucket.buffer()
    gradients.mul_(1.0 / group.size)
    group.begin(group.process_group.allreduce([gradients]))
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(gradients)
    return done


def _messages(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """The same tensors in messages of one type each, none much larger than it need be."""
    found: list[list[torch.Tensor]] = []
    present: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        parts = present.get(tensor.dtype)
        if parts is None or sum(p.numel() for p in parts) + tensor.numel() > _MOST_ELEMENTS:
            parts = present[tensor.dtype] = []
            found.append(parts)
        parts.append(tensor)
    return found


class _TouchAll(torch.autograd.Function):
    """Involves every parameter in a backward, and adds nothing to its gradient."""

    @staticmethod
    def forward(ctx: Any, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.many = len(parameters)
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[None, ...]:
        return (None,) * int(ctx.many)


def warm_up() -> None:
    """Make two steps with a tiny model in a group of one, before the first real group.

    What torch imports and sets up in the first steps takes seconds; here no member waits for it.
    """
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    store = dist.HashStore()
    options, _, _ = gloo_options("127.0.0.1", 10.0)
    backend = dist.ProcessGroupGloo(store, 0, 1, options)
    group = group_of(store, 0, 1, backend, "gloo", torch.device("cpu"))
    bound = DistributedDataParallel(model, process_group=group, init_sync=False)
    for _ in range(2):
        touched = _TouchAll.apply(*model.parameters())  # type: ignore[no-untyped-call]
        torch.autograd.backward([bound(torch.zeros(1, 1)).sum(), touched])
        optimizer.step()
        optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
    dispose(group)
