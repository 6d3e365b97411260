"""The grower of a running training: what its agent is shown, and what it makes of the answer."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from rota.adapt.growth import Growth
from rota.adapt.live import Grow
from rota.elastic.growing import GrowingNetwork, Resized
from rota.errors import ConfigError, GrowthError

if TYPE_CHECKING:
    from rota.adapt.moment import Moment

FACTS = Resized(
    workers_before=2,
    workers=4,
    step=100,
    epoch=10,
    samples=1000,
    total=3000,
    per_epoch=100,
    busy_s=50.0,
    samples_per_s=20.0,
    growths=(),
)


@dataclass
class Scripted:
    """An agent that remembers what it was shown."""

    answer: int = 0
    shown: list[Moment] = field(default_factory=list)

    def choose(self, moment: Moment) -> int:
        self.shown.append(moment)
        return self.answer


def network() -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    batch = torch.randn(32, 6)
    for _ in range(3):
        model(batch).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer, batch


def test_an_agent_is_shown_what_an_epoch_takes_with_the_workers_of_now() -> None:
    model, optimizer, batch = network()
    agent = Scripted()
    grow = Grow(batch, agent)
    growth = grow.propose(FACTS, model, optimizer)
    (moment,) = agent.shown
    # 100 samples at 20 per second, on twice as many workers; 20 epochs are left.
    assert (moment.epoch_s, moment.left_s, moment.total_s) == (2.5, 50.0, 100.0)
    assert (moment.gpus_before, moment.gpus, moment.learning_rate) == (2, 4, 0.01)
    assert math.isnan(moment.accuracy)
    assert moment.choices[-1].growth is None
    assert moment.choices[-1].epoch_s == 2.5
    assert growth == moment.choices[0].growth.facts()  # type: ignore[union-attr]
    for choice in moment.choices[:-1]:
        assert choice.growth is not None
        assert moment.layers[choice.layer].name == choice.growth.layer
        assert choice.epoch_s > 2.5
        assert choice.parameters > moment.choices[-1].parameters


def test_an_agent_is_shown_the_deadline_and_what_the_script_has_told() -> None:
    model, optimizer, batch = network()
    agent = Scripted()
    grow = Grow(batch, agent, deadline_s=60.0)
    for accuracy in (0.1, 0.5, 0.6, 0.7, 0.8):
        grow.note(accuracy, 2.0)
    grow.propose(FACTS, model, optimizer)
    (moment,) = agent.shown
    assert (moment.total_s, moment.left_s, moment.loss) == (60.0, 10.0, 2.0)
    assert (moment.accuracy, moment.slope) == (0.8, pytest.approx(0.1))
    grow.propose(replace(FACTS, busy_s=99.0), model, optimizer)
    assert agent.shown[-1].left_s == 0.0


def test_an_agent_is_not_asked_before_the_speed_is_known() -> None:
    model, optimizer, batch = network()
    agent = Scripted()
    early = replace(FACTS, samples=0, samples_per_s=0.0, busy_s=0.0)
    assert Grow(batch, agent).propose(early, model, optimizer) is None
    assert agent.shown == []


def test_an_agent_that_answers_nothing_or_nonsense_grows_nothing() -> None:
    model, optimizer, batch = network()
    many = len(Grow(batch, Scripted()).moment(FACTS, model, optimizer).choices)  # type: ignore[union-attr]
    assert Grow(batch, Scripted(many - 1)).propose(FACTS, model, optimizer) is None
    for answer in (-1, many):
        with pytest.raises(GrowthError, match=f"took choice {answer}, but there are {many}"):
            Grow(batch, Scripted(answer)).propose(FACTS, model, optimizer)


def test_a_list_of_growths_is_made_one_after_the_other() -> None:
    model, optimizer, batch = network()
    listed = [Growth("deepen", "0"), Growth("widen", "3")]
    grow = Grow(batch, listed)
    other, other_optimizer, _ = network()
    whole = GrowingNetwork(model, optimizer, grow, seed=3)
    bare = GrowingNetwork(other, other_optimizer, grow, seed=3)
    model.eval()
    before = model(batch)
    for _ in range(3):
        growth = grow.propose(replace(FACTS, growths=whole.growths), model, optimizer)
        if growth is not None:
            whole.reach([*whole.growths, growth], structure_only=False)
    assert list(whole.growths) == [growth.facts() for growth in listed]
    torch.testing.assert_close(model(batch), before, atol=1e-5, rtol=0)
    # Who joins later builds the same form, into which the values fit.
    bare.reach(whole.growths, structure_only=True)
    other.load_state_dict(model.state_dict())
    other_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    torch.testing.assert_close(other.eval()(batch), model(batch))
    for network_, optimizer_ in ((model, optimizer), (other, other_optimizer)):
        network_.train()
        network_(batch).square().sum().backward()
        optimizer_.step()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("growth", [Growth("deepen", "0"), Growth("widen", "3")])
def test_a_growth_can_be_taken_back(growth: Growth) -> None:
    model, optimizer, batch = network()
    network_ = GrowingNetwork(model, optimizer, Grow(batch, [growth]), seed=3)
    names = [name for name, _ in model.named_parameters()]
    held = list(optimizer.param_groups[0]["params"])
    values = [p.detach().clone() for p in model.parameters()]
    moments = [optimizer.state[p]["exp_avg"].clone() for p in held]
    network_.reach([growth.facts()], structure_only=False)
    assert sum(p.numel() for p in model.parameters()) > sum(p.numel() for p in held)
    assert network_.rewind([])
    assert network_.growths == ()
    assert [name for name, _ in model.named_parameters()] == names
    assert all(map(torch.equal, model.parameters(), values))
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in held]
    assert all(
        torch.equal(optimizer.state[p]["exp_avg"], x) for p, x in zip(held, moments, strict=True)
    )
    model(batch).sum().backward()
    optimizer.step()
    # And another one can be made.
    optimizer.zero_grad()
    network_.reach([Growth("widen", "0").facts()], structure_only=False)


def test_an_unknown_layer_is_refused_by_name_before_anything_is_agreed() -> None:
    model, optimizer, batch = network()
    network_ = GrowingNetwork(model, optimizer, Grow(batch, [Growth("widen", "7")]), seed=3)
    with pytest.raises(GrowthError, match="has no layer '7'"):
        network_.propose(FACTS)
    assert network_.growths == ()


@pytest.mark.parametrize(
    ("agent", "settings", "error"),
    [
        (3, {}, "3 is no agent"),
        (["deepen 0"], {}, "'deepen 0' is no Growth"),
        ([], {"deadline_s": 0.0}, "deadline_s=0.0"),
        ([], {"factor": 1.0}, "factor=1.0"),
    ],
)
def test_settings_of_a_grower_that_make_no_sense_are_refused(
    agent: Any, settings: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        Grow(torch.zeros(2, 2), agent, **settings)


def test_without_another_agent_the_one_that_ships_decides() -> None:
    model, optimizer, batch = network()
    grow = Grow(batch)
    early = grow.propose(replace(FACTS, samples=300, busy_s=15.0), model, optimizer)

    assert early is not None  # a tiny network with most of its training ahead
    grow.apply(model, optimizer, early, structure_only=False, seed=0)
    assert model(batch).shape == (32, 3)
    # With a tenth of an epoch left no growth can pay.
    late = Grow(batch, deadline_s=50.25)
    assert late.propose(FACTS, model, optimizer) is None


def test_the_agent_that_ships_answers_for_networks_of_other_kinds() -> None:
    deep = nn.Sequential(
        *(layer for _ in range(9) for layer in (nn.Conv2d(3, 3, 3, padding=1), nn.GELU())),
        nn.Flatten(), nn.Linear(3 * 36, 7),
    )  # fmt: skip
    optimizer = torch.optim.SGD(deep.parameters(), lr=0.1)
    images = torch.randn(8, 3, 6, 6)
    grow = Grow(images)
    moment = grow.moment(FACTS, deep, optimizer)

    assert moment is not None
    assert len(moment.choices) == 10 + 9 + 1
    assert grow.agent is not None
    assert 0 <= grow.agent.choose(moment) < len(moment.choices)


@pytest.mark.parametrize("answer", [None, 1.5, "0", math.nan, 99])
def test_an_answer_that_is_no_choice_is_named(answer: Any) -> None:
    model, optimizer, batch = network()
    grower = Grow(batch, Scripted(answer))
    with pytest.raises(GrowthError, match=f"The agent took choice {answer!r}"):
        grower.propose(FACTS, model, optimizer)


@pytest.mark.parametrize(
    ("told", "message"),
    [((85.0, 0.1), "85 % is 0.85"), ((-0.1,), "between 0 and 1"), (("x",), "accuracy='x' must"),
     ((None,), "accuracy=None must"), ((0.5, "x"), "loss='x' must")],
)  # fmt: skip
def test_an_accuracy_that_is_no_share_is_refused(told: Any, message: str) -> None:
    grower = Grow(torch.zeros(4, 6), [])
    with pytest.raises(ConfigError, match=message):
        grower.note(*told)
    grower.note(torch.tensor(0.5), math.nan)  # type: ignore[arg-type]
    grower.note(math.nan)


def test_a_batch_that_cannot_be_one_is_refused_at_once() -> None:
    for batch, message in [
        (None, "this is None"),
        (torch.zeros(0, 6), "has no samples"),
        (torch.zeros(4, 6).numpy(), "this is array"),
    ]:
        with pytest.raises(GrowthError, match=message):
            Grow(batch, [])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="deadline_s='5' must be a number"):
        Grow(torch.zeros(4, 6), [], deadline_s="5")  # type: ignore[arg-type]
