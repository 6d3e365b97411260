"""Simulated time: state arrays, compiled kernels, the simulator as a backend, faults."""

from rota.sim.faults import Faults
from rota.sim.setup import Conditions
from rota.sim.simulation import simulate
from rota.sim.simulator import Simulator

__all__ = ["Conditions", "Faults", "Simulator", "simulate"]
