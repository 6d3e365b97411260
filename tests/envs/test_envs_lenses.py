"""DL2's two lenses: masks that tell the truth, exact log-probabilities, scripts that arrive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rota.envs import BatchEnv, LensPolicy, WorldPool
from rota.envs.wanted import Wanted
from rota.errors import ConfigError
from rota.scenarios import load
from rota.systems.dl2.onepass import OnePass
from rota.systems.dl2.step_lens import StepByStep
from rota.testing import policy_cases

POOL = WorldPool.draw(load("dl2-busy"), range(3))


def first_allowed(_obs: Any, mask: Any, _view: Any, _book: Any) -> Any:
    return mask.argmax(axis=-1)


def last_allowed(_obs: Any, mask: Any, _view: Any, _book: Any) -> Any:
    return mask.shape[-1] - 1 - mask[..., ::-1].argmax(axis=-1)


@pytest.mark.parametrize("case", policy_cases(), ids=str)
@pytest.mark.parametrize("act", [first_allowed, last_allowed])
@pytest.mark.parametrize(
    "lens", [StepByStep(window=3), StepByStep(window=3, least_first=False), OnePass(window=3)],
    ids=["step", "free", "onepass"],
)  # fmt: skip
def test_a_policy_made_of_a_lens_keeps_the_contract(lens: Any, act: Any, case: Any) -> None:
    case(LensPolicy(lens, act))


def random_steps(env: BatchEnv, steps: int, rng: np.random.Generator) -> Any:
    """Play so many steps of allowed actions, all alike, in a step lens; the last info."""
    actions = np.zeros(env.num_envs, np.int64)
    _, info = env.reset()
    for _ in range(steps):
        env.lens.sample(info["mask"], rng.random(env.num_envs), actions)  # type: ignore[attr-defined]
        info = env.step(actions)[-1]
    return info


@pytest.mark.parametrize("least_first", [True, False])
def test_what_the_step_mask_allows_is_what_can_be_done(least_first: bool) -> None:
    lens = StepByStep(window=8, least_first=least_first)
    for steps in (0, 10, 40, 200):
        for action in range(lens.actions - 1):
            env = BatchEnv(POOL, lens, batch=3)
            info = random_steps(env, steps, np.random.default_rng(steps))
            allowed = info["mask"][:, action].copy()
            edits = env.book.workers.sum(1) + env.book.servers.sum(1)
            ended = np.zeros(3, bool)
            lens.act(env.view, env.book, np.full(3, action), ended)
            changed = env.book.workers.sum(1) + env.book.servers.sum(1) > edits
            np.testing.assert_array_equal(allowed, changed)
        stands = (env.book.workers.sum(1) == 0) & info["mask"][:, :-1].any(1)
        np.testing.assert_array_equal(info["mask"][:, -1], least_first | ~stands)


def test_without_the_least_for_all_a_job_is_started_with_its_least_or_not_at_all() -> None:
    lens = StepByStep(window=4, least_first=False)
    env = BatchEnv(POOL, lens, batch=1)
    _, info = env.reset()
    assert env.book.workers.sum() == env.book.servers.sum() == 0
    # Of a job that has nothing only the first action is allowed; and the round must not end.
    shown = int(env.book.shown[0])
    assert info["mask"][0, : 3 * shown].tolist() == [True, False, False] * shown
    assert not info["mask"][0, -1]
    j, ended = int(env.book.rows[0, 0]), np.zeros(1, bool)
    job = env.view.jobs[0, j]
    lens.act(env.view, env.book, np.array([0]), ended)
    least = (max(1, job["min_workers"]), job["min_servers"])
    assert (env.book.workers[0, j], env.book.servers[0, j]) == least
    mask = np.zeros((1, lens.actions), bool)
    lens.mask(env.view, env.book, mask)
    assert mask[0, [0, 1, 2, -1]].all()
    assert not ended[0]


def test_the_time_that_a_job_needs_is_seen_if_so_wished() -> None:
    plain, more = StepByStep(window=4), StepByStep(window=4, lengths=True)
    assert more.features == plain.features + 1
    env = BatchEnv(POOL, more, batch=1)
    seen, _ = env.reset()
    job = env.view.jobs[0, int(env.book.rows[0, 0])]
    assert seen["jobs"][0, 0, -1] == pytest.approx(
        0.2 * np.log1p(job["estimate_s"] / more.slot_s), rel=1e-6
    )


def test_without_bundles_nobody_offers_or_gives_them() -> None:
    lens, rng = StepByStep(window=8, bundle=False), np.random.default_rng(0)
    env = BatchEnv(POOL, lens, batch=3)
    info = random_steps(env, 30, rng)
    assert not info["mask"][:, 2:-1:3].any()
    assert info["mask"][:, 1:-1:3].any()
    script = np.zeros(3, np.int64)
    wanted = np.full(env.book.workers.shape, 4)
    lens.script(env.view, env.book, Wanted.counts(wanted, wanted), script)
    assert (script % 3 != 2).all()
    ended = np.zeros(3, bool)
    lens.act(env.view, env.book, np.full(3, 2), ended)
    assert ended.all()


def test_tells_whose_an_action_is() -> None:
    lens = StepByStep(window=8)
    env = BatchEnv(POOL, lens, batch=3)
    env.book.rows[:] = np.arange(24).reshape(3, 8)
    assert lens.jobs_of(env.book, np.array([1, 3 * 7 + 2, 3 * 8])).tolist() == [0, 15, -1]


def onepass_round(seed: int, greedy: bool) -> tuple[BatchEnv, Any, Any, Any, Any, Any]:
    lens, rng = OnePass(window=6), np.random.default_rng(seed)
    env = BatchEnv(POOL, lens, batch=3)
    env.reset()
    logits = np.zeros((3, 6, 256), np.float32)
    actions, logp = np.zeros((3, 6), np.int64), np.zeros((3, 6), np.float32)
    allowed = np.zeros((3, 6, 256), bool)
    for _ in range(1 + 10 * seed):
        logits[:] = rng.normal(0, 2, logits.shape)
        free = env.book.free_cpus.copy()
        lens.choose(env.view, env.book, logits, rng.random((3, 6)), greedy, actions, logp, allowed)
        np.testing.assert_array_equal(free, env.book.free_cpus)
        last = env.book.rows.copy(), actions.copy()
        if _ < 10 * seed:
            env.step(actions)
    return env, logits, *last, logp, allowed


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("greedy", [False, True])
def test_choices_have_the_probability_that_a_masked_softmax_gives_them(
    seed: int, greedy: bool
) -> None:
    env, logits, rows, actions, logp, allowed = onepass_round(seed, greedy)
    for b in range(3):
        cpus, gpus = env.book.free_cpus[b], env.book.free_gpus[b]
        for i in range(6):
            j = rows[b, i]
            if j < 0 or env.book.workers[b, j] == 0:
                assert (actions[b, i], logp[b, i], allowed[b, i].any()) == (-1, 0, False)
                continue
            job = env.view.jobs[b, j]
            servers, workers = np.indices((16, 16)) + 1
            more_s, more_w = servers - env.book.servers[b, j], workers - env.book.workers[b, j]
            fits = (
                (servers <= job["max_servers"]) & (workers <= job["max_workers"])
                & (more_w * job["gpus_per_worker"] <= gpus)
                & (more_w * job["cpus_per_worker"] + more_s * job["cpus_per_server"] <= cpus)
            ).ravel()  # fmt: skip
            np.testing.assert_array_equal(allowed[b, i], fits)
            masked = np.where(fits, logits[b, i].astype(float), -np.inf)
            exact = masked - np.logaddexp.reduce(masked)
            assert logp[b, i] == pytest.approx(exact[actions[b, i]], abs=1e-5)
            if greedy:
                assert actions[b, i] == masked.argmax()
            p, w = divmod(int(actions[b, i]), 16)
            more_w = w + 1 - env.book.workers[b, j]
            more_s = p + 1 - env.book.servers[b, j]
            gpus -= more_w * job["gpus_per_worker"]
            cpus -= more_w * job["cpus_per_worker"] + more_s * job["cpus_per_server"]


def test_choices_come_as_often_as_their_probability() -> None:
    lens = OnePass(window=1, most=2)
    env = BatchEnv(POOL, lens, batch=1)
    env.reset()
    logits = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32)).reshape(1, 1, 4)
    actions, logp = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.float32)
    allowed, seen = np.zeros((1, 1, 4), bool), np.zeros(4)
    for u in (np.arange(1000) + 0.5) / 1000:
        lens.choose(env.view, env.book, logits, np.array([[u]]), False, actions, logp, allowed)
        seen[actions[0, 0]] += 1
    np.testing.assert_allclose(seen, [100, 200, 300, 400], atol=1)


def test_choose_refuses_arrays_that_compiled_code_would_misread() -> None:
    lens = OnePass(window=2)
    env = BatchEnv(POOL, lens, batch=1)
    env.reset()
    logits, ones = np.zeros((1, 2, 256)), np.zeros((1, 2))
    with pytest.raises(TypeError, match="logits must be a contiguous array of float32"):
        lens.choose(env.view, env.book, logits, ones, True, ones, ones, logits)


@pytest.mark.parametrize("lens", [StepByStep(window=40), OnePass(window=40)], ids=["step", "one"])
def test_a_script_leads_to_what_the_teacher_wants(lens: Any) -> None:
    env = BatchEnv(POOL, lens, batch=3)
    env.reset()
    workers, servers = np.zeros((2, 3, POOL.jobs), np.int64)
    for b in range(3):  # two jobs want more, the others their least
        live = env.view.order[b, : env.view.live[b]]
        workers[b, live], servers[b, live] = 1, 1
        workers[b, live[0]], servers[b, live[0]] = 2, 4
    out = np.zeros((3, *(lens.action_space.shape or ())), np.int64)
    ended, over = np.zeros(3, bool), np.zeros(3, bool)
    for _ in range(20):
        lens.script(env.view, env.book, Wanted.counts(workers, servers), out)
        lens.act(env.view, env.book, out, ended)
        over |= ended
        if over.all():
            break
    for b in range(3):
        live = env.view.order[b, : env.view.live[b]]
        np.testing.assert_array_equal(env.book.workers[b, live], workers[b, live])
        np.testing.assert_array_equal(env.book.servers[b, live], servers[b, live])
    assert over.all()


def test_a_job_that_has_all_leaves_the_window_unless_it_is_kept() -> None:
    for keep, shown in ((False, 0), (True, 1)):
        lens = StepByStep(window=1, keep_capped=keep)
        env = BatchEnv(POOL, lens, batch=1)
        env.reset()
        j = int(env.book.rows[0, 0])
        env.book.workers[0, j] = env.view.jobs[0, j]["max_workers"]
        env.book.servers[0, j] = env.view.jobs[0, j]["max_servers"] - 1
        ended = np.zeros(1, bool)
        lens.act(env.view, env.book, np.array([1]), ended)
        assert (int((env.book.rows[0] == j).sum()), bool(ended[0])) == (shown, not keep)


def test_settings_without_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"lens\.window=0 must be above 0"):
        OnePass(window=0)
    with pytest.raises(ConfigError, match=r"lens\.types=-1 must be above 0"):
        StepByStep(types=-1)
