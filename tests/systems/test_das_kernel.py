"""The kernel of DAS against the published formula, and its posterior against slower ones."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from slow_walk import printed_kernel

from rota.errors import TrainingError, UnknownNameError
from rota.systems.das.posterior import by_states, by_weights, posterior, safe_cholesky
from rota.systems.das.walk import FORMS, transition, walk_features

if TYPE_CHECKING:
    from torch import Tensor

    from rota.systems.das.walk import Form

torch.set_num_threads(1)  # these tensors are too small to be shared out among cores

TERMS = 60  # 0.5^61 / (1 − 0.5) < 1e-18: what is left out is below rounding

forms = st.sampled_from(FORMS)
seeds = st.integers(0, 2**31)
sizes = st.integers(1, 8)


class Walkers(NamedTuple):
    """Random states of a cluster: arguments of `transition`, and of `walk_features`."""

    query: Tensor
    key: Tensor
    room: Tensor
    present: Tensor
    value: Tensor
    start: Tensor

    def steps(self, form: Form, edges: Tensor | None = None) -> Tensor:
        return transition(*self[:4], form=form, edges=edges)

    def features(self, form: Form, terms: int = TERMS) -> Tensor:
        return walk_features(self.steps(form), self.value, self.start, 0.5, terms, self.present)

    def map(self, index: Tensor) -> Walkers:
        """The same with machines in this order."""
        return Walkers(*(part[:, index] for part in self))


def walkers(seed: int, many: int, machines: int, width: int = 3) -> Walkers:
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    return Walkers(
        query=normal(many, machines, width),
        key=normal(many, machines, width),
        room=normal(many, machines) > -0.5,
        present=torch.ones(many, machines, dtype=torch.bool),
        value=normal(many, machines, width),
        start=normal(many, machines).abs(),
    )


def padded(some: Walkers, extra: int, junk: float) -> Walkers:
    """The same with machines appended that are not there, full of junk."""

    def longer(part: Tensor) -> Tensor:
        shape = (part.shape[0], extra, *part.shape[2:])
        return torch.cat([part, part.new_full(shape, junk)], 1)

    more = Walkers(*map(longer, some))
    present = more.present.clone()
    present[:, some.present.shape[1] :] = False
    return more._replace(present=present)


class Regression(NamedTuple):
    """Random arguments of `posterior`."""

    now: Tensor
    past: Tensor
    targets: Tensor
    noise: Tensor
    seen: Tensor | None


def regression(
    seed: int, jobs: int = 3, states: int = 5, features: int = 4, machines: int = 6
) -> Regression:
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    return Regression(
        now=normal(jobs, features),
        past=normal(jobs, states, features),
        targets=normal(jobs, states, machines),
        noise=normal(jobs).exp(),
        seen=normal(jobs, states, machines) > 0,
    )


@given(forms, seeds, sizes, sizes)
def test_the_inner_product_of_features_is_the_kernel_as_published(
    form: Form, seed: int, first: int, second: int
) -> None:
    one, two = walkers(seed, 1, first), walkers(seed + 1, 1, second)

    product = printed_kernel(
        one.steps(form)[0], two.steps(form)[0], 0.5,
        (one.start[0], two.start[0]), (one.value[0], two.value[0]),
    )  # fmt: skip

    inner = (one.features(form) @ two.features(form).T).squeeze()
    scale = one.features(form).norm() * two.features(form).norm()
    assert abs(inner - product) <= 1e-10 * scale + 1e-10


def test_what_few_terms_leave_out_is_within_the_stated_bound() -> None:
    one, two = walkers(0, 1, 8), walkers(1, 1, 8)
    bound = one.start.sum() * two.start.sum()
    bound = bound * sum(
        one.value[..., c].abs().max() * two.value[..., c].abs().max() for c in range(3)
    )
    whole = (one.features("sub") * two.features("sub")).sum()
    for terms in (1, 4, 8):
        kernel = (one.features("sub", terms) * two.features("sub", terms)).sum()
        assert abs(whole - kernel) <= bound * 0.5 ** (terms + 1) / (1 - 0.5)


def test_the_kernel_as_published_is_constant_if_rows_sum_to_one() -> None:
    # 1ᵀ(I − λP)⁻¹1 = n₁ n₂ / (1 − λ) = 8 · 8 / 0.5 for every pair of graphs: it says nothing.
    some = walkers(2, 4, 8)
    ones = some._replace(value=torch.ones(4, 8, 1).double(), start=torch.ones(4, 8).double())
    gram = ones.features("stochastic") @ ones.features("stochastic").T

    torch.testing.assert_close(gram, torch.full_like(gram, 128.0), rtol=1e-12, atol=0)
    direct = printed_kernel(*some.steps("stochastic")[:2], 0.5)
    assert math.isclose(direct, 128.0, rel_tol=1e-12)
    for form in ("sub", "symmetric"):
        spread = ones.features(form) @ ones.features(form).T
        assert spread.max() - spread.min() > 1


@pytest.mark.parametrize("form", FORMS)
def test_gram_matrices_are_positive_semidefinite_and_vectors_fill_their_rank(form: Form) -> None:
    features = walkers(3, 17, 8).features(form, terms=8)
    values = torch.linalg.eigvalsh(features @ features.T)

    assert values[0] >= -1e-10 * values[-1]
    assert torch.linalg.matrix_rank(features) == 17


@given(seeds, sizes)
def test_steps_are_what_their_form_promises(seed: int, machines: int) -> None:
    some = walkers(seed, 2, machines)
    sub, symmetric, stochastic = map(some.steps, ("sub", "symmetric", "stochastic"))

    torch.testing.assert_close(stochastic.sum(-1), torch.ones(2, machines).double())
    torch.testing.assert_close(sub, stochastic * some.room[:, None], rtol=0, atol=0)
    torch.testing.assert_close(symmetric, symmetric.mT)
    values = torch.linalg.eigvalsh(symmetric)
    torch.testing.assert_close(values.abs().amax(-1), torch.ones(2).double())
    weight = (some.query @ some.key.mT / math.sqrt(3)).exp()
    weight = (weight + weight.mT) / 2
    root = weight.sum(-1).sqrt()
    torch.testing.assert_close(symmetric, weight / root[..., None] / root[:, None])


def test_walks_keep_to_edges_and_may_always_stay() -> None:
    some = walkers(4, 1, 3)
    edges = torch.tensor([[[False, True, False], [False] * 3, [False] * 3]])

    there = some.steps("stochastic", edges) > 0
    assert there[0].tolist() == [[True, True, False], [False, True, False], [False, False, True]]
    both = some.steps("symmetric", edges) > 0
    assert both[0].tolist() == [[True, True, False], [True, True, False], [False, False, True]]


def test_an_unknown_form_is_named() -> None:
    some = walkers(0, 1, 2)
    with pytest.raises(UnknownNameError, match="Did you mean 'symmetric'"):
        transition(*some[:4], form="symetric")  # type: ignore[arg-type]


@given(forms, seeds, sizes)
def test_features_do_not_change_with_the_order_of_machines_nor_with_padding(
    form: Form, seed: int, machines: int
) -> None:
    some = walkers(seed, 2, machines)
    more = padded(some, 3, junk=1e3)
    order = torch.randperm(machines + 3, generator=torch.Generator().manual_seed(seed))

    torch.testing.assert_close(more.map(order).features(form), some.features(form))
    P = more.steps(form)
    assert not P[:, machines:].any()
    assert not P[..., machines:].any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("junk", [math.nan, 1e300])
def test_no_machine_at_all_gives_zeros(form: Form, junk: float) -> None:
    nobody = padded(walkers(0, 2, 0), 4, junk)
    assert not nobody.features(form).any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [1e-15, 1e-3, 1e3, 1e15])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_and_tiny_scores_make_finite_steps_and_gradients(
    form: Form, scale: float, dtype: torch.dtype
) -> None:
    some = walkers(5, 2, 6)
    query = (some.query * scale).to(dtype).requires_grad_()
    present = torch.tensor([[True] * 4 + [False] * 2, [False] * 6])

    P = transition(query, some.key.to(dtype), some.room, present, form=form)
    P.square().sum().backward()

    assert P.isfinite().all()
    assert (P >= 0).all()
    assert (P <= 1 + 1e-5).all()
    assert query.grad is not None
    assert query.grad.isfinite().all()


@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_features_are_right(form: Form) -> None:
    some = walkers(6, 2, 4)
    present = torch.tensor([[True] * 4, [True, False, True, False]])
    decay = torch.tensor(0.6, dtype=torch.float64)

    def features(query: Tensor, key: Tensor, value: Tensor, start: Tensor, decay: Tensor) -> Tensor:
        P = transition(query, key, some.room, present, form=form)
        return walk_features(P, value, start, decay, 3, present)

    inputs = (some.query, some.key, some.value, some.start, decay)
    assert torch.autograd.gradcheck(features, tuple(x.clone().requires_grad_() for x in inputs))


@given(seeds, st.integers(1, 9), st.integers(1, 9))
def test_both_spaces_give_the_same_posterior(seed: int, states: int, features: int) -> None:
    data = regression(seed, states=states, features=features)
    assert data.seen is not None
    noise = data.noise[:, None]
    for rows in (data.seen.mT, torch.ones(3, 1, states, dtype=torch.bool)):
        one = by_states(data.now, data.past, noise, rows)
        other = by_weights(data.now, data.past, noise, rows)
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@given(seeds, st.integers(1, 7), st.integers(1, 7))
def test_what_was_not_seen_is_as_if_it_were_left_out(seed: int, states: int, features: int) -> None:
    data = regression(seed, states=states, features=features)
    assert data.seen is not None
    hidden = torch.where(data.seen, data.targets, math.nan)
    mean, variance = posterior(data.now, data.past, hidden, data.noise, data.seen)
    for job in range(3):
        for machine in range(6):
            rows = data.seen[job, :, machine]
            past, targets = data.past[job, rows], data.targets[job, rows, machine]
            # The textbook's formula, with its inverse.
            noise = data.noise[job] * torch.eye(len(past), dtype=torch.float64)
            inverse = torch.linalg.inv(past @ past.T + noise)
            cross = past @ data.now[job]
            here = (mean[job, machine], variance[job, machine])
            there = (
                cross @ inverse @ targets,
                data.now[job] @ data.now[job] - cross @ inverse @ cross,
            )
            torch.testing.assert_close(here, there, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("states", "features"), [(3, 5), (6, 2), (1, 1)])
def test_everything_seen_is_the_same_as_no_mask(states: int, features: int) -> None:
    data = regression(7, states=states, features=features)
    whole = posterior(*data._replace(seen=None))
    masked = posterior(*data._replace(seen=torch.ones(3, states, 6, dtype=torch.bool)))
    torch.testing.assert_close(whole, masked, rtol=1e-12, atol=1e-12)


def test_without_observations_the_posterior_is_the_prior() -> None:
    for states in (0, 3, 9):
        data = regression(8, states=states)
        mean, variance = posterior(*data._replace(seen=torch.zeros(3, states, 6).bool()))
        assert not mean.any()
        prior = data.now.square().sum(-1, keepdim=True).expand(3, 6)
        torch.testing.assert_close(variance, prior)
    data = regression(8, states=0)
    mean, variance = posterior(*data._replace(seen=None))
    assert not mean.any()
    torch.testing.assert_close(variance, prior)


def test_one_state_and_one_machine_by_hand() -> None:
    # k(x, x') = 2 · 3 = 6, k(x', x') = 9: mean 6 / (9 + 1) · 5 = 3, variance 4 − 36 / 10 = 0.4.
    now, past = torch.tensor([[2.0]]), torch.tensor([[[3.0]]])
    mean, variance = posterior(now, past, torch.tensor([[[5.0]]]), torch.tensor(1.0))
    assert mean.item() == pytest.approx(3.0)
    assert variance.item() == pytest.approx(0.4)


@given(seeds)
def test_more_observations_never_raise_the_variance(seed: int) -> None:
    data = regression(seed)
    _, some = posterior(*data)
    _, all_ = posterior(*data._replace(seen=None))
    prior = data.now.square().sum(-1, keepdim=True)
    assert (all_ <= some + 1e-10).all()
    assert (some <= prior + 1e-10).all()


@pytest.mark.parametrize(("states", "features"), [(3, 5), (6, 2), (0, 2)])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_the_posterior_are_right(states: int, features: int, masked: bool) -> None:
    data = regression(9, jobs=2, states=states, features=features, machines=3)
    seen = data.seen if masked else None
    inputs = tuple(part.clone().requires_grad_() for part in data[:4] if part is not None)
    assert torch.autograd.gradcheck(lambda *some: posterior(*some, seen), inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1e3, 1e6])
@pytest.mark.parametrize(("states", "features"), [(12, 3), (6, 20)])
def test_huge_and_tiny_features_stay_finite(
    dtype: torch.dtype, scale: float, states: int, features: int
) -> None:
    data = regression(10, states=states, features=features)
    now, past = (data.now * scale).to(dtype), (data.past * scale).to(dtype)
    past[:, 1] = past[:, 0]  # two equal states: without noise to speak of, a singular system
    past.requires_grad_()
    noise = torch.tensor(1e-4, dtype=dtype)
    mean, variance = posterior(now, past, data.targets.to(dtype), noise, data.seen)
    (mean.sum() + variance.sum()).backward()

    assert mean.dtype == variance.dtype == dtype
    assert mean.isfinite().all()
    assert variance.isfinite().all()
    assert (variance >= 0).all()
    assert past.grad is not None
    assert past.grad.isfinite().all()


def test_rounding_makes_no_variance_negative() -> None:
    # The present state was seen before, hardly any noise: what is left cancels to rounding errors.
    past = regression(13, jobs=50, states=4, features=9).past.float() * 30
    targets = torch.zeros(50, 4, 1)
    _, variance = posterior(past[:, 0], past, targets, torch.tensor(1e-4))
    assert (variance >= 0).all()
    raw = by_states(past[:, 0], past, torch.full((50, 1), 1e-4), torch.ones(50, 1, 4).bool())[1]
    assert (raw < 0).any()


def test_single_precision_agrees_with_double() -> None:
    data = regression(11, states=16, features=40)
    assert data.seen is not None
    single = posterior(*(part.float() for part in data[:4] if part is not None), data.seen)
    double = posterior(*data)
    for one, other in zip(single, double, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-4)


def test_cholesky_repairs_only_what_rounding_broke() -> None:
    ones = torch.ones(3, 3, dtype=torch.float64) - 1e-15 * torch.eye(3)
    good = torch.diag(torch.tensor([1.0, 4.0, 9.0], dtype=torch.float64))
    factor = safe_cholesky(torch.stack([ones, good]))

    torch.testing.assert_close(factor[0] @ factor[0].T, ones, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(factor[1], good.sqrt(), rtol=0, atol=0)


def test_cholesky_says_what_it_cannot_repair() -> None:
    with pytest.raises(TrainingError, match=r"1 of 2 covariance matrices .* float64"):
        safe_cholesky(torch.stack([torch.eye(2), -torch.eye(2)]))
    with pytest.raises(TrainingError, match="not finite"):
        safe_cholesky(torch.full((2, 2), math.nan))


@pytest.mark.parametrize(("states", "features"), [(4, 7), (9, 3)])
def test_gpytorch_says_the_same(states: int, features: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it compiles by a deprecated part of torch
        gpytorch = pytest.importorskip("gpytorch")

        data = regression(12, states=states, features=features, machines=1)
        mean, variance = posterior(*data._replace(seen=None))
        for job in range(3):
            kernel = gpytorch.kernels.LinearKernel()
            kernel.variance = 1.0
            likelihood = gpytorch.likelihoods.GaussianLikelihood()
            likelihood.noise = data.noise[job]

            class Oracle(gpytorch.models.ExactGP):  # type: ignore[misc, name-defined]
                mean_module = gpytorch.means.ZeroMean()
                covar_module = kernel

                def forward(self, x: Tensor) -> object:
                    return gpytorch.distributions.MultivariateNormal(
                        self.mean_module(x), self.covar_module(x)
                    )

            oracle = Oracle(data.past[job], data.targets[job, :, 0], likelihood).double().eval()
            with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
                said = oracle(data.now[job : job + 1])
            torch.testing.assert_close(mean[job], said.mean, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(variance[job], said.variance, rtol=1e-6, atol=1e-6)
