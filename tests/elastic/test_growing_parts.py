"""What a growth may do to one member's network, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from growers import ScriptedGrower
from torch import nn

from rota.elastic import Elastic
from rota.elastic.batches import Batches
from rota.elastic.growing import Resized
from rota.elastic.growths import MOST_GROWTHS, Growths
from rota.elastic.inbox import Inbox
from rota.elastic.messages import check_message, read_hello
from rota.elastic.outline import Outline
from rota.elastic.parking import Parking, resume
from rota.elastic.replica import Replica
from rota.elastic.worker_group import WorkerGroup
from rota.errors import ConfigError, GrowthError, JobError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

DEEPEN = {"do": "deepen", "version": 0}
WIDEN = {"do": "widen", "version": 1}
FACTS = Resized(
    workers_before=1,
    workers=2,
    step=3,
    epoch=0,
    samples=9,
    total=90,
    per_epoch=30,
    busy_s=1.0,
    samples_per_s=9.0,
    growths=(),
)


def replica(grower: Any = None, **settings: Any) -> Replica:
    """A training that has made three steps, if it may grow."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    plan = Batches(samples=9, batch=3, rule="linear")
    made = Replica(model, optimizer, plan, scheduler, {}, 1.0, grower, **settings)
    for _ in range(3):
        train(made)
    return made


def train(made: Replica) -> float:
    loss = made.model(torch.arange(15.0).reshape(5, 3).sin()).square().sum()
    loss.backward()
    made.clip()
    made.update()
    made.zero_grad()
    return float(loss.detach())


@dataclass
class Misuse:
    """Makes whatever change it is given."""

    change: Callable[[Any, Any], object]

    def propose(self, *_: object) -> dict[str, Any]:
        return {"do": "misuse"}

    def apply(self, model: Any, optimizer: Any, growth: Mapping[str, Any], **_: object) -> None:
        del growth
        self.change(model, optimizer)


def write(model: Any, _: Any) -> None:
    with torch.no_grad():
        model[0].weight += 1.0


def write_moments(model: Any, optimizer: Any) -> None:
    optimizer.state[model[0].weight]["exp_avg"].zero_()


def forget(model: Any, _: Any) -> None:
    model.append(nn.Linear(2, 2))


def orphan(model: Any, _: Any) -> None:
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())


def add_group(model: Any, optimizer: Any) -> None:
    model.append(nn.Linear(2, 2))
    optimizer.add_param_group({"params": model[-1].parameters()})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (write, "writes into 1 parameters or moments"),
        (write_moments, "writes into 1 parameters or moments"),
        (forget, "adds 2 parameters that the optimizer lacks"),
        (orphan, "leaves 1 parameters with the optimizer that are not the model's"),
        (add_group, "changes the number of the optimizer's parameter groups"),
        (lambda model, _: model.pop(7), "IndexError"),
    ],
)
def test_a_growth_that_breaks_the_rules_is_refused_on_a_copy(
    change: Callable[[Any, Any], object], error: str
) -> None:
    made = replica(Misuse(change))
    before, names = made.checksum(), [name for name, _ in made.model.named_parameters()]
    with pytest.raises(GrowthError, match=error):
        made.network.propose(FACTS)
    assert made.checksum() == before
    with pytest.raises(GrowthError, match=error):
        made.grow_to([{"do": "misuse"}], structure_only=False)
    assert [name for name, _ in made.model.named_parameters()] == names
    assert made.growths == ()
    train(made)


def test_a_growth_is_tried_on_a_copy_and_random_numbers_stay_as_they_were() -> None:
    made = replica(ScriptedGrower())
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    before = made.checksum()
    assert made.network.propose(FACTS) == DEEPEN
    assert (made.checksum(), made.growths) == (before, ())
    made.grow_to([DEEPEN], structure_only=False)
    assert torch.equal(torch.rand(3), expected)


def test_a_network_that_took_a_growth_back_trains_as_if_it_had_never_grown() -> None:
    made, other = replica(ScriptedGrower()), replica()
    made.grow_to([DEEPEN, WIDEN], structure_only=False)
    assert made.rewind([])
    assert made.checksum() == other.checksum()
    assert [train(made) for _ in range(5)] == [train(other) for _ in range(5)]
    assert made.checksum() == other.checksum()


def test_a_growth_that_fails_half_way_leaves_the_growths_before_it_undone_too() -> None:
    made = replica(ScriptedGrower())
    before = made.checksum()
    with pytest.raises(GrowthError, match="No layer is called 'twist'"):
        made.grow_to([DEEPEN, {"do": "twist", "version": 1}], structure_only=False)
    assert (made.checksum(), made.growths) == (before, ())
    train(made)


def test_a_growth_that_was_trained_is_not_taken_back() -> None:
    made = replica(ScriptedGrower())
    made.grow_to([DEEPEN], structure_only=False)
    made.network.keep()
    assert made.rewind([DEEPEN])
    assert not made.rewind([])
    with pytest.raises(GrowthError, match="has 1 growths, which the 0 of the other members"):
        made.grow_to([], structure_only=False)


def test_values_that_came_from_another_member_are_lost_with_a_growth_taken_back() -> None:
    made = replica(ScriptedGrower())
    made.grow_to([DEEPEN], structure_only=True)
    made.network.received()
    assert not made.rewind([])
    assert made.growths == ()


def test_a_grown_state_fits_a_network_with_the_same_structure() -> None:
    giver, taker = replica(ScriptedGrower()), replica(ScriptedGrower())
    for made, structure_only in ((giver, False), (taker, True)):
        made.grow_to([DEEPEN, WIDEN], structure_only=structure_only)
    assert giver.checksum() != taker.checksum()
    taker.load(giver.extract(None), None, with_position=True)
    assert giver.checksum() == taker.checksum()
    assert giver.outline() == taker.outline()
    giver.outline().check("new", replica(ScriptedGrower()).outline(), "old")
    giver.scale_for(4)
    assert giver.optimizer.param_groups[0]["lr"] == pytest.approx(0.4)


def test_what_cannot_follow_a_growing_network_is_refused() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(ConfigError, match=r"grow=3 has no propose\(\)"):
        Elastic(model, optimizer, samples=1, batch=1, grow=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"carry\['ema'\] is a module, whose form does not"):
        Elastic(
            model, optimizer, samples=1, batch=1, grow=ScriptedGrower(), carry={"ema": nn.ReLU()}
        )


def test_a_parked_network_is_resumed_with_its_growths_or_not_at_all(tmp_path: Path) -> None:
    made = replica(ScriptedGrower())
    made.grow_to([DEEPEN, WIDEN], structure_only=False)
    train(made)
    Parking(str(tmp_path), "token", 0.0).park(made, "", {})
    again = replica(ScriptedGrower())
    resume(again, str(tmp_path))
    assert (again.growths, again.checksum()) == ((DEEPEN, WIDEN), made.checksum())
    with pytest.raises(JobError, match="the script gives Elastic no `grow`"):
        resume(replica(), str(tmp_path))
    manifest = tmp_path / "parked.json"
    whole = manifest.read_text()
    for damaged in ('"do": 3', '"do": "twist"'):
        manifest.write_text(whole.replace('"do": "deepen"', damaged))
        with pytest.raises(JobError, match="cannot be resumed: No layer is called"):
            resume(replica(ScriptedGrower()), str(tmp_path))
    manifest.write_text(whole.replace('"growths": [', '"growths": [7, '))
    with pytest.raises(JobError, match="is not a state of this training: 7 is not a growth"):
        resume(replica(ScriptedGrower()), str(tmp_path))


@pytest.mark.parametrize(
    "growth", [3, [], {}, {"a": object()}, {"a": float("nan")}, {"a": "x" * 5000}]
)
def test_a_message_with_an_impossible_growth_is_refused(growth: Any) -> None:
    with pytest.raises(ConfigError, match="is not a growth"):
        check_message({"op": "grow", "number": 1, "version": 0, "growth": growth})
    check_message({"op": "grow", "number": 1, "version": 0, "growth": None, "error": None})
    card = {"host": "h", "state_port": 1}
    outline = {"sizes": [1], "form": "", "plan": {"samples": 1, "epochs": 1}, "growths": [growth]}
    with pytest.raises(ConfigError, match="is not a growth"):
        read_hello({"name": "a", "card": card, "outline": outline})


class LateWork:
    """A call that is done right after a look at it is over, well or not."""

    def __init__(self, error: str) -> None:
        self.error, self.looks = error, 0

    def wait(self, *_: object) -> None:
        self.looks += 1
        if self.looks == 1 or self.error:
            raise RuntimeError(self.error if self.looks > 1 else "Operation timed out!")

    def is_completed(self) -> bool:
        return True


@pytest.mark.parametrize("error", ["", "gloo: closed by peer"])
def test_a_call_that_is_done_right_after_a_look_has_not_failed(error: str) -> None:
    group = WorkerGroup(
        None, 1, "a", [{"name": "a"}], device=torch.device("cpu"), connect_s=1.0, step_s=1.0
    )
    work = LateWork(error)
    group.begin(work)
    if error:
        with pytest.raises(RuntimeError, match=error):
            group.wait()
    else:
        group.wait()
    assert work.looks == 2


def test_a_network_does_not_grow_without_end() -> None:
    growths = Growths()
    made = tuple({"id": k} for k in range(MOST_GROWTHS))
    plan = {"samples": 1, "epochs": 1, "grow": True}
    growths.learn(Outline((1,), "", plan, made), "allreduce")
    growths.resized(1)
    assert growths.ask(4, 2) == {"number": 4, "before": 1, "workers": 2}
    growths.propose({"number": 4, "version": MOST_GROWTHS, "growth": {"id": -1}})
    assert growths.take() is None
    assert growths.trouble == f"The network has grown {MOST_GROWTHS} times, and can grow no more."


def test_a_worker_is_asked_between_two_steps_and_not_while_it_waits() -> None:
    inbox = Inbox()
    inbox.parked, inbox.step = False, 5
    inbox.take({"op": "ask", "number": 2})
    assert inbox.due()
    event = inbox.event()
    assert event is not None
    assert (event.do, event.facts["number"]) == ("ask", 2)
    assert not inbox.due()
    inbox.take({"op": "ask", "number": 3})
    inbox.take({"op": "switch", "number": 4, "at": 7})  # the group changes: the question is over
    assert not inbox.due()
    inbox.take({"op": "ask", "number": 4})
    inbox.take({"op": "break", "number": 5})
    event = inbox.event()
    assert event is not None
    assert event.do == "break"
    assert inbox.event() is None
