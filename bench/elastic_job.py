"""One training: elastic, growing, under torchrun, restarted by hand, and compared.

Started by bench/elastic.py and bench/elastic_growth.py; writes a line per step: time, group, step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from rota.elastic import Elastic

SIZES = {"26 k": (64, 6), "2.5 M": (640, 6), "25 M": (2048, 6)}
"""Width and depth by the number of parameters."""
SAMPLES, BATCH = 4800, 24
BLOCK = 10


def build(size: str) -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    torch.manual_seed(0)
    width, depth = SIZES[size]
    layers = [m for _ in range(depth) for m in (nn.Linear(width, width), nn.Tanh())]
    model = nn.Sequential(*layers)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4), torch.randn(SAMPLES, width)


def elastic(config: dict[str, Any]) -> None:
    model, optimizer, data = build(config["size"])
    name = os.environ["ROTA_MEMBER"]
    with (
        Path(config["out"], name).open("w", buffering=1) as out,
        Elastic(model, optimizer, samples=SAMPLES, batch=BATCH, epochs=10**9) as run,
    ):
        for batch in run:
            time.sleep(config["pace_s"])
            x = data[torch.from_numpy(batch.indices)]
            run.step(mse_loss(run.model(x), x))
            print(time.monotonic(), run.generation, run.steps, file=out)


def growing(config: dict[str, Any]) -> None:
    """Elastic, with a network that grows whenever there are as many workers as told."""
    from rota.adapt.growth import Growth
    from rota.adapt.live import Grow

    class WhenComplete(Grow):
        """Leaves the network as it is while workers are missing."""

        def propose(self, facts: Any, *network: Any) -> dict[str, Any] | None:
            return super().propose(facts, *network) if facts.workers == config["workers"] else None

    model, optimizer, data = build(config["size"])
    name = os.environ["ROTA_MEMBER"]
    growths = [
        Growth("deepen", str(2 * k)) if k % 2 else Growth("widen", str(2 * k), 1.25)
        for k in range(config["growths"])
    ]
    grow = WhenComplete(data[:64], growths)
    settings = {"samples": SAMPLES, "batch": BATCH, "epochs": 10**9, "grow": grow}
    with (
        Path(config["out"], name).open("w", buffering=1) as out,
        Elastic(model, optimizer, **settings) as run,
    ):
        for batch in run:
            time.sleep(config["pace_s"])
            x = data[torch.from_numpy(batch.indices)]
            run.step(mse_loss(run.model(x), x))
            print(time.monotonic(), run.generation, run.steps, file=out)


def restarted(config: dict[str, Any]) -> None:
    """Plain DDP that continues from the last checkpoint, as under torchrun or when restarted."""
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    model, optimizer, data = build(config["size"])
    saved, stop, step = Path(config["out"], "saved.pt"), Path(config["out"], "stop"), 0
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    net = DistributedDataParallel(model)
    group = f"{n}.{os.environ['MASTER_PORT']}"
    ending = torch.zeros(1)
    with Path(config["out"], f"{os.getpid()}").open("w", buffering=1) as out:
        while not ending.item():
            time.sleep(config["pace_s"])
            start = step * BATCH % SAMPLES
            x = data[start + rank : start + BATCH : n]
            mse_loss(net(x), x).backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            print(time.monotonic(), group, step, file=out)
            ending[0] = float(stop.exists())
            dist.all_reduce(ending, dist.ReduceOp.MAX)
            if rank == 0 and (ending.item() or step % config["save_every"] == 0):
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "step": step}, saved.with_suffix(".part"))
                saved.with_suffix(".part").replace(saved)
    dist.barrier()
    dist.destroy_process_group()


def compared(config: dict[str, Any]) -> None:
    """Blocks of elastic steps and of plain ones in turn, in the same processes.

    Compared are the shortest steps of neighbouring blocks: what others do on the machine
    lengthens some steps by far more than what is to be measured.
    """
    name, n, size = os.environ["ROTA_MEMBER"], config["workers"], config["batch"]
    model, optimizer, data = build(config["size"])
    plain, plain_optimizer, _ = build(config["size"])
    store = dist.FileStore(str(Path(config["out"], "store")), n)
    net: nn.Module = plain
    if n > 1:
        dist.init_process_group("gloo", store=store, rank=int(name[1:]), world_size=n)
        net = DistributedDataParallel(plain)
    order, taken, times = torch.randperm(SAMPLES), 0, {"elastic": [], "plain": []}
    with Elastic(model, optimizer, samples=SAMPLES, batch=size, epochs=10**9) as run:
        began_s = time.perf_counter()
        for count, batch in enumerate(run, 1):
            x = data[torch.from_numpy(batch.indices)]
            run.step(mse_loss(run.model(x), x))
            times["elastic"].append(time.perf_counter() - began_s)
            for _ in range(BLOCK if count % BLOCK == 0 else 0):
                began_s = time.perf_counter()
                x = data[order[taken : taken + size][int(name[1:]) :: n]]
                taken = (taken + size) % (SAMPLES - size)
                mse_loss(net(x), x).backward()
                plain_optimizer.step()
                plain_optimizer.zero_grad()
                times["plain"].append(time.perf_counter() - began_s)
            if count == config["blocks"] * BLOCK:
                break
            began_s = time.perf_counter()
    if run.rank == 0:
        low = {
            way: [min(found[k : k + BLOCK]) for k in range(BLOCK, len(found), BLOCK)]
            for way, found in times.items()
        }
        ratios = [e / p for e, p in zip(low["elastic"], low["plain"], strict=True)]
        found = {"ratio": median(ratios), "plain_ms": 1e3 * median(low["plain"])}
        Path(config["out"], "cost.json").write_text(json.dumps(found))


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    ways = {"elastic": elastic, "growing": growing, "restarted": restarted, "compared": compared}
    ways[settings["way"]](settings)
