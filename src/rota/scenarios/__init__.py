"""Named, versioned bundles of workload, cluster, speed, contention, cadence and costs."""

from rota.scenarios.reading import names
from rota.scenarios.scenario import OUTSIDE, Scenario, World, load

__all__ = ["OUTSIDE", "Scenario", "World", "load", "names"]
