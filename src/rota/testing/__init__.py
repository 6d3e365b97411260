"""What every policy and every backend must keep to, as checks that you run on your own.

from rota.testing import check_policy, policy_cases

def test_my_policy() -> None:
    check_policy(MyPolicy)

@pytest.mark.parametrize("case", policy_cases(), ids=str)  # the same, one test per scenario
def test_my_policy_in(case) -> None:
    case(MyPolicy)
"""

from rota.testing.backend import check_backend
from rota.testing.examining import Finding, examine
from rota.testing.policy import PolicyCase, check_policy, policy_cases
from rota.testing.scenarios import SCENARIOS, Scenario
from rota.testing.worlds import WorldSpec

__all__ = [
    "SCENARIOS",
    "Finding",
    "PolicyCase",
    "Scenario",
    "WorldSpec",
    "check_backend",
    "check_policy",
    "examine",
    "policy_cases",
]
