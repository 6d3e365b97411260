"""Evolution finds the least of functions that it can only try."""

from __future__ import annotations

import numpy as np

from rota.learn.evolution import Evolution


def test_it_finds_the_bottom_of_a_tilted_narrow_bowl() -> None:
    rng = np.random.default_rng(0)
    goal, tilt = np.array([1.0, -2.0, 0.5]), np.array([[1.0, 0.9, 0.0], [0, 0.2, 0], [0, 0, 3.0]])
    search = Evolution(np.zeros(3), np.full(3, 0.3), 12, rng)
    for _ in range(150):
        search.tell((((search.ask() - goal) @ tilt.T) ** 2).sum(axis=1))
    np.testing.assert_allclose(search.mean, goal, atol=1e-3)
    assert search.width < 0.1


def test_candidates_mirror_each_other() -> None:
    search = Evolution(np.array([1.0, 2.0]), np.array([0.1, 10.0]), 8, np.random.default_rng(1))
    asked = search.ask() - search.mean
    np.testing.assert_allclose(asked[:4], -asked[4:])


def test_of_noise_alone_it_makes_small_steps() -> None:
    rng = np.random.default_rng(2)
    search = Evolution(np.zeros(5), np.ones(5), 10, rng)
    for _ in range(20):
        search.ask()
        search.tell(rng.normal(size=10))
    assert np.abs(search.mean).max() < 5
