"""An elastic training for the live demonstration: a real network, real gradients, real workers.

There is no GPU in it. What a GPU would do for a batch is slept: `--device-ms` for each sample, and
`--fixed-ms` for each step, however many workers there are. Forward, backward, the all-reduce and
the optimizer are real.
"""

import argparse
import time

import torch
from torch import nn

from rota.elastic import Elastic


class Words(nn.Module):
    """A small transformer that reads 16 words and names one of ten kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embed(words)).mean(dim=1))


def network(name: str) -> nn.Module:
    """One of three."""
    if name == "image":
        return nn.Sequential(
            nn.Conv2d(1, 4, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 10)
        )
    return (
        Words()
        if name == "words"
        else nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 10))
    )


def data(name: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten kinds under noise; nothing to download."""
    rng = torch.Generator().manual_seed(0)
    kinds = torch.randint(0, 10, (count,), generator=rng)
    if name == "words":
        shown = torch.randint(0, 64, (count, 16), generator=rng)
        shown[:, ::2] = kinds[:, None] * 6
        return shown, kinds
    form = (1, 16, 16) if name == "image" else (32,)
    patterns = torch.randn(10, *form, generator=rng)
    return patterns[kinds] + torch.randn(count, *form, generator=rng), kinds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=["image", "words", "table"])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--samples", type=int, default=640)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device-ms", type=float, default=2.0)
    parser.add_argument("--fixed-ms", type=float, default=5.0)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = network(options.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    inputs, kinds = data(options.model, options.samples)
    with Elastic(
        model, optimizer, samples=options.samples, batch=options.batch, epochs=options.epochs
    ) as run:
        for batch in run:
            chosen = torch.from_numpy(batch.indices)
            loss = nn.functional.cross_entropy(run.model(inputs[chosen]), kinds[chosen])
            time.sleep((options.fixed_ms + options.device_ms * batch.share) / 1000)
            run.step(loss)
            if run.rank == 0 and run.steps % 50 == 0:
                print(f"step {run.steps}, {run.size} workers, loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
