"""What a training script uses to let its workers join and leave.

with Elastic(model, optimizer, samples=len(data), batch=256, epochs=10) as run:
    for batch in run:
        inputs, targets = data[batch.indices]
        loss = cross_entropy(run.model(inputs), targets)
        run.step(loss)
"""

from __future__ import annotations

import os
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn

from rota.elastic.agent_link import MemberIdentity
from rota.elastic.batches import Batches, ShareSampler
from rota.elastic.exchange import PeerLost
from rota.elastic.exchange_allreduce import AllReduceExchange, warm_up
from rota.elastic.membership import Membership
from rota.elastic.parking import ENV_RESUME, resume
from rota.elastic.replica import Replica
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from rota.elastic.agent_link import AgentLink
    from rota.elastic.batches import Batch
    from rota.elastic.exchange import Exchange
    from rota.elastic.growing import Grower


class Elastic:
    """A training whose workers may join and leave while it runs.

    Without an agent (no ROTA_AGENT in the environment) the script trains alone. A loss is the mean
    over the worker's share of the batch; shares of different sizes are weighted correctly.
    `samples`, `batch`, `epochs`, `seed`, `shuffle` and `rule` say which samples a step takes, see
    `rota.elastic.batches.Batches`. `scheduler` is stepped after every step, `clip_norm` limits the
    norm of the gradient over all workers. `carry` names other objects with a `state_dict` that new
    workers receive. The workers compare their parameters every `check_every` steps, and more often
    in the beginning. `grow` is asked after every resize whether the network shall grow, too, see
    `rota.elastic.growing.Grower`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        samples: int,
        batch: int,
        epochs: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        rule: str = "constant",
        scheduler: LRScheduler | None = None,
        carry: Mapping[str, Any] | None = None,
        clip_norm: float | None = None,
        unused_parameters: bool = False,
        check_every: int = 1000,
        grow: Grower | None = None,
    ) -> None:
        if not (isinstance(check_every, int) and check_every > 0):
            raise ConfigError(f"check_every={check_every!r} is not a whole number above 0.")
        batches = Batches(
            samples=samples, batch=batch, epochs=epochs, seed=seed, shuffle=shuffle, rule=rule
        )
        self._replica = Replica(model, optimizer, batches, scheduler, carry or {}, clip_norm, grow)
        self._cuda = self._replica.device.type == "cuda"
        self._sampler, self._check_every = ShareSampler(batches), check_every
        self._identity = MemberIdentity.of(os.environ)
        self._member: Membership | None = None
        self._unused = unused_parameters
        self._exchange: Exchange = AllReduceExchange(self._replica, unused=unused_parameters)
        # Its `phase` is sent with every heartbeat.
        self._doing: AgentLink | SimpleNamespace = SimpleNamespace(phase="work")
        self._batch: Batch | None = None
        self._counted = 0  # samples of the batch that backward() was told of
        self._lost: PeerLost | None = None
        self._lost_s = 0.0
        self.model = _Front(model)
        """The model to call in the loop, whatever the present group is."""

    @property
    def rank(self) -> int:
        """Rank of this worker in the present group; it may change after any step."""
        return self._exchange.rank

    @property
    def size(self) -> int:
        """Number of workers in the present group."""
        return self._exchange.size

    @property
    def steps(self) -> int:
        """Steps done since the training began, also before this worker joined."""
        return self._replica.position.step

    @property
    def generation(self) -> int:
        """Number of the present group; every change increases it."""
        return self._member.number if self._member else 0

    @property
    def growths(self) -> tuple[Mapping[str, Any], ...]:
        """Growths that the network has had since the script built it, in order."""
        return self._replica.growths

    @property
    def leaving(self) -> bool:
        """Whether this worker leaves before the training ends."""
        return self._released() and not self._replica.batches.over(self._replica.position)

    def __enter__(self) -> Self:
        if self._identity is None:
            self._replica.scale_for(1)
        else:
            if folder := os.environ.get(ENV_RESUME):
                resume(self._replica, folder)
            self._member = Membership(self._identity, self._replica, unused=self._unused)
            self._exchange, self._doing = self._member.exchange, self._member.link
            warm_up()
            self._member.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        member = self._member
        if member is None:
            return
        if error is not None:
            member.fail(f"{type(error).__name__}: {str(error)[:300]}")
        elif not member.released:
            member.finish()  # the script has left its loop early
        member.close()

    def __iter__(self) -> Iterator[Batch]:
        if self._identity is not None and self._member is None:
            raise ConfigError("Use Elastic in a `with` statement: with Elastic(…) as run: …")
        while not self._released():
            position = self._replica.position
            if self._replica.batches.over(position):
                if self._member is None:
                    return
                self._member.finish()
                continue
            if self._exchange.serves:
                self._serve()
                continue
            batch = self._sampler.share(position, self._exchange.rank, self._exchange.size)
            self._batch, self._counted = batch, 0
            self._seed(batch.seed)
            yield batch
            if self._batch is batch:
                raise ConfigError(
                    f"The loop did not call step() for step {batch.step}; call run.step(loss) "
                    "once for every batch."
                )

    def backward(self, loss: torch.Tensor, samples: int | None = None) -> None:
        """Add the gradient of a loss that is the mean over `samples` samples of the share.

        Without `samples` it counts for the whole share. Gradients are combined only in `step()`, so
        each worker may call this any number of times.
        """
        self._exchange.backward(self._weighted(loss, samples))

    def step(self, loss: torch.Tensor | None = None, samples: int | None = None) -> bool:
        """Complete the step; False if it does not count and its samples will come again.

        It does not count when a worker was lost meanwhile. Workers join and leave in this call. A
        loss is added as by `backward`, but faster.
        """
        self._present()
        self._try(self._exchange.update, None if loss is None else self._weighted(loss, samples))
        self._replica.zero_grad()
        self._batch, self._counted = None, 0
        return self._complete()

    def _weighted(self, loss: torch.Tensor, samples: int | None) -> torch.Tensor:
        """A mean over some samples, weighted for the mean over the samples of all workers."""
        batch = self._present()
        many = batch.share if samples is None else min(samples, batch.share)
        if samples is not None:
            self._counted += samples
            if samples < 0 or self._counted > batch.indices.size:
                raise ConfigError(
                    f"backward() was told of {self._counted} samples in step {batch.step}, but "
                    f"this worker has {batch.indices.size}; each counts once."
                )
        weight = self._exchange.weight(many, batch.total)
        return loss if weight == 1.0 else loss * weight

    def _serve(self) -> None:
        """Make one step as a parameter server."""
        self._try(self._exchange.serve)
        self._complete()

    def _complete(self) -> bool:
        """Count the step, or wait for a new group to repeat it; join and leave if it is time."""
        member, replica = self._member, self._replica
        if self._lost is None:
            replica.position = replica.batches.after(replica.position, self._exchange.size)
            if member is not None:
                member.stepped(_is_checked(replica.position.step, self._check_every))
            return True
        lost, self._lost = self._lost, None
        assert member is not None
        member.lost(str(lost), self._lost_s)
        return False

    def _try(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a call that waits for other members; if they are lost, the step does not count."""
        doing = self._doing
        doing.phase = "meet"
        try:
            return call(*args, **kwargs)
        except PeerLost as lost:
            self._lost, self._lost_s = lost, perf_counter()
        finally:
            doing.phase = "work"

    def _seed(self, seed: int) -> None:
        """Seed torch, so that a repeated step draws the same numbers."""
        # torch.manual_seed() records the call stack for unused devices, which takes a millisecond.
        torch.default_generator.manual_seed(seed)
        if self._cuda:
            torch.cuda.manual_seed(seed)

    def _present(self) -> Batch:
        if self._batch is None:
            raise ConfigError("step() and backward() belong into the loop: for batch in run: …")
        return self._batch

    def _released(self) -> bool:
        return self._member is not None and self._member.released


class _Front(nn.Module):
    """The model as the script calls it, in any group."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.module = model
        self.forward = model.__call__


def _is_checked(step: int, every: int) -> bool:
    """Whether parameters are compared after a step: often at first, to find errors early."""
    return step % every == 0 or step & (step - 1) == 0
