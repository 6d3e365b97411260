"""Named, versioned bundles of workload, cluster, speed, contention, cadence and costs."""

from rota.scenarios.reading import SCENARIOS, names
from rota.scenarios.scenario import OUTSIDE, TEST, Scenario, World, load

__all__ = ["OUTSIDE", "SCENARIOS", "TEST", "Scenario", "World", "load", "names"]
