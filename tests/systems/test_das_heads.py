"""The heads of DAS: what padding, order, absence and extremes may and may not change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import ConfigError
from rota.systems.das.ordering_head import Communicate, OrderingHead, positions
from rota.systems.das.placement_head import AttentionHead, PlacementHistory, WalkHead
from rota.systems.das.walk import FORMS

if TYPE_CHECKING:
    from torch import Tensor, nn

    from rota.systems.das.placement_head import PlacementScores

torch.set_num_threads(1)  # these tensors are too small to be shared out among cores

JOB, MACHINE, WIDTH = 5, 3, 8
KINDS = (*FORMS, "attention")

seeds = st.integers(0, 2**31)


def placement_head(kind: Any) -> nn.Module:
    torch.manual_seed(1)
    if kind == "attention":
        return AttentionHead(JOB, MACHINE, WIDTH).double()
    return WalkHead(JOB, MACHINE, WIDTH, 4, kind).double()


class Scene:
    """Random jobs before random machines, with a past."""

    def __init__(self, seed: int, jobs: int = 2, states: int = 4, machines: int = 5) -> None:
        random = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=random, dtype=torch.float64)

        self.job = normal(jobs, JOB)
        self.machines = normal(jobs, machines, MACHINE)
        self.room = normal(jobs, machines) > -0.5
        self.present = torch.ones(jobs, machines, dtype=torch.bool)
        self.past = PlacementHistory(
            machines=normal(jobs, states, machines, MACHINE),
            room=normal(jobs, states, machines) > -0.5,
            performance=normal(jobs, states, machines),
            seen=normal(jobs, states, machines) > -0.5,
        )

    def scores(self, head: nn.Module) -> PlacementScores:
        scores: PlacementScores = head(self.job, self.machines, self.room, self.present, self.past)
        return scores

    def pad(self, machines: int = 0, states: int = 0, junk: float = math.nan) -> Scene:
        """Append machines that are not there and states that nobody observed, full of junk."""

        def longer(part: Tensor, axis: int, many: int, fill: float) -> Tensor:
            shape = list(part.shape)
            shape[axis] = many
            return torch.cat([part, part.new_full(shape, fill)], axis)

        self.machines = longer(self.machines, 1, machines, junk)
        self.room = longer(self.room, 1, machines, True)
        self.present = longer(self.present, 1, machines, False)
        # Padded machines claim to have been seen, padded states do not.
        past = (longer(part, 2, machines, junk) for part in self.past)
        self.past = PlacementHistory(*(longer(part, 1, states, junk) for part in past))
        if states:
            self.past.seen[:, -states:] = False
        return self

    def reorder(self, order: Tensor) -> Scene:
        self.machines, self.room = self.machines[:, order], self.room[:, order]
        self.present = self.present[:, order]
        self.past = PlacementHistory(*(part[:, :, order] for part in self.past))
        return self


@given(st.sampled_from(KINDS), seeds, st.integers(1, 6), st.integers(0, 5))
def test_padded_machines_and_states_change_no_score(
    kind: str, seed: int, machines: int, states: int
) -> None:
    head = placement_head(kind)
    plain = Scene(seed, states=states, machines=machines).scores(head)
    padded = Scene(seed, states=states, machines=machines).pad(2, 3).scores(head)

    for one, other in zip(plain, padded, strict=True):
        torch.testing.assert_close(other[:, :machines], one)
    assert (padded.logits[:, machines:] == -math.inf).all()
    assert not padded.mean[:, machines:].any()
    assert not padded.variance[:, machines:].any()


@given(st.sampled_from(KINDS), seeds)
def test_scores_follow_the_order_of_machines(kind: str, seed: int) -> None:
    head = placement_head(kind)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    plain, moved = Scene(seed).scores(head), Scene(seed).reorder(order).scores(head)
    for one, other in zip(plain, moved, strict=True):
        torch.testing.assert_close(other, one[:, order])


@pytest.mark.parametrize("kind", KINDS)
def test_jobs_and_the_order_of_past_states_do_not_matter_to_each_other(kind: str) -> None:
    head, scene = placement_head(kind), Scene(0, jobs=3)
    together = scene.scores(head)
    alone = Scene(0, jobs=3)
    alone.job, alone.machines, alone.room = scene.job[1:2], scene.machines[1:2], scene.room[1:2]
    alone.present = scene.present[1:2]
    alone.past = PlacementHistory(*(part[1:2].flip(1) for part in scene.past))
    for one, other in zip(together, alone.scores(head), strict=True):
        torch.testing.assert_close(other, one[1:2])


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_machines_gives_no_nan_and_no_gradient(kind: str) -> None:
    head, scene = placement_head(kind), Scene(1).pad(1, 1)
    scene.present[0] = False
    scores = scene.scores(head)
    assert (scores.logits[0] == -math.inf).all()
    assert not scores.mean[0].any()
    assert not scores.variance[0].any()

    (scores.logits[scene.room & scene.present].sum() + scores.variance.sum()).backward()
    for name, weight in head.named_parameters():
        assert weight.grad is None or weight.grad.isfinite().all(), name


@pytest.mark.parametrize("form", FORMS)
def test_without_history_only_the_prior_is_left(form: str) -> None:
    head, scene = placement_head(form), Scene(2, states=0)
    scores = scene.scores(head)
    every = head.features(
        scene.job, scene.machines[:, None], scene.room[:, None], scene.present[:, None]
    )[:, 0]

    assert not scores.mean.any()
    prior = every.square().sum(-1, keepdim=True).expand_as(scores.variance)
    torch.testing.assert_close(scores.variance, prior)
    assert (prior > 0).all()
    assert ((scores.logits == 0) == scene.room).all()


@pytest.mark.parametrize("form", FORMS)
def test_a_state_without_machines_has_no_features(form: str) -> None:
    scene = Scene(3)
    nobody = torch.zeros_like(scene.past.seen)
    head = placement_head(form)
    assert not head.features(scene.job, scene.past.machines, scene.past.room, nobody).any()


@pytest.mark.parametrize("kind", KINDS)
def test_one_machine_and_one_state_will_do(kind: str) -> None:
    scores = Scene(3, states=1, machines=1).scores(placement_head(kind))
    assert scores.mean.shape == scores.variance.shape == scores.logits.shape == (2, 1)
    assert scores.mean.isfinite().all()


@pytest.mark.parametrize("form", FORMS)
def test_a_machine_that_did_well_is_preferred(form: str) -> None:
    head, scene = placement_head(form), Scene(4)
    states = scene.machines[:, None].expand_as(scene.past.machines)
    room = scene.room[:, None].expand_as(scene.past.room)
    well = torch.zeros_like(scene.past.performance)
    well[..., 3] = 1.0
    scene.room[:, 3] = True
    scene.past = PlacementHistory(states, room, well, torch.ones_like(scene.past.seen))
    assert scene.scores(head).logits.argmax(-1).tolist() == [3, 3]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-12, 1e3, 1e12])
def test_huge_and_tiny_embeddings_give_finite_scores_and_gradients(
    kind: str, dtype: torch.dtype, scale: float
) -> None:
    head, scene = placement_head(kind).to(dtype), Scene(5, states=30)
    scene.job, scene.machines = (scene.job * scale).to(dtype), (scene.machines * scale).to(dtype)
    scene.past = scene.past._replace(
        machines=(scene.past.machines * scale).to(dtype),
        performance=scene.past.performance.to(dtype),
    )
    scores = scene.scores(head)
    (scores.logits[scene.room].sum() + scores.variance.sum()).backward()

    assert scores.logits.dtype == dtype
    assert scores.logits[scene.room].isfinite().all()
    assert all(w.grad is None or w.grad.isfinite().all() for w in head.parameters())


def test_every_weight_of_the_walk_learns() -> None:
    head, scene = placement_head("sub"), Scene(6)
    scene.scores(head).mean.square().sum().backward()
    still = [n for n, w in head.named_parameters() if w.grad is None or not w.grad.any()]
    assert still == []


def test_decay_and_noise_stay_within_their_bounds() -> None:
    head = WalkHead(JOB, MACHINE)
    assert head.decay.item() == 0.5
    with torch.no_grad():
        head.raw_noise.fill_(-100.0)
        head.decay_logit.fill_(-10.0)
    assert head.noise.item() == pytest.approx(1e-4)
    assert 0 < head.decay.item() < 1e-4


@pytest.mark.parametrize("only_mean", [False, True])
def test_the_gate_mixes_each_job_with_one_message(only_mean: bool) -> None:
    torch.manual_seed(2)
    tell = Communicate(JOB, MACHINE, only_mean=only_mean).double()
    jobs = torch.randn(2, 4, JOB, dtype=torch.float64)
    machines = torch.randn(2, 3, MACHINE, dtype=torch.float64)
    told = tell(jobs, machines, torch.ones(2, 3, dtype=torch.bool))

    pooled = machines.mean(1) if only_mean else torch.cat([machines.mean(1), machines.amax(1)], -1)
    message = tell.message(pooled)[:, None]
    assert (told >= torch.minimum(message, jobs)).all()
    assert (told <= torch.maximum(message, jobs)).all()
    with torch.no_grad():
        tell.gate.bias.fill_(-1e3)  # a shut gate tells nothing
    torch.testing.assert_close(tell(jobs, machines, torch.ones(2, 3).bool()), jobs)


def test_the_maximum_tells_half_free_machines_from_full_and_empty_ones() -> None:
    half, mixed = torch.full((1, 4, 1), 0.5), torch.tensor([[[1.0], [0.0], [1.0], [0.0]]])
    everyone = torch.ones(1, 4, dtype=torch.bool)
    for only_mean in (True, False):
        squeeze = Communicate(JOB, 1, only_mean=only_mean).squeeze
        same = torch.equal(squeeze(half, everyone), squeeze(mixed, everyone))
        assert same == only_mean


@pytest.mark.parametrize("only_mean", [False, True])
def test_the_message_ignores_padding_and_order_of_machines(only_mean: bool) -> None:
    torch.manual_seed(3)
    tell = Communicate(JOB, MACHINE, only_mean=only_mean)
    jobs, machines = torch.randn(2, 4, JOB), torch.randn(2, 5, MACHINE)
    present = torch.tensor([[True, False, True, True, False], [False] * 5])
    plain = tell(jobs[:1], machines[:1, present[0]], torch.ones(1, 3, dtype=torch.bool))

    machines[~present] = math.nan
    told = tell(jobs, machines.flip(1), present.flip(1))
    torch.testing.assert_close(told[:1], plain)
    nobody = tell.message(torch.zeros(1, MACHINE * (1 if only_mean else 2)))
    assert (told[1] <= torch.maximum(nobody, jobs[1])).all()
    assert (told[1] >= torch.minimum(nobody, jobs[1])).all()


def ordering_head(training: bool = True) -> OrderingHead:
    torch.manual_seed(4)
    return OrderingHead(WIDTH, heads=2, layers=2).double().train(training)


@given(seeds, st.integers(1, 6), st.booleans())
def test_padded_jobs_change_no_logit_wherever_they_stand(
    seed: int, jobs: int, training: bool
) -> None:
    head, random = ordering_head(training), torch.Generator().manual_seed(seed)
    real = torch.randn(1, jobs, WIDTH, generator=random, dtype=torch.float64)
    places = torch.randperm(jobs + 3, generator=random)[:jobs].sort().values
    padded = torch.full((2, jobs + 3, WIDTH), math.nan, dtype=torch.float64)
    present = torch.zeros(2, jobs + 3, dtype=torch.bool)
    padded[0, places], present[0, places] = real[0], True
    with torch.set_grad_enabled(training):
        logits = head(padded, present)
        plain = head(real, torch.ones(1, jobs, dtype=torch.bool))

    torch.testing.assert_close(logits[0, places], plain[0])
    assert (logits[~present] == -math.inf).all()
    if training:
        logits[present].sum().backward()
        assert all(w.grad is not None and w.grad.isfinite().all() for w in head.parameters())


@given(seeds)
def test_logits_follow_the_jobs_if_these_keep_their_rank(seed: int) -> None:
    head, random = ordering_head(), torch.Generator().manual_seed(seed)
    jobs = torch.randn(2, 6, WIDTH, generator=random, dtype=torch.float64)
    present = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    order = torch.randperm(6, generator=random)
    plain = head(jobs, present)

    rank = torch.arange(6).expand(2, 6)
    torch.testing.assert_close(
        head(jobs[:, order], present[:, order], rank[:, order]), plain[:, order]
    )
    assert not torch.allclose(head(jobs[:, [1, 0, 2, 3, 4, 5]], present)[0, :2], plain[0, [1, 0]])


def test_a_job_hears_of_the_others() -> None:
    head, jobs = ordering_head(), torch.randn(1, 3, WIDTH, dtype=torch.float64)
    everyone = torch.ones(1, 3, dtype=torch.bool)
    before = head(jobs, everyone)
    jobs[0, 2] += 1.0 + torch.arange(WIDTH)
    assert not torch.allclose(head(jobs, everyone)[0, 0], before[0, 0])


def test_no_jobs_at_all_give_no_logits() -> None:
    assert ordering_head()(torch.zeros(2, 0, WIDTH).double(), torch.zeros(2, 0).bool()).shape == (
        2,
        0,
    )


def test_positions_are_told_apart_and_bounded() -> None:
    waves = positions(torch.arange(2000), 7, torch.float64)
    assert waves.shape == (2000, 7)
    assert waves.abs().max() <= 1
    apart = torch.cdist(waves, waves) + 9 * torch.eye(2000)
    assert apart.min() > 0.01


def test_a_width_that_does_not_split_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"width=10 .* heads=4 .* width of 12"):
        OrderingHead(10, heads=4)
