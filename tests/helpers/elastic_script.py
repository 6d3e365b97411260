"""A training script for the tests of rota.elastic: records every sample that it trains."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from growers import ScriptedGrower
from torch import nn

from rota.elastic import Elastic


def wait_for(gate: Path) -> None:
    """Wait until the test opens a gate; a test that never does kills its members."""
    while not gate.exists():
        time.sleep(0.01)


def leave_behind(place: str) -> None:
    """Leave a process that is hard to find: its own session, no output, no parent."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(3):
                os.close(number)
            Path(place, str(os.getpid())).touch()
            time.sleep(1000)
        os._exit(0)


def main(config: dict[str, Any]) -> None:
    name = os.environ.get("ROTA_MEMBER", "alone")
    config = config | config.get("only", {}).get(name, {})
    if "leaves" in config:
        leave_behind(config["leaves"])
    torch.manual_seed(config.get("init", 0) + os.getpid() * config.get("differ", 0))
    width = config.get("width", 16)
    model = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 3))
    kind = getattr(torch.optim, config.get("optimizer", "SGD"))
    extra = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind(model.parameters(), lr=config.get("lr", 0.05), **extra)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.9)
    data = torch.Generator().manual_seed(5)
    samples = config.get("samples", 240)
    inputs = torch.randn(samples, 8, generator=data)
    targets = torch.randint(0, 3, (samples,), generator=data)
    grower = None
    if "grow" in config:
        grower = ScriptedGrower(name=name, own=model, place=config["out"], **config["grow"])
    with (
        Path(config["out"], f"{name}.jsonl").open("a", buffering=1) as out,
        Elastic(
            model,
            optimizer,
            samples=samples,
            batch=config.get("batch", 24),
            epochs=config.get("epochs", 2),
            rule=config.get("rule", "constant"),
            scheduler=scheduler,
            clip_norm=config.get("clip_norm"),
            check_every=config.get("check_every", 10),
            grow=grower,
        ) as run,
    ):
        for batch in run:
            time.sleep(config.get("pace_s", 0.0))
            if batch.step in config.get("gates", ()):
                wait_for(Path(config["out"], f"gate{batch.step}"))
            misdeed = config.get("misdeeds", {}).get(name, ["", -1])
            if batch.step == misdeed[1]:
                if misdeed[0] == "deaf":
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                if misdeed[0] in ("hang", "deaf"):
                    time.sleep(3600)
                elif misdeed[0] == "raise":
                    raise ValueError("the script is wrong")
                elif misdeed[0] == "forget":
                    continue
                elif misdeed[0] == "spoil":
                    with torch.no_grad():
                        model[0].bias[0] += 1.0
                elif misdeed[0] == "quit":
                    break
            chosen = torch.from_numpy(batch.indices)
            micro = config.get("micro") or len(chosen)
            parts = chosen.split(micro)
            losses = [
                nn.functional.cross_entropy(run.model(inputs[part]), targets[part])
                for part in parts
            ]
            mean = sum(float(x.detach()) * len(k) for x, k in zip(losses, parts, strict=True))
            line = {
                "step": batch.step,
                "generation": run.generation,
                "epoch": batch.epoch,
                "took": batch.indices[: batch.share].tolist(),
                "loss": mean / len(chosen) * batch.share / batch.total,
                "lr": optimizer.param_groups[0]["lr"],
                "version": len(run.growths),
            }
            out.write(json.dumps(line) + "\n")
            if len(parts) == 1 and "micro" not in config:
                run.step(losses[0])
                continue
            # Some ranks give their last loss to step(), some none; the result must be the same.
            last = len(parts) - (run.rank + batch.step) % 2
            for loss, part in zip(losses[:last], parts, strict=False):
                run.backward(loss, samples=len(part))
            rest = losses[last:]
            run.step(rest[0], samples=len(parts[-1])) if rest else run.step()
        if not run.leaving:
            total = sum(float(p.detach().double().sum()) for p in model.parameters())
            out.write(json.dumps({"end": total}) + "\n")
    if config.get("linger"):
        wait_for(Path(config["out"], "end"))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
