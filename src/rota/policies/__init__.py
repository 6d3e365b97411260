"""Heuristics, also teachers and fallbacks: ordering × placement × sizing."""

from rota.policies.catalogue import listing, make_policy
from rota.policies.classic.heuristic import Heuristic
from rota.policies.classic.orderings import ORDERINGS
from rota.policies.classic.placing import PLACEMENTS, Placer

__all__ = ["ORDERINGS", "PLACEMENTS", "Heuristic", "Placer", "listing", "make_policy"]
