"""Heuristics, also teachers and fallbacks: ordering × placement × sizing."""

from rota.policies.catalogue import ORDERINGS, listing, make_policy
from rota.policies.heuristic import Heuristic
from rota.policies.placing import PLACEMENTS, Placer

__all__ = ["ORDERINGS", "PLACEMENTS", "Heuristic", "Placer", "listing", "make_policy"]
