"""The memory layout that all rooms share: one record per node, per job, per share.

The simulator keeps its state in these records, a snapshot is a copy of them, a draft edits a
copy, and the compiled kernels of the policies read and write them. So every rule is implemented
once, for Python and for compiled code.
"""

from __future__ import annotations

from typing import Final

import numpy as np

NODE: Final = np.dtype(
    [
        ("gpus", np.int32),  # the number it has
        ("free", np.int32),  # GPUs that no job holds; 0 while the node is down
        ("type", np.int32),  # index into Cluster.gpu_types
        ("rack", np.int32),
        ("up", np.bool_),
        ("cpus", np.float64),
        ("free_cpus", np.float64),
        ("memory_gb", np.float64),
        ("free_memory_gb", np.float64),
        ("price_per_gpu_h", np.float64),
    ],
    align=True,
)
"""One node: what it has and what of it is free."""

SHARE: Final = np.dtype(
    [("node", np.int32), ("workers", np.int32), ("servers", np.int32)],
)
"""What one job holds on one node. A job's shares are ordered by node."""

WAITING: Final = 0
RUNNING: Final = 1
FUTURE: Final = 2
"""Not submitted yet: known to the simulator alone."""
DONE: Final = 3
FAILED: Final = 4
"""Gave up after its last retry."""

JOB: Final = np.dtype(
    [
        ("uid", np.int64),  # the backend's number for the job; never reused
        ("status", np.int32),
        ("user", np.int32),  # −1: unknown
        ("model", np.int32),
        ("curve", np.int32),  # its speed in Snapshot.curves, −1: unknown
        ("gpu_type", np.int32),  # the only type it runs on, −1: any
        # What it asks for.
        ("gpus", np.int32),  # workers × gpus_per_worker
        ("workers", np.int32),
        ("min_workers", np.int32),
        ("max_workers", np.int32),
        ("servers", np.int32),
        ("min_servers", np.int32),
        ("max_servers", np.int32),
        ("gpus_per_worker", np.int32),  # 0: its workers need CPUs only
        ("cpus_per_worker", np.float64),
        ("memory_gb_per_worker", np.float64),
        ("cpus_per_server", np.float64),
        ("memory_gb_per_server", np.float64),
        ("submit_s", np.float64),
        ("deadline_s", np.float64),
        # What a scheduler may believe about its length, in seconds at the requested size.
        ("estimate_s", np.float64),
        ("remaining_s", np.float64),
        # What it has had, settled up to `settled_s`.
        ("progress_s", np.float64),  # work done, in seconds at the requested size
        ("attained_gpu_s", np.float64),  # GPU-seconds held, pauses included
        ("settled_s", np.float64),
        ("resume_s", np.float64),  # a restart ends here: no progress before
        ("pace", np.float64),  # progress per second while it runs
        ("started_s", np.float64),  # first start, NaN until then
        ("since_s", np.float64),  # start of the present stint, NaN while it waits
        # What it holds now: shares[share_at : share_at + share_len].
        ("held_workers", np.int32),
        ("held_servers", np.int32),
        ("share_at", np.int64),
        ("share_len", np.int32),
        # What a change costs it.
        ("preemptions", np.int32),
        ("restart_s", np.float64),  # seconds without progress when it starts after a stop
        ("resize_s", np.float64),  # the same after a resize or a move while it runs
        ("min_run_s", np.float64),  # it may not be stopped sooner after a start
    ],
    align=True,
)
"""One job as a scheduler sees it."""

SLACK: Final = 1e-9
"""Rounding that fractional CPU and memory demands may add up to before they count."""

# What happened, as a log, a journal or a plan numbers it; journals on disk keep these numbers.
ARRIVE: Final = 0
START: Final = 1
STOP: Final = 2
MOVE: Final = 3
RESIZE: Final = 4
FINISH: Final = 5
KILL: Final = 6
GIVE_UP: Final = 7
NODE_DOWN: Final = 8
NODE_UP: Final = 9


EVENT: Final = np.dtype(
    [
        ("time_s", np.float64),
        ("job", np.int32),  # or the node, for NODE_DOWN and NODE_UP
        ("kind", np.int16),
        ("entries", np.int32),  # the number of shares in the log that belong to it
    ],
    align=True,
)
"""One thing that happened; a log keeps the shares given beside it."""

ROUND: Final = np.dtype(
    [
        ("time_s", np.float64),
        ("waiting", np.int32),
        ("running", np.int32),
        ("held_gpus", np.int32),
        ("up_gpus", np.int32),
        ("stray_gpus", np.int32),  # free, on partly used nodes
    ],
    align=True,
)
"""Where a cluster stands after a round."""
