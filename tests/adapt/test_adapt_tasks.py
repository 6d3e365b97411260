"""The tasks that small networks learn, and the networks they begin with."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from rota.adapt.growth import Growth
from rota.adapt.starts import STARTS, growths, start
from rota.adapt.tasks import TASKS, task
from rota.errors import ConfigError, UnknownNameError


@pytest.mark.parametrize("name", TASKS)
def test_a_seed_gives_the_same_samples_again_and_another_seed_others(name: str) -> None:
    one, again, other = (task(name).data(seed) for seed in (3, 3, 4))

    for a, b in zip(one, again, strict=True):
        assert torch.equal(a.inputs, b.inputs)
        assert torch.equal(a.labels, b.labels)
    assert not torch.equal(one.train.inputs, other.train.inputs)


@pytest.mark.parametrize("name", TASKS)
def test_splits_have_their_sizes_and_every_class(name: str) -> None:
    chosen = task(name)
    for split, size in zip(chosen.data(0), chosen.sizes, strict=True):
        assert split.inputs.shape == (size, *chosen.shape)
        assert split.inputs.dtype == torch.float32
        assert split.labels.unique().tolist() == list(range(chosen.classes))


def test_no_sample_of_the_digits_is_in_two_splits() -> None:
    data = task("digits").data(5)
    every = torch.cat([split.inputs.flatten(1) for split in data])

    # A few of the scanned digits are alike, but not hundreds.
    assert len(every.unique(dim=0)) > 0.99 * len(every)
    assert len(every) == 1797


def test_a_label_belongs_to_its_image() -> None:
    """The mean image of a class is closer to most of its images than to other classes'."""
    data = task("digits").data(0)
    means = torch.stack(
        [data.train.inputs[data.train.labels == k].mean(0).flatten() for k in range(10)]
    )
    nearest = torch.cdist(data.test.inputs.flatten(1), means).argmin(1)

    assert (nearest == data.test.labels).float().mean() > 0.8


def test_without_scikit_learn_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None; sys.modules['sklearn.datasets'] = None\n"
        "from rota.adapt.tasks import task\n"
        "try: task('digits').data(0)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.startswith("InputError")
    assert "pip install 'rota[adapt]'" in found.stdout


def test_names_that_are_unknown_are_answered_with_close_ones() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'digits'"):
        task("digit")
    with pytest.raises(UnknownNameError, match="Did you mean 'waves-front'"):
        start("wave-front")


@pytest.mark.parametrize("name", STARTS)
def test_a_start_network_takes_its_task_and_its_blocks_are_layers(name: str) -> None:
    chosen = start(name)
    model = chosen.build(1)
    inputs = chosen.task.data(0).train.inputs[:3]

    assert model(inputs).shape == (3, chosen.task.classes)
    for block in chosen.blocks:
        assert hasattr(model.get_submodule(block), "weight")


def test_a_seed_gives_the_same_first_weights_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    one, again, other = (start("digits-even").build(seed) for seed in (3, 3, 4))

    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one[0].weight, again[0].weight)
    assert not torch.equal(one[0].weight, other[0].weight)


def test_the_last_choice_of_a_menu_is_to_grow_nothing() -> None:
    begun = start("digits-front")

    assert growths(begun, "deepen") == (
        Growth("deepen", "0"), Growth("deepen", "4"), Growth("deepen", "9"), None,
    )  # fmt: skip
    assert growths(begun, "all")[3:] == (Growth("widen", "0"), Growth("widen", "4"), None)
    with pytest.raises(ConfigError, match="no menu 'huge'"):
        growths(begun, "huge")  # type: ignore[arg-type]


@pytest.mark.parametrize("factor", [1.0, 0.0, -2.0, float("nan"), float("inf"), True, 65.0])
def test_a_growth_refuses_a_factor_that_does_not_widen(factor: float) -> None:
    with pytest.raises(ConfigError, match="factor="):
        Growth("widen", "0", factor)


def test_a_growth_is_read_as_it_was_written() -> None:
    growth = Growth("widen", "features.3", 1.5)

    assert Growth.of(growth.facts()) == growth
    assert str(growth) == "widen features.3 ×1.5"
    with pytest.raises(ConfigError, match="does not describe"):
        Growth.of({"layer": "a"})
    with pytest.raises(ConfigError, match="not to 'shrink'"):
        Growth.of({"operation": "shrink", "layer": "a"})
