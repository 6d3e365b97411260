"""A policy of one's own: the job whose GPUs have waited longest in all comes first.

    rota simulate poisson:jobs=1000 -p examples/longest_wait.py:LongestWait -p fifo --nodes 8

A policy is any class with a method `decide(snapshot)`. It looks at the snapshot, edits a
draft, and commits it; the simulator (or a real cluster) does the rest.
"""

import numpy as np

from rota.core import Decision, Draft, Snapshot
from rota.policies import Placer


class LongestWait:
    """Longest wait × GPUs first, so that large jobs need not wait long; nobody is stopped."""

    name = "longest-wait"

    def __init__(self) -> None:
        self.place = Placer("consolidate")  # on as few nodes as possible

    def decide(self, snapshot: Snapshot) -> Decision:
        """Start waiting jobs, as long as there is room for them."""
        draft = Draft(snapshot)  # begins with what every job holds now
        jobs = snapshot.jobs
        waited_gpu_s = (snapshot.time_s - jobs.submit_s) * jobs.gpus
        for job in np.argsort(-waited_gpu_s, kind="stable").tolist():
            if jobs.waiting[job]:
                share = self.place(draft, job)
                if share is not None:  # no room: let those behind it try
                    draft.place(job, share)
                    draft.reason(job, f"waited {waited_gpu_s[job]:.0f} GPU-seconds")
        return draft.commit()
