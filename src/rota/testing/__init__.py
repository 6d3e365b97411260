"""What every policy and every backend must keep to, as checks that you run on your own.

from rota.testing import check_policy, policy_cases

def test_my_policy() -> None:
    check_policy(MyPolicy)

@pytest.mark.parametrize("case", policy_cases(), ids=str)  # the same, one test per world
def test_my_policy_in(case) -> None:
    case(MyPolicy)
"""

from rota.testing.backend_contract import check_backend
from rota.testing.contract_worlds import CONTRACT_WORLDS
from rota.testing.driver_contract import check_driver
from rota.testing.examining import Finding, examine
from rota.testing.policy_contract import PolicyCase, check_policy, policy_cases
from rota.testing.worlds import WorldSpec

__all__ = [
    "CONTRACT_WORLDS",
    "Finding",
    "PolicyCase",
    "WorldSpec",
    "check_backend",
    "check_driver",
    "check_policy",
    "examine",
    "policy_cases",
]
