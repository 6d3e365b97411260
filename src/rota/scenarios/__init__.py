"""Named, versioned bundles of workload, cluster, speed, contention, cadence and costs."""

from rota.scenarios.reading import SCENARIO_FILES, names
from rota.scenarios.scenario import OUTSIDE, TEST, Scenario, World, load

__all__ = ["OUTSIDE", "SCENARIO_FILES", "TEST", "Scenario", "World", "load", "names"]
