"""`rota run --backend slurm`: the daemon beside a Slurm controller."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from math import floor
from time import sleep, time
from typing import TYPE_CHECKING, Any, Final

from rota.cli.daemon_loop import (
    drive,
    journal_of,
    learning,
    policy_named,
    stopped_by_signals,
)
from rota.cli.slurm_rest import slurmrestd
from rota.errors import BackendError, ConfigError, JournalError

if TYPE_CHECKING:
    from pathlib import Path

    from rota.backends.cluster_backend import ClusterBackend
    from rota.backends.driver import ClusterSight
    from rota.backends.slurm.slurm_driver import SlurmDriver
    from rota.cli.daemon import DaemonOptions
    from rota.cli.daemon_loop import Speaker
    from rota.core import Cluster, Policy
    from rota.run.guard import Guard
    from rota.run.journal import Journal
    from rota.run.recorder import Recorder

AGAIN_S: Final = 5.0
"""Seconds until a controller that did not answer, or a full disk, is tried again."""
ROOM_BYTES: Final = 1 << 20
"""Must be free on the disk of the state when the daemon starts."""


def run_on_slurm(options: DaemonOptions, policy: Policy, guard: Guard, say: Speaker) -> None:
    """Schedule the jobs of some partitions until a signal comes; jobs outlive the daemon."""
    from rota.backends.local.private import make_private
    from rota.backends.local.state_dir import JOURNAL
    from rota.backends.slurm.hook import check_partitions
    from rota.backends.slurm.slurm_driver import SlurmDriver
    from rota.backends.slurm.tools import SlurmTools
    from rota.run.journal_file import lacks_room

    partitions = frozenset(options.partition or ())
    if not partitions:
        raise ConfigError("Say which jobs rota is to start: --partition NAME; repeat for more.")
    check_partitions(partitions)
    rest = slurmrestd(options.slurmrestd)
    root = options.state.expanduser().absolute()
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        make_private(root, root / JOURNAL)
    except OSError as error:
        raise ConfigError(f"--state {root} cannot be used: {error.strerror}.") from None
    if options.shadow:
        # The backend does nothing at all: then the journal says who decided, the fallback as well.
        guard = replace(guard, shadow=False)
    _check_state(root, shadow=options.shadow)
    driver = SlurmDriver(
        SlurmTools(), partitions, passive=options.shadow, rest=rest, say=say
    )  # fmt: skip
    while True:
        _await_room(root, say)
        try:
            return _schedule(options, policy, guard, driver, root, say)
        except (OSError, JournalError) as error:
            if not lacks_room(error):
                raise
            say(f"{error}; it begins again, and goes on where it was", trouble=True)


def _schedule(
    options: DaemonOptions, policy: Policy, guard: Guard, driver: SlurmDriver, root: Path,
    say: Speaker,
) -> None:  # fmt: skip
    """Schedule until a signal comes; all that matters is in the files below `root`."""
    from rota.backends.heartbeat_file import claimed
    from rota.backends.local.daemon_lock import locked
    from rota.backends.local.state_dir import JOURNAL

    partitions, sign = driver.demands.partitions, _heartbeat(options, root)
    sight = _first_sight(driver, partitions, say)
    _try_out(options, sight, say)
    with ExitStack() as stack:
        gpus = sum(node.gpus for node in sight.nodes)
        stack.enter_context(locked(root, policy=options.policy, gpus=gpus))
        if sign is not None:
            stack.enter_context(claimed(sign))
        cluster = _cluster(sight)
        columns = {
            name: getattr(cluster, name)
            for name in ("names", "gpus", "gpu_types", "type", "rack", "cpus", "memory_gb")
        }
        meta = {"policy": options.policy, "total_gpus": gpus, "backend": "slurm",
                "cluster": columns, "began_at": time(), "shadow": options.shadow,
                "min_run_s": options.min_run}  # fmt: skip

        def make(journal: Journal) -> tuple[ClusterBackend, Recorder]:
            return _backend(options, driver, root, sign, journal, stack, say)

        backend, recorder = stack.enter_context(journal_of(root / JOURNAL, meta, make, say))
        stack.enter_context(stopped_by_signals(backend))
        how = "watches" if options.shadow else "schedules"
        say(f"{options.policy} {how} {', '.join(sorted(partitions))} of Slurm: {len(sight.nodes)} "
            f"nodes, {gpus} GPUs; state in {root}, process {os.getpid()}")  # fmt: skip
        decider = learning(policy, options.policy, root, say)
        drive(decider, backend, guard, recorder, say, options.deciders)
        if left := len(backend.jobs):
            jobs = "1 job" if left == 1 else f"{left} jobs"
            say(f"leaves {jobs} to Slurm; the next `rota run` knows them again")


def _check_state(root: Path, *, shadow: bool) -> None:
    """Refuse to mix, in one journal, what rota did with what Slurm did, or with jobs from here."""
    from rota.backends.book_reader import read_book
    from rota.backends.local.state_dir import JOURNAL, ORIGIN
    from rota.run.reader import read_journal

    path, before = root / JOURNAL, shadow
    try:
        is_book = path.is_file() and read_book(path) is not None
        if path.is_file():
            with read_journal(path) as view:
                before = bool(view.meta.get("shadow"))
    except JournalError:
        return  # it is put aside
    if (root / ORIGIN).exists() and not is_book:
        raise ConfigError(
            f"{root} is the state of `rota submit` and `rota run` on this machine; give the jobs "
            "of Slurm another --state."
        )
    if before != shadow:
        raise ConfigError(
            f"{path} was begun {'with' if before else 'without'} --shadow; give "
            f"{'a run without it' if before else 'the shadow'} another --state."
        )


def _await_room(root: Path, say: Speaker) -> None:
    """Wait until the state can be written; the watchdog looks after the jobs in the meantime."""
    probe, said = root / "room.part", False
    while True:
        try:
            probe.write_bytes(bytes(ROOM_BYTES))
            return
        except OSError as error:
            if not said:
                say(f"--state {root} cannot be written: {error.strerror}; make room there. It is "
                    f"tried again every {AGAIN_S:g} s, and no job is started until then",
                    trouble=True)  # fmt: skip
            said = True
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
        sleep(AGAIN_S)


def _heartbeat(options: DaemonOptions, root: Path) -> Path | None:
    """Where to give signs of life; ConfigError where none could be."""
    if options.shadow:  # the hook must not take rota for a scheduler, and hold jobs for it
        return None
    path = (options.heartbeat or root / "heartbeat").expanduser().absolute()
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigError(
            f"--heartbeat {path} cannot be written: name a file in a directory of rota's own, or "
            "the watchdog takes rota for dead, and the hook holds no jobs for it."
        )
    return path


def _first_sight(driver: SlurmDriver, partitions: frozenset[str], say: Speaker) -> ClusterSight:
    """What Slurm says first; a controller that is not there yet is waited for."""
    said = ""
    while True:
        try:
            sight = driver.observe()
            break
        except BackendError as error:
            if "no command" in str(error):
                raise
            if str(error) != said:
                said = str(error)
                say(f"{said}; asked again every {AGAIN_S:g} s", trouble=True)
            sleep(AGAIN_S)
    if empty := sorted(partitions - driver.demands.populated):
        raise ConfigError(
            f"Slurm has no nodes in {', '.join(empty)}; `sinfo -s` lists its partitions."
        )
    return sight


def _cluster(sight: ClusterSight) -> Cluster:
    from rota.backends.node_table import NodeTable

    nodes = NodeTable([])
    nodes.see(sight.nodes)
    assert nodes.cluster is not None
    return nodes.cluster


def _try_out(options: DaemonOptions, sight: ClusterSight, say: Speaker) -> None:
    """Have policies decide about made-up jobs, so that the first round waits for no compiler."""
    from rota.run.rehearsal import rehearse

    for name in dict.fromkeys([options.policy, options.fallback]):
        if name != "none":
            say(f"tries out {name} on made-up jobs")
            rehearse(policy_named(name, options.history), _cluster(sight), options.deadline)


def _backend(
    options: DaemonOptions, driver: SlurmDriver, root: Path, sign: Path | None, journal: Journal,
    stack: ExitStack, say: Speaker,
) -> tuple[ClusterBackend, Recorder]:  # fmt: skip
    from rota.backends.cluster_backend import ClusterBackend
    from rota.backends.heartbeat_file import HeartbeatFile
    from rota.backends.job_book import JobBook
    from rota.backends.local.state_dir import SPEEDS
    from rota.backends.preemption_limits import PreemptionLimits
    from rota.run.recorder import Recorder
    from rota.run.speeds import Speeds

    # Slurm tells whole seconds: what begins in this one has not begun before the book.
    book = stack.enter_context(closing(JobBook(journal.path, floor(time()) - 1.0)))
    limits: dict[str, Any] = {"per_hour": options.preempt_rate, "per_job": options.preempt_budget}
    backend = ClusterBackend(
        driver, book, Speeds(root / SPEEDS, say), every_s=options.every, min_run_s=options.min_run,
        passive=options.shadow, drain=options.drain, limits=PreemptionLimits(**limits), say=say,
        root=root, heartbeat=None if sign is None else HeartbeatFile(sign),
    )  # fmt: skip
    stack.callback(backend.close)
    return backend, Recorder(journal, backend.roll.facts)
