"""The contention-aware policies keep the contract, also where nothing is known of speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rota.policies import make_policy
from rota.testing import policy_cases

if TYPE_CHECKING:
    from rota.testing.policy_contract import PolicyCase

NAMES = [
    "contention-greedy",
    "contention-greedy:threshold=2,min_ratio=0.9,size=0.5",
    "contention-rollout:fraction=1",
    "contention-rollout:window=1,k=2",
    "least-loss",
    "least-loss:stops=0,drift=1",
    "least-loss:moves=0,lengths=0",
    "least-loss:margin=1,gain=0,wake=60",
]


@pytest.mark.parametrize("case", policy_cases(), ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_they_keep_the_contract(case: PolicyCase, name: str) -> None:
    case(make_policy(name))
