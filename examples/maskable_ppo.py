"""A learner of another library: sb3-contrib's MaskablePPO learns to schedule DL2's small cluster.

    pip install 'rota[train,examples]'
    python examples/maskable_ppo.py

`SchedEnv` is an ordinary gymnasium environment; `action_masks()` says which actions are allowed.
"""

import torch
from sb3_contrib import MaskablePPO

from rota.envs import SchedEnv, WorldPool
from rota.scenarios import load
from rota.systems.dl2.step_lens import StepByStep


def train(steps: int) -> MaskablePPO:
    """A learner after this many steps."""
    torch.set_num_threads(1)  # the network is small, and threads that wait take time from others
    worlds = WorldPool.draw(load("dl2-small"), range(3000, 3064))
    env = SchedEnv(worlds, StepByStep(), reward="progress")
    learner = MaskablePPO("MultiInputPolicy", env, n_steps=256, gamma=1.0, seed=0, verbose=1)
    return learner.learn(steps)


if __name__ == "__main__":
    train(100_000).save("maskable_ppo.zip")
