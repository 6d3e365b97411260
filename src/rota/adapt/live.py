"""Growth of a running elastic training: the `grow` of `rota.elastic.Elastic`.

    grow = Grow(data[:64])  # or with an agent, or a list of growths to be made one by one
    with Elastic(model, optimizer, …, grow=grow) as run:

It has the form of `rota.elastic.growing.Grower`, and all workers of a training need the same one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final, Protocol

from rota.adapt.growth import Growth
from rota.adapt.moment import GrowthChoice, Moment
from rota.adapt.operations import candidates, costs, grow, layers_of, replay, tokens_of
from rota.adapt.running import arguments
from rota.adapt.shipped_agent import shipped_agent
from rota.errors import ConfigError, GrowthError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn
    from torch.optim import Optimizer

    from rota.adapt.growth_cases import Chooser
    from rota.adapt.running import Batch

_EPOCHS: Final = 3
"""Epochs over which the slope of the accuracy is taken."""


def _number(name: str, value: Any) -> float:
    """A number as a plain one, also where it is a tensor's only one."""
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError, RuntimeError):
        pass
    raise ConfigError(f"{name}={value!r:.40} must be a number.")


class ResizedJob(Protocol):
    """What `rota.elastic` says of a training whose workers have become more or fewer."""

    @property
    def workers_before(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def per_epoch(self) -> int: ...
    @property
    def busy_s(self) -> float: ...
    @property
    def samples_per_s(self) -> float: ...
    @property
    def growths(self) -> tuple[Mapping[str, Any], ...]: ...


class Grow:
    """Asks an agent after every resize, and makes the growths on which the job agrees."""

    def __init__(
        self,
        batch: Batch,
        agent: Chooser | Sequence[Growth] | None = None,
        *,
        deadline_s: float | None = None,
        factor: float = 2.0,
    ) -> None:
        """`batch` is what the network is called with: some samples, the same at all workers.

        `agent` decides; by default it is the one that rota ships. It may be a list of growths, of
        which each resize takes the next. `deadline_s` is how many seconds of training the job has
        in all; without it, those that it is going to need. `factor` is how many times as wide a
        layer becomes.
        """
        if deadline_s is not None and not 0.0 < _number("deadline_s", deadline_s) < math.inf:
            raise ConfigError(f"deadline_s={deadline_s!r} is not a number of seconds above 0.")
        Growth("widen", "any", factor)  # checks the factor
        arguments(batch)  # checks the batch
        self.agent: Chooser | None = None
        self.growths: Sequence[Growth] = ()
        if agent is None:
            self.agent = shipped_agent()
        elif isinstance(agent, Sequence):
            if foreign := next((x for x in agent if not isinstance(x, Growth)), None):
                raise ConfigError(f"{foreign!r} is no Growth.")
            self.growths = tuple(agent)
        elif callable(getattr(agent, "choose", None)):
            self.agent = agent
        else:
            raise ConfigError(
                f"{agent!r:.80} is no agent: give an object with choose(moment), or a list of "
                "growths."
            )
        self.batch, self.deadline_s, self.factor = batch, deadline_s, factor
        self._accuracies: list[float] = []
        self._loss = math.nan

    def note(self, accuracy: float, loss: float = math.nan) -> None:
        """Tell what an epoch has come to: its accuracy on the validation split, and its loss."""
        accuracy, loss = _number("accuracy", accuracy), _number("loss", loss)
        if accuracy < 0.0 or accuracy > 1.0:
            raise ConfigError(
                f"accuracy={accuracy} must be a share between 0 and 1, or NaN where it was not "
                "measured; 85 % is 0.85."
            )
        self._accuracies = [*self._accuracies, accuracy][-_EPOCHS - 1 :]
        self._loss = loss

    def propose(
        self, facts: ResizedJob, model: nn.Module, optimizer: Optimizer
    ) -> dict[str, Any] | None:
        """A growth to make now; None leaves the network as it is."""
        if self.agent is None:
            made = len(facts.growths)
            return self.growths[made].facts() if made < len(self.growths) else None
        moment = self.moment(facts, model, optimizer)
        if moment is None:
            return None
        choice = self.agent.choose(moment)
        if not (isinstance(choice, Integral) and 0 <= choice < len(moment.choices)):
            raise GrowthError(
                f"The agent took choice {choice!r:.40}, but there are {len(moment.choices)}, "
                "from 0 on."
            )
        growth = moment.choices[choice].growth
        return None if growth is None else growth.facts()

    def apply(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        growth: Mapping[str, Any],
        *,
        structure_only: bool,
        seed: int,
    ) -> None:
        """Make a growth in place, or raise and change nothing."""
        made = Growth.of(growth)
        if structure_only:
            replay(model, [made], batch=self.batch, optimizer=optimizer)
        else:
            grow(model, made, self.batch, seed=seed, optimizer=optimizer)
            if self.agent is not None:  # what it will be asked about, so that it answers at once
                candidates(model, self.batch, factor=self.factor)

    def moment(self, facts: ResizedJob, model: nn.Module, optimizer: Optimizer) -> Moment | None:
        """What the agent is shown; None if it is too early to know how long an epoch takes."""
        rate = facts.samples_per_s or facts.samples / max(facts.busy_s, 1e-9)
        if not rate:
            return None
        # As many samples per second more as there are workers more: the best that can be said
        # before the first steps with them.
        epoch_s = facts.per_epoch / rate * facts.workers_before / facts.workers
        left_s = (facts.total - facts.samples) / facts.per_epoch * epoch_s
        total_s = facts.busy_s + left_s
        if self.deadline_s is not None:
            total_s = self.deadline_s
            left_s = max(0.0, total_s - facts.busy_s)
        layers = layers_of(model, self.batch)
        growths = (*candidates(model, self.batch, factor=self.factor), None)
        places = {layer.name: k for k, layer in enumerate(layers)}
        now, *after = costs(model, self.batch, (None, *growths))
        choices = tuple(
            GrowthChoice(
                growth=growth,
                layer=-1 if growth is None else places[growth.layer],
                epoch_s=epoch_s * cost.flops / max(now.flops, 1.0),
                parameters=cost.parameters,
            )
            for growth, cost in zip(growths, after, strict=True)
            # What cannot be trained for an epoch only costs time.
            if growth is None or epoch_s * cost.flops <= left_s * max(now.flops, 1.0)
        )
        told = self._accuracies
        return Moment(
            layers=layers,
            tokens=tokens_of(model),
            choices=choices,
            left_s=left_s,
            total_s=total_s,
            epoch_s=epoch_s,
            gpus_before=facts.workers_before,
            gpus=facts.workers,
            accuracy=told[-1] if told else math.nan,
            slope=(told[-1] - told[0]) / (len(told) - 1) if len(told) > 1 else math.nan,
            loss=self._loss,
            learning_rate=float(optimizer.param_groups[0]["lr"]),
            step=0,
        )
