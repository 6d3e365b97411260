"""An elastic training: a small network on generated images of ten kinds.

    python examples/elastic_images.py              trains alone
    python examples/elastic_images.py --demo       as a job that grows, shrinks, loses a worker

What makes the script elastic is in `train`: the `with`, the `for`, `run.model` and `run.step`.
"""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from rota.elastic import Elastic, ElasticJob, JobSpec, Member


def images(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten patterns under noise; nothing to download."""
    rng = torch.Generator().manual_seed(0)
    patterns = torch.randn(10, 1, 28, 28, generator=rng)
    kinds = torch.randint(0, 10, (count,), generator=rng)
    return patterns[kinds] + 1.5 * torch.randn(count, 1, 28, 28, generator=rng), kinds


def train(epochs: int) -> None:
    inputs, kinds = images(4000)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 12 * 12, 10)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with Elastic(model, optimizer, samples=len(inputs), batch=100, epochs=epochs) as run:
        for batch in run:
            chosen = torch.from_numpy(batch.indices)
            loss = nn.functional.cross_entropy(run.model(inputs[chosen]), kinds[chosen])
            run.step(loss)
            if run.rank == 0 and run.steps % 100 == 0:
                print(f"step {run.steps}, {run.size} workers, loss {loss.item():.3f}")


def demo() -> None:
    """What a scheduler does."""
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    command = (sys.executable, str(Path(__file__).resolve()), "500")
    spec = JobSpec(command=command, members=(Member("a"),), preload=("torch", "torch._dynamo"))
    job = ElasticJob.launch(folder / "job", spec)
    print(f"{job.folder}: the agent listens")
    for names in ("a", "ab", "abc", "bc"):
        job.resize(list(names))
        status = job.settle()
        time.sleep(2)
        assert status.last is not None
        print(f"{'+'.join(status.active):8} pause {1e3 * status.last.pause_s:.1f} ms")
    os.kill(job.observe().pids["b"], signal.SIGKILL)
    time.sleep(1)
    status = job.observe()
    assert status.last is not None
    print(f"{'+'.join(status.active):8} pause {1e3 * status.last.pause_s:.1f} ms: {status.refused}")
    job.stop()
    print(job.wait(60))


if __name__ == "__main__":
    if sys.argv[1:] == ["--demo"]:
        demo()
    else:
        train(int(sys.argv[1]) if sys.argv[1:] else 5)
