"""Measure how long the agents that grow networks take to decide, on one thread.

The network has ten layers, and twenty growths are to be weighed; the published agent, which knows
four choices only, reads as many layers. Weights are random, which changes nothing in the time.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch

from rota.adapt.growth import Growth
from rota.adapt.growth_agent import GrowthAgent
from rota.adapt.moment import GrowthChoice, LayerFacts, Moment
from rota.adapt.published_agent import PublishedAgent

if TYPE_CHECKING:
    from rota.adapt.growth_cases import Chooser

LAYERS, GROWTHS = 10, 20
SKIPPED, DECISIONS = 20, 500


def a_layer(index: int) -> LayerFacts:
    """A convolution with a norm."""
    return LayerFacts(
        name=f"features.{index}",
        kind="conv2d",
        inputs=32,
        outputs=32,
        kernel=3,
        stride=1,
        positions=64,
        parameters=9_344,
        flops=589_824.0,
        norm=True,
        activation="relu",
        residual=index % 2 == 1,
        added=0,
        original=True,
    )


def a_moment() -> Moment:
    """A network of ten layers, of which each can be deepened or widened."""
    choices = [
        GrowthChoice(
            Growth("deepen" if i < LAYERS else "widen", f"features.{at}"), at, 12.0 + i, 99_999
        )
        for i in range(GROWTHS)
        for at in [i % LAYERS]
    ]
    return Moment(
        layers=tuple(a_layer(i) for i in range(LAYERS)),
        tokens=tuple(f"Conv2d({8 + i}, 32, kernel_size=(3, 3))" for i in range(LAYERS)),
        choices=(*choices, GrowthChoice(None, -1, 10.0, 93_440)),
        left_s=200.0,
        total_s=400.0,
        epoch_s=10.0,
        gpus_before=1.0,
        gpus=2.0,
        accuracy=0.6,
        slope=0.01,
        loss=1.0,
        learning_rate=0.01,
        step=0,
    )


def decide_ms(chooser: Chooser, moment: Moment) -> list[float]:
    """Median and 99th percentile of a decision's milliseconds."""
    took = []
    for _ in range(SKIPPED + DECISIONS):
        began_s = perf_counter()
        chooser.choose(moment)
        took.append(1e3 * (perf_counter() - began_s))
    return [float(x) for x in np.percentile(took[SKIPPED:], [50, 99])]


def main() -> None:
    torch.set_num_threads(1)
    moment = a_moment()
    rng = np.random.default_rng(0)
    published = PublishedAgent.draw([moment.tokens], rng)
    four = replace(moment, choices=moment.choices[-4:])
    print(f"{LAYERS} layers; {GROWTHS} growths, the published agent 3")
    for name, chooser, shown in (
        ("ours", GrowthAgent.draw(rng), moment),
        ("published", published, four),
    ):
        p50, p99 = decide_ms(chooser, shown)
        print(f"  {name:12} p50 {p50:6.2f} ms   p99 {p99:6.2f} ms")


if __name__ == "__main__":
    main()
