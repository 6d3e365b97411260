"""Forms of networks that growth could easily get wrong."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from rota.adapt.growth import Growth
from rota.adapt.operations import grow, history, layers_of, replay
from rota.adapt.replicas import Units, repeated
from rota.adapt.reshapes import reshaped

if TYPE_CHECKING:
    from torch import Tensor


class Mixed(nn.Module):
    """Dropout by hand, two outputs, a permutation, and a method of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 5)
        self.b = nn.Linear(5, 4)
        self.c = nn.Linear(3, 2)

    def forward(self, x: Tensor, scale: float = 2.0) -> dict[str, Tensor]:
        x = F.dropout(F.relu(self.a(x)), 0.5, training=self.training) * scale
        y = self.b(x)
        turned = self.c(y.permute(0, 2, 1).contiguous())
        return {"mean": y.mean(1), "turned": turned}

    def double(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return 2 * x


@torch.no_grad()
def kept(model: nn.Module, growth: Growth, *args: Any, **more: Any) -> None:
    """A growth changes no output in evaluation, for the batch and for another one."""
    other = tuple(a.flip(0) * 1.5 for a in args)
    model.eval()
    before = [model(*args), model(*other)]
    grow(model, growth, args, seed=3, **more)
    torch.testing.assert_close([model(*args), model(*other)], before, atol=1e-5, rtol=1e-5)


def test_dropout_by_hand_still_follows_the_mode() -> None:
    model, x = Mixed(), torch.randn(4, 3, 6)
    kept(model, Growth("widen", "a", 1.5), x)
    kept(model, Growth("deepen", "b"), x)
    model.train()
    assert not torch.equal(model(x)["mean"], model(x)["mean"])
    model.eval()
    assert torch.equal(model(x)["mean"], model(x)["mean"])
    assert torch.equal(model(x, scale=2.0)["mean"], model(x)["mean"])
    assert type(model) is Mixed
    assert model.double(torch.ones(1)).item() == 2


def test_layers_over_several_positions_are_counted_and_grow() -> None:
    model, x = Mixed(), torch.randn(4, 3, 6)
    assert [facts.positions for facts in layers_of(model, x)] == [3, 3, 4]
    assert layers_of(model, x)[0].flops == 3 * 30


@pytest.mark.parametrize(
    "middle",
    [
        [nn.LayerNorm([4, 3, 3]), nn.ReLU()],
        [nn.InstanceNorm2d(4, affine=True, track_running_stats=True), nn.GELU()],
        [nn.PReLU(4)],
        [nn.GroupNorm(2, 4), nn.PReLU()],
        [nn.BatchNorm2d(4, affine=False), nn.ReLU()],
        [nn.BatchNorm2d(4, track_running_stats=False), nn.ReLU()],
        [nn.BatchNorm2d(4, momentum=None), nn.ReLU6(inplace=True)],
        [nn.Softmax(dim=-1)],
        [nn.Dropout2d(), nn.Hardtanh(-0.5, 0.5), nn.ZeroPad2d(1), nn.MaxPool2d(2)],
        [nn.Conv2d(4, 8, 3, padding=1, groups=4), nn.BatchNorm2d(8), nn.ReLU()],
    ],
)
@pytest.mark.parametrize("operation", ["widen", "deepen"])
def test_what_stands_between_layers_grows_along(middle: list[nn.Module], operation: Any) -> None:
    torch.manual_seed(0)
    # The modules are shared by the cases of a parametrised test.
    model = nn.Sequential(nn.Conv2d(2, 4, 1), *copy.deepcopy(middle), nn.Flatten())
    x = torch.randn(6, 2, 3, 3)
    model.append(nn.Linear(model(x).shape[1], 3))
    kept(model, Growth(operation, "0"), x)
    model.train()(x).sum().backward()
    copied = copy.deepcopy(model).eval()
    kept(model, Growth(operation, "0"), x)
    newcomer = copy.deepcopy(copied)
    replay(newcomer, history(model)[1:], batch=x)
    newcomer.load_state_dict(model.state_dict())
    torch.testing.assert_close(newcomer.eval()(x), model.eval()(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_numbers_keep_their_type(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Conv1d(2, 4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Conv1d(4, 3, 2))
    model.to(dtype)
    x = torch.randn(8, 2, 9, dtype=dtype)
    grow(model, Growth("deepen", "0"), x, seed=0)
    grow(model, Growth("widen", "0", 1.5), x, seed=0)
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert model.grown["1"].layer.kernel_size == (3,)  # the next smaller kernel with a middle


def test_sizes_written_into_a_reshape_are_corrected() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(1, 4, 3), nn.Linear(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x).view(-1, 16))  # type: ignore[no-any-return]

    model, x = Fixed(), torch.randn(5, 1, 4, 4)
    kept(model, Growth("widen", "a", 1.25), x)
    assert model.b.in_features == 20
    newcomer = Fixed()
    replay(newcomer, [Growth("widen", "a", 1.25)])  # no batch: what follows shows the shape
    newcomer.load_state_dict(model.state_dict())
    torch.testing.assert_close(newcomer.eval()(x), model(x))


def test_parameters_can_be_swapped_for_a_call() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)), torch.randn(4, 3)
    grow(model, Growth("deepen", "0"), x, seed=0)
    zeros = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    assert torch.func.functional_call(model, zeros, (x,)).abs().max() == 0
    assert model(x).abs().max() > 0


def test_a_grown_network_says_how_to_save_it_and_others_pickle_as_ever() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.MaxPool1d(1), nn.Linear(3, 1)), torch.randn(4, 3)
    layers_of(model, x)
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(x), model(x))
    assert len(layers_of(again, x)) == 2
    grow(again, Growth("deepen", "0"), x, seed=0)
    with pytest.raises(TypeError, match="state_dict"):
        pickle.dumps(again)


def test_the_name_of_new_layers_gives_way_to_the_scripts_own() -> None:
    class Grown(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.grown = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.grown(x)  # type: ignore[no-any-return]

    model = Grown()
    kept(model, Growth("deepen", "grown"), torch.randn(4, 3))
    assert [name for name, _ in model.named_children()] == ["grown", "grown_"]


def test_nothing_of_what_was_there_is_disturbed() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1))
    x = torch.randn(8, 3)
    model(x).sum().backward()
    calls: list[int] = []
    model[3].register_forward_hook(lambda *_: calls.append(1))
    statistics, gradient = model[1].running_mean.clone(), model[3].weight.grad.clone()
    model[1].eval()
    grow(model, Growth("deepen", "0", form="identity"), x, seed=0)
    assert torch.equal(model[1].running_mean, statistics)
    assert torch.equal(model[3].weight.grad, gradient)
    assert not model[1].training
    assert model.training
    calls.clear()
    model(x)
    assert calls == [1]


def test_replicas_are_as_even_as_they_can_be() -> None:
    assert repeated(3, 6).tolist() == [0, 0, 1, 1, 2, 2]
    assert np.bincount(repeated(5, 12)).tolist() in ([3, 2, 3, 2, 2], [3, 2, 2, 3, 2])
    for old, new in [(1, 2), (7, 8), (8, 60), (64, 65)]:
        counts = np.bincount(repeated(old, new), minlength=old)
        assert counts.min() >= 1
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(
    ("before", "after", "axis"),
    [
        ((2, 3, 4, 5), (2, 60), 1),
        ((2, 3, 4, 5), (2, 3, 20), 1),
        ((2, 4, 3), (8, 3), 2),
        ((2, 4, 3), (2, 12), 2),
        ((2, 3, 1, 1), (2, 3), 1),
        ((2, 3), (2, 3, 1, 1), 1),
        ((2, 3), (2, 1, 3), 1),
        ((2, 2, 3, 2), (4, 6), 2),
        ((2, 1, 4), (2, 4), 1),
    ],
)
def test_a_reshape_takes_replicas_where_it_takes_units(
    before: tuple[int, ...], after: tuple[int, ...], axis: int
) -> None:
    places = repeated(before[axis], before[axis] + 2)
    tensor = np.arange(np.prod(before)).reshape(before)
    wide = tensor.take(places, axis)
    units = reshaped(Units(axis, places, before[axis], len(before)), before, after)
    assert units is not None
    shape = [len(units.places) if i == units.axis else n for i, n in enumerate(after)]
    np.testing.assert_array_equal(
        wide.reshape(shape), tensor.reshape(after).take(units.places, units.axis)
    )


def test_a_reshape_that_takes_units_apart_has_no_place_for_replicas() -> None:
    assert reshaped(Units(1, repeated(6, 12), 6, 2), (2, 6), (2, 2, 3)) is None
    assert reshaped(Units(1, repeated(6, 12), 6, 3), (2, 6, 2), (2, 3, 4)) is None
