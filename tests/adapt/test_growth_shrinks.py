"""Back from a grown network to a smaller one: weights that fit, and distillation."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from growing_networks import Branching, Convolutions, Residual, digits_like
from torch import nn

from rota.adapt.growth import Growth
from rota.adapt.operations import grow, replay
from rota.adapt.shrink import distil, shrink
from rota.errors import GrowthError


@pytest.mark.parametrize(
    ("kind", "growths"),
    [
        (Convolutions, ["widen features.0", "deepen features.3", "widen grown.2.layer"]),
        (Residual, ["widen stem", "deepen blocks.0.conv1", "widen blocks.1.conv1"]),
        (Branching, ["widen left.0", "deepen both", "widen both"]),
    ],
)
def test_shrinking_takes_back_untrained_growths(kind: type[nn.Module], growths: list[str]) -> None:
    torch.manual_seed(0)
    network = kind([4, 3], "batch", nn.ReLU, True)
    x, _ = digits_like(0, network.sample)
    network(x)  # statistics of norms that are not those of the beginning
    before = copy.deepcopy(network)
    for seed, growth in enumerate(growths):
        grow(network, Growth(*growth.split(), factor=1.5), x, seed=seed)
    small = kind([4, 3], "batch", nn.ReLU, True)

    shrink(network, small, batch=x)

    for name, value in before.state_dict().items():
        torch.testing.assert_close(small.state_dict()[name], value)
    with torch.no_grad():
        torch.testing.assert_close(small.eval()(x), before.eval()(x))


def test_replicas_that_learned_apart_become_their_mean_and_are_read_together() -> None:
    grown = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
    small = copy.deepcopy(grown)
    grow(grown, Growth("widen", "0"), torch.ones(2, 1), seed=0)
    with torch.no_grad():
        grown[0].weight.copy_(torch.tensor([[1.0], [3.0]]))
        grown[2].weight.copy_(torch.tensor([[0.5, 0.25]]))

    shrink(grown, small)

    assert (small[0].weight.item(), small[2].weight.item()) == (2.0, 0.75)


def test_shrinking_to_what_it_never_was_is_refused() -> None:
    x = torch.randn(4, 3)
    grown, other = (nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)) for _ in range(2))
    grow(grown, Growth("widen", "0"), x, seed=0)
    grow(other, Growth("deepen", "0"), x, seed=0)
    with pytest.raises(GrowthError, match="has grown by deepen 0, which is not how the other"):
        shrink(grown, other)
    wider = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(GrowthError, match=r"0\.weight of the grown network is not what"):
        shrink(grown, wider)
    replay(wider, [])


def test_a_student_learns_what_only_its_teacher_says() -> None:
    torch.manual_seed(1)
    student, teacher = nn.Linear(4, 3), nn.Linear(4, 3)
    x = torch.randn(64, 4)
    wrong = torch.zeros(64, dtype=torch.long)  # weighs nothing here
    optimizer = torch.optim.Adam(student.parameters(), 0.05)
    teacher.train()

    losses = distil(student, teacher, [(x, wrong)], optimizer, steps=150, soft_weight=1.0)

    assert len(losses) == 150
    with torch.no_grad():
        apart = F.softmax(student(x), 1) - F.softmax(teacher(x), 1)
    assert float(apart.abs().max()) < 0.02
    assert teacher.training
    assert all(p.grad is None for p in teacher.parameters())


def test_without_weight_of_the_teacher_distilling_is_plain_training() -> None:
    torch.manual_seed(2)
    student = nn.Linear(4, 3)
    plain, x, y = copy.deepcopy(student), torch.randn(8, 4), torch.arange(8) % 3
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    distil(student, nn.Linear(4, 3), [(x, y)], optimizer, steps=1, soft_weight=0.0)
    F.cross_entropy(plain(x), y).backward()
    torch.testing.assert_close(student.weight, plain.weight - 0.1 * plain.weight.grad)


def test_bad_lessons_are_refused() -> None:
    student, teacher = nn.Linear(4, 3), nn.Linear(4, 2)
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    batch = (torch.randn(2, 4), torch.zeros(2, dtype=torch.long))
    with pytest.raises(GrowthError, match="its own teacher"):
        distil(student, student, [batch], optimizer, steps=1)
    with pytest.raises(GrowthError, match=r"answers \(2, 3\) numbers where its teacher"):
        distil(student, teacher, [batch], optimizer, steps=1)
    with pytest.raises(GrowthError, match="no batches"):
        distil(student, teacher, [], optimizer, steps=1)
    with pytest.raises(GrowthError, match="temperature=0"):
        distil(student, teacher, [batch], optimizer, steps=1, temperature=0)
