"""Gradients that meet among the workers: torch's DistributedDataParallel on a changing group.

They meet once per step, in `update`, however often `backward` was called before: there, and only
there, the hooks of DistributedDataParallel are armed. So its communication still overlaps with
the last backward, and workers need not call `backward` equally often.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rota.elastic.exchange import Lost
from rota.elastic.group import Circle, dispose, dist, first_line, gloo_options, group_of, is_loss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.elastic.protocol import Limits
    from rota.elastic.replica import Replica
    from rota.elastic.transfer import Door

_MOST_BUFFER: Final = 1 << 28
"""Bytes of the model's buffers that are sent at a time."""


class AllReduce:
    """The present group of workers, and the model bound to it."""

    serves = False
    shards: Mapping[str, tuple[int, ...]] = MappingProxyType({})

    def __init__(
        self, replica: Replica, name: str = "", door: Door | None = None, *, unused: bool
    ) -> None:
        self.replica, self._name, self._door, self._unused = replica, name, door, unused
        self.rank, self.size, self.parking = 0, 1, False
        self._circle: Circle | None = None
        self._bound: Any = None
        self._pending = False  # there are gradients that have not met

    def connect(self, number: int, members: list[dict[str, Any]], limits: Limits) -> Circle:
        """Form a group beside the present one; in any thread."""
        return Circle(
            self._door,
            number,
            self._name,
            members,
            device=self.replica.device,
            connect_s=limits.connect_s * 0.75,
            step_s=limits.stall_s,
        )

    def adopt(self, circle: Circle, order: dict[str, Any]) -> None:
        """Train in this group from now on; the former one has been left."""
        del order
        self._circle, self.rank, self.size = circle, circle.rank, circle.size
        if circle.size > 1:
            # All have the same state already, so nothing is to be sent.
            self._bound = DistributedDataParallel(
                self.replica.model,
                process_group=circle.group,
                init_sync=False,
                find_unused_parameters=self._unused,
            )
            self._reached = [p for p in self.replica.model.parameters() if p.requires_grad]
            self._buffers = list(self.replica.model.buffers())

    def catch_up(self, at: int) -> None:
        """Nothing to do: who is behind gets the state of one who is not."""

    def leave(self, *, lost: bool = False) -> None:
        """Train in no group; who has lost the others lets them know at once."""
        self._bound, self._pending, self.parking = None, False, False
        circle, self._circle = self._circle, None
        if circle is not None:
            circle.close(lost=lost)

    def cut(self) -> None:
        """Let whatever waits for the others fail at once; in any thread."""
        circle = self._circle
        if circle is not None:
            circle.cut()

    def weight(self, samples: int, total: int) -> float:
        """What a mean over some samples counts for; the group takes the mean over its members."""
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
                self._meet(loss, pending)
            except RuntimeError as error:
                self._explain(error)
        self.replica.clip()
        self.replica.update()

    def _meet(self, loss: torch.Tensor | None, pending: bool) -> None:
        """Add the gradient of the last loss, and let all become the mean over the workers."""
        roots = [] if loss is None else [loss]
        if pending:
            # Some parameters may have their gradients already, and none from this loss.
            roots.append(_Reach.apply(*self._reached))  # type: ignore[no-untyped-call]
        reducer = self._bound.reducer
        reducer._rebuild_buckets()
        reducer.prepare_for_forward()
        reducer.prepare_for_backward(roots if self._unused else [])
        torch.autograd.backward(roots)
        if self._buffers:
            assert self._circle is not None
            dist._broadcast_coalesced(self._circle.group, self._buffers, _MOST_BUFFER, 0)

    def serve(self) -> None:
        raise AssertionError("a group of workers has no servers")

    def _explain(self, error: RuntimeError) -> NoReturn:
        """Tell that others are lost from what the script has done wrong."""
        if self.size == 1 or not is_loss(error):
            raise error
        raise Lost(first_line(error)) from None


class _Reach(torch.autograd.Function):
    """Reaches every parameter in a backward, and adds nothing to its gradient."""

    @staticmethod
    def forward(ctx: Any, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.many = len(parameters)
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[None, ...]:
        return (None,) * int(ctx.many)


def warm_up() -> None:
    """Do once, on next to nothing, all that the first steps in a group will do.

    What torch imports and sets up late takes seconds; here nobody waits for it.
    """
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    store = dist.HashStore()
    options, _, _ = gloo_options("127.0.0.1", 10.0)
    backend = dist.ProcessGroupGloo(store, 0, 1, options)
    group = group_of(store, 0, 1, backend, "gloo", torch.device("cpu"))
    bound = DistributedDataParallel(model, process_group=group, init_sync=False)
    for _ in range(2):
        reach = _Reach.apply(*model.parameters())  # type: ignore[no-untyped-call]
        torch.autograd.backward([bound(torch.zeros(1, 1)).sum(), reach])
        optimizer.step()
        optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
    dispose(group)
