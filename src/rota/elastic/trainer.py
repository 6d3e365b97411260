"""What a training script adds to let its workers come and go.

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

from rota.elastic.allreduce import AllReduce, warm_up
from rota.elastic.batches import Batches, Dealer
from rota.elastic.exchange import Lost
from rota.elastic.link import Seating
from rota.elastic.membership import Membership
from rota.elastic.parking import ENV_RESUME, resume
from rota.elastic.replica import Replica
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from rota.elastic.batches import Batch
    from rota.elastic.exchange import Exchange
    from rota.elastic.link import Link


class Elastic:
    """A training whose workers come and go.

    Without an agent (no ROTA_AGENT in the environment) the script trains alone. `loss` is the
    mean over the worker's share; that shares may differ in size is taken care of. `scheduler`
    is stepped after every step. `carry` names other things with a `state_dict` that newcomers
    shall receive. Every `check_every` steps the members compare their parameters.
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
        unused_parameters: bool = False,
        check_every: int = 1000,
    ) -> None:
        batches = Batches(
            samples=samples, batch=batch, epochs=epochs, seed=seed, shuffle=shuffle, rule=rule
        )
        self._replica = Replica(model, optimizer, batches, scheduler, carry or {})
        self._cuda = self._replica.device.type == "cuda"
        self._dealer, self._check_every = Dealer(batches), check_every
        self._seating = Seating.of(os.environ)
        self._member: Membership | None = None
        self._unused = unused_parameters
        self._exchange: Exchange = AllReduce(self._replica, unused=unused_parameters)
        self._doing: Link | SimpleNamespace = SimpleNamespace(phase="work")  # what the agent hears
        self._batch: Batch | None = None
        self._lost: Lost | None = None
        self._lost_s = 0.0
        self.model = _Front(self)
        """Call this one; it is the model as it trains in the present group."""

    @property
    def rank(self) -> int:
        """Number of this worker among the present ones; it may change after any step."""
        return self._exchange.rank

    @property
    def size(self) -> int:
        """Workers at present."""
        return self._exchange.size

    @property
    def steps(self) -> int:
        """Steps done since the training began, by whomever."""
        return self._replica.position.step

    @property
    def generation(self) -> int:
        """Number of the present group; every change raises it."""
        return self._member.number if self._member else 0

    @property
    def leaving(self) -> bool:
        """Whether this worker ends before the training does."""
        return self._released() and not self._replica.batches.over(self._replica.position)

    def __enter__(self) -> Self:
        if self._seating is None:
            self._replica.suit(1)
        else:
            if folder := os.environ.get(ENV_RESUME):
                resume(self._replica, folder)
            self._member = Membership(self._seating, self._replica, unused=self._unused)
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
        if self._seating is not None and self._member is None:
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
            batch = self._dealer.share(position, self._exchange.rank, self._exchange.size)
            self._batch = batch
            self._seed(batch.seed)
            yield batch
            if self._batch is batch:
                raise ConfigError(
                    f"The loop did not call step() for step {batch.step}; call run.step(loss) "
                    "once for every batch."
                )

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of a loss; `step(loss)` does it for you."""
        batch = self._present()
        weight = self._exchange.weight(batch.share, batch.total)
        if self._lost is None:
            self._try(self._exchange.backward, loss if weight == 1.0 else loss * weight)

    def step(self, loss: torch.Tensor | None = None) -> bool:
        """Complete the step; False if it does not count and its samples will come again.

        That is so when a worker was lost meanwhile. It is the place where workers come and go.
        """
        if loss is not None:
            self.backward(loss)
        else:
            self._present()
        if self._lost is None:
            self._try(self._exchange.update)
        self._replica.clear()
        self._batch = None
        return self._complete()

    def _serve(self) -> None:
        """A step of a member that keeps parameters."""
        self._try(self._exchange.serve)
        self._complete()

    def _complete(self) -> bool:
        """Count the step, or repeat it with those who are left; let workers come and go."""
        member, replica = self._member, self._replica
        if self._lost is None:
            replica.position = replica.batches.after(replica.position, self._exchange.size)
            if member is not None:
                member.stepped(replica.position.step % self._check_every == 0)
            return True
        lost, self._lost = self._lost, None
        assert member is not None
        member.lost(str(lost), self._lost_s)
        return False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What `run.model(…)` calls."""
        if torch.is_grad_enabled() and self._lost is None:
            found = self._try(self._exchange.forward, *args, **kwargs)
            if self._lost is None:
                return found
        # To evaluate, each by itself; or to let the script come to its step().
        return self._replica.model(*args, **kwargs)

    def _try(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do what needs the others; if they do not answer, the step is void."""
        doing = self._doing
        doing.phase = "meet"
        try:
            return call(*args, **kwargs)
        except Lost as lost:
            self._lost, self._lost_s = lost, perf_counter()
        finally:
            doing.phase = "work"

    def _seed(self, seed: int) -> None:
        """Draw the same in every repetition of a step."""
        # torch.manual_seed() notes the call stack for devices not in use: a millisecond.
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
    """The model as the script calls it, whatever group it trains in."""

    def __init__(self, run: Elastic) -> None:
        super().__init__()
        self.module = run._replica.model
        self.forward = run.forward
