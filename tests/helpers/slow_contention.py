"""Slow twins of the laws of contention: each job's pace, worked out from who sits where."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slow_sim import SlowJob, SlowSim

    from rota.core.speed import Contention, Curves


class Laws:
    """The pace of a job under `curves` and `contention`; job i trains model i % models."""

    def __init__(
        self, curves: Curves, contention: Contention, racks: list[int], gpus: list[int]
    ) -> None:
        self.curves, self.c, self.racks, self.gpus = curves, contention, racks, gpus

    def kind(self, job: SlowJob) -> int:
        share = job.share or []
        return int(self.c.kind[job.index % len(self.curves.names), len(share), job.gpus])

    def alone(self, job: SlowJob) -> float:
        table = self.curves.speed[job.index % len(self.curves.names), 0]
        best = max(
            table[span, job.gpus]
            for span in range(1, sum(has > 0 for has in self.gpus) + 1)
            if sum(sorted(self.gpus)[-span:]) >= job.gpus >= span
        )
        return float(table[len(job.share or []), job.gpus] / best)

    def others(self, sim: SlowSim, job: SlowJob, node: int) -> list[tuple[SlowJob, int]]:
        """Those who send from the node beside the job, and their GPUs there."""
        return [
            (other, gpus)
            for other in sim.running()
            if other is not job and self.kind(other) >= 0
            for n, gpus in other.share or []
            if n == node
        ]

    def pairs(self, sim: SlowSim, job: SlowJob) -> float:
        ratios = [
            self.c.ratio[self.kind(job), self.kind(other)]
            for node, _ in job.share or []
            for other, _ in self.others(sim, job, node)
        ]
        return float(min(ratios, default=1.0))

    def ranks(self, sim: SlowSim, job: SlowJob, by_share: bool = False) -> float:
        worst = 1.0
        for node, _ in job.share or []:
            ratio = 1.0
            for other, gpus in self.others(sim, job, node):
                weight = gpus / sim.gpus[node] if by_share else 1.0
                harm = self.c.hurt[self.kind(job)] * self.c.harm[self.kind(other)]
                ratio *= max(0.0, 1 - weight * harm)
            worst = min(worst, ratio)
        return float(worst)

    def links_of(self, job: SlowJob) -> list[str]:
        nodes = [node for node, _ in job.share or []]
        racks = {self.racks[node] for node in nodes}
        over = [f"up{rack}" for rack in racks] + ["spine"] if len(racks) > 1 else []
        return [f"nic{node}" for node in nodes] + over

    def capacity(self, link: str) -> float:
        if link.startswith("nic"):
            return float(self.c.link_gbps[int(link[3:])])
        return float(self.c.uplink_gbps[int(link[2:])]) if link != "spine" else self.c.spine_gbps

    def links(self, sim: SlowSim, job: SlowJob) -> float:
        """Bottleneck by bottleneck: whoever uses the tightest link gets its equal share of it."""
        open_ = [other for other in sim.running() if self.kind(other) >= 0]
        rates: dict[int, float] = {}
        wants = {o.index: float(self.c.traffic_gbps[self.kind(o)]) for o in open_}
        while open_:
            tightest, share = None, float("inf")
            for link in {link for other in open_ for link in self.links_of(other)}:
                used = sum(rates.get(o.index, 0.0) for o in sim.running() if link in (
                    self.links_of(o) if self.kind(o) >= 0 else []))  # fmt: skip
                users = sum(link in self.links_of(o) for o in open_)
                if (self.capacity(link) - used) / users < share:
                    tightest, share = link, (self.capacity(link) - used) / users
            modest = [o for o in open_ if wants[o.index] <= share]
            for o in modest or [o for o in open_ if tightest in self.links_of(o)]:
                rates[o.index] = min(share, wants[o.index])
                open_.remove(o)
        want, talk = wants[job.index], float(self.c.talk[self.kind(job)])
        return 1 / (1 - talk + talk * want / rates[job.index])
