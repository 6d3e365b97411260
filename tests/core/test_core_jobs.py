"""Jobs: what cannot be asked for is refused, by field and value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rota.core import Job, JobTable
from rota.errors import InputError

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"workers": 0}, "Job.workers=0; it must be a whole number from 1"),
        ({"workers": -1}, "Job.workers=-1"),
        ({"workers": 1.5}, "Job.workers=1.5"),
        ({"workers": NAN}, "Job.workers=nan"),
        ({"workers": 2**31}, "Job.workers=2147483648"),
        ({"workers": 3, "min_workers": 4}, "Job.workers=3 does not lie between min_workers=4"),
        ({"workers": 3, "max_workers": 2}, "does not lie between min_workers=3 and max_workers=2"),
        ({"min_workers": -1}, "Job.min_workers=-1"),
        ({"gpus_per_worker": -1}, "Job.gpus_per_worker=-1"),
        ({"workers": 2**16, "gpus_per_worker": 2**16}, "4294967296 GPUs; at most"),
        ({"servers": -1}, "Job.servers=-1"),
        ({"servers": 1, "min_servers": 2}, "Job.servers=1 does not lie between min_servers=2"),
        ({"servers": 1, "max_servers": 0}, "and max_servers=0"),
        ({"gpu_type": -3}, "Job.gpu_type=-3"),
        ({"gpu_type": "a"}, "Job.gpu_type=a; it must be a whole number from -2"),
        ({"workers": "2"}, "Job.workers=2; it must be a whole number"),
        ({"user": None}, "Job.user=None; it must be a whole number"),
        ({"cpus_per_worker": "a"}, "Job.cpus_per_worker=a; it must be a number of 0 or more"),
        ({"submit_s": "now"}, "Job.submit_s=now; it must be a number"),
        ({"estimate_s": "1h"}, "Job.estimate_s=1h; it must be a number"),
        ({"user": -2}, "Job.user=-2"),
        ({"cpus_per_worker": -0.5}, "Job.cpus_per_worker=-0.5; it must be a number of 0 or more"),
        ({"memory_gb_per_worker": INF}, "Job.memory_gb_per_worker=inf"),
        ({"cpus_per_server": NAN}, "Job.cpus_per_server=nan"),
        ({"restart_s": -1.0}, "Job.restart_s=-1"),
        ({"resize_s": NAN}, "Job.resize_s=nan"),
        ({"min_run_s": INF}, "Job.min_run_s=inf"),
        ({"submit_s": NAN}, "Job.submit_s=nan"),
        ({"deadline_s": NAN}, "Job.deadline_s=nan"),
        (
            {"estimate_s": -1.0},
            "Job.estimate_s=-1.0; it must be 0 or more, or NaN if it is unknown",
        ),
    ],
)
def test_what_cannot_be_asked_for_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as error:
        Job(**{"workers": 1, **wrong})
    assert says in str(error.value)


def test_the_edges_of_what_can_be_asked_for() -> None:
    jobs = [
        Job(workers=1),
        Job(workers=4, min_workers=0, max_workers=9, gpus_per_worker=0, cpus_per_worker=1e-9),
        Job(workers=1, servers=2, min_servers=0, max_servers=2, gpu_type=-2),
        Job(workers=1, estimate_s=INF, submit_s=-1e9, deadline_s=-INF),
        Job(workers=np.int64(2), estimate_s=0.0),
    ]
    assert JobTable.of(jobs).workers.tolist() == [1, 4, 1, 1, 2]
