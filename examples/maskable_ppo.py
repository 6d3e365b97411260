"""Train somebody else's learner: sb3-contrib's MaskablePPO schedules DL2's small cluster.

python examples/maskable_ppo.py
"""

from sb3_contrib import MaskablePPO

from rota.envs import Pool, SchedEnv
from rota.scenarios import load
from rota.systems.dl2.lens import StepByStep


def train(steps: int) -> MaskablePPO:
    """A learner that has taken so many steps."""
    env = SchedEnv(Pool.draw(load("dl2-small"), range(3000, 3032)), StepByStep(), "progress")
    learner = MaskablePPO("MultiInputPolicy", env, n_steps=256, gamma=1.0, seed=0, verbose=1)
    return learner.learn(steps)


if __name__ == "__main__":
    train(50_000).save("maskable_ppo.zip")
