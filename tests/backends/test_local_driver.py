"""This machine as a driver: the same contract, head and crashes as for clusters of others."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from errno import ENOSPC
from typing import TYPE_CHECKING, Any

import pytest
from children import eventually
from elastic_jobs import PATIENCE_S, fork_server, runs
from local_jobs import asked, elastic, python, site

from rota.backends.book_reader import read_known
from rota.backends.cluster_backend import ClusterBackend
from rota.backends.job_book import JobBook
from rota.backends.local import live_job
from rota.backends.local.held import Held
from rota.backends.local.local_driver import LocalDriver
from rota.backends.local.orders import Orders
from rota.backends.local.seating import Seat, free_gpus
from rota.run.speeds import Speeds
from rota.testing import check_driver
from rota.testing.backend_contract import check_backend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from local_jobs import Site

COUNTING = """
import os, signal, sys, time
from pathlib import Path
file, log = Path({out!r}, "done"), Path({out!r}, "log")
done = int(file.read_text()) if file.exists() else 0
def write(what):
    with log.open("a") as out:
        out.write(f"{{what}} {{os.getpid()}} {{done}}\\n")
signal.signal(signal.SIGTERM, lambda *_: (file.write_text(str(done)), write("left"), sys.exit(0)))
write("began")
while not Path({out!r}, "end").exists():
    time.sleep(0.01)
    done += 1
write("ended")
"""


def counting(out: Path, **more: Any) -> Any:
    """A job that counts until it is told to end, and goes on where it was stopped."""
    out.mkdir()
    return python(COUNTING.format(out=str(out)), preemptible=True, **more)


@contextmanager
def driver_of(here: Site) -> Iterator[LocalDriver]:
    """The driver alone, as a backend for any cluster has it."""
    here.backend.close()
    driver = LocalDriver(here.store, here.cluster, fork_server=fork_server())
    with closing(driver):
        yield driver
    here.open()


@contextmanager
def backend_over(driver: LocalDriver, root: Path, **options: Any) -> Iterator[ClusterBackend]:
    with ExitStack() as stack:
        book = stack.enter_context(closing(JobBook(root / "book.db", driver.store.origin)))
        made = ClusterBackend(driver, book, Speeds(root / "speeds.npz"), look_s=0.05, **options)
        yield stack.enter_context(closing(made))


def test_it_keeps_the_contract_of_drivers(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here, driver_of(here) as driver:
        request = counting(tmp_path / "out")
        check_driver(driver, lambda: str(here.submit(request)), patience_s=PATIENCE_S)
        log = (tmp_path / "out" / "log").read_text().splitlines()
        counts = [int(line.split()[2]) for line in log]
        assert counts == sorted(counts)  # it went on where it was stopped
        assert driver.fate("1", 0.0)[0] == "cancelled"
        assert not driver.jobs


def test_the_backend_for_clusters_of_others_runs_its_jobs(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here, driver_of(here) as driver:
        for k in range(4):
            here.submit(asked(["sleep", str(0.5 + k / 5)], workers=1 + k % 2, preemptible=True))
        with backend_over(driver, tmp_path, drain=True) as backend:
            check_backend(lambda: backend, patience_s=PATIENCE_S)
        assert [here.store.ended(uid).state for uid in range(1, 5)] == ["done"] * 4
        assert [known.end for known in read_known(tmp_path / "book.db")] == ["done"] * 4


def test_that_backend_resizes_an_elastic_job_in_place(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here, driver_of(here) as driver:
        here.submit(elastic(tmp_path / "out", {"epochs": 10**6, "pace_s": 0.005}))
        with backend_over(driver, tmp_path) as backend:

            def trains(workers: int) -> bool:
                backend._sleep(0.05)
                backend.observe()
                job = driver.jobs[1]
                return bool(job.meter.settled and len(job.status.active) == workers)

            for share in ([(0, 1)], [(0, 2), (1, 1)], [(1, 1)]):
                here.backend = backend  # `give` plans for it
                here.give({1: share})
                workers = sum(count for _, count in share)
                eventually(lambda workers=workers: trains(workers), lambda: here.said)
                assert driver.jobs[1].held.run == 1
            assert backend.observe().jobs.rows[0]["pace"] > 0


def test_jobs_that_need_servers_are_left_to_the_local_backend(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here, driver_of(here) as driver:
        uid = here.submit(asked(["sleep", "9"], kind="servers", servers=1))
        sight = driver.observe()
        assert not sight.jobs[0].managed
        assert "servers" in sight.left[str(uid)]


def test_orders_that_make_no_sense_do_no_harm(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here, driver_of(here) as driver:
        uid = here.submit(asked(["sleep", "1000"], preemptible=True))
        job = driver.observe().jobs[0]
        for action in ("stop", "withdraw", "notice"):
            assert driver.carry_out(action, job, ()).outcome == "done"
        full = driver.carry_out("start", job, (("node-0", 3, 0),))
        assert (full.outcome, "GPUs left" in full.said) == ("refused", True)
        assert driver.carry_out("start", replace(job, name="99"), ()).outcome == "refused"
        assert driver.observe().jobs[0].phase == "waiting"
        assert not here.store.held(uid).seats
        assert driver.fate("99", 0.0)[0] == "cancelled"


# What was written down, and what was ordered.


def test_a_job_that_is_stopped_and_given_the_same_again_runs_on_its_new_seat(
    tmp_path: Path,
) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(counting(tmp_path / "out"))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.until(lambda: here.job(uid).status)
        push, here.backend._push = here.backend._push, lambda: False
        here.give({uid: []})
        here.give({uid: [(0, 1)]})
        here.backend._push = push
        here.until(lambda: here.job(uid).held.run == 2 and here.job(uid).status)
        assert not here.job(uid).held.leaving
        assert here.job(uid).orders.told is here.job(uid).held.seats


def test_nothing_is_done_that_could_not_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(counting(tmp_path / "out", max_workers=2))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.until(lambda: here.job(uid).status)
        pid = next(iter(here.job(uid).status.pids.values()))

        def full(*_: object) -> None:
            raise OSError(ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(here.store, "keep", full)
            here.give({uid: [(1, 1)]})
            for _ in range(5):
                here.backend.wait(here.backend.now_s + 0.1)
            assert any("No space left" in text for text in here.said)
            assert here.job(uid).share == ((0, 1, 0),)
            assert here.store.held(uid).seats.keys() == {"w0"}
            assert runs(pid)
        here.give({uid: [(1, 1)]})
        here.until(lambda: here.job(uid).held.run == 2 and here.job(uid).status)
        assert not runs(pid)


CALLS = range(6)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_a_daemon_that_dies_at_any_order_loses_no_job_and_starts_none_twice(
    tmp_path: Path, call: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs start, then change places: two starts, two stops, two starts."""
    calls, carry_out = [], LocalDriver.carry_out

    def dies(driver: LocalDriver, *order: Any) -> Any:
        calls.append(order)
        if len(calls) == call + 1:
            if after:
                carry_out(driver, *order)
            raise KeyboardInterrupt
        return carry_out(driver, *order)

    monkeypatch.setattr(LocalDriver, "carry_out", dies)
    with site(tmp_path / "state", nodes=2, gpus=1) as here:
        outs = [tmp_path / "one", tmp_path / "two"]
        uids = [here.submit(counting(out)) for out in outs]
        here.backend.wait(0)
        places = {uid: [(k, 1)] for k, uid in enumerate(uids)}
        with surviving(here):
            here.give(places)
        here.until(lambda: all(_begins(out) for out in outs))
        swapped = {uid: [(1 - k, 1)] for k, uid in enumerate(uids)}
        with surviving(here):
            here.give(swapped)

        def there() -> bool:
            with surviving(here):
                here.backend.wait(here.backend.now_s + 0.05)
            return all(
                here.job(uid).share == ((1 - k, 1, 0),) and here.job(uid).status
                for k, uid in enumerate(uids)
            ) and all(_begins(out) > 1 for out in outs)

        eventually(there, lambda: here.said)
        assert len(calls) > call
        for out in outs:
            (out / "end").touch()
        assert [here.ends(uid).state for uid in uids] == ["done", "done"]
        for out in outs:
            _at_most_one_at_a_time(out)


@contextmanager
def surviving(here: Site) -> Iterator[None]:
    """If the daemon dies, another one takes over."""
    try:
        yield
    except KeyboardInterrupt:
        here.open()


def _begins(out: Path) -> int:
    return (out / "log").read_text().count("began") if (out / "log").exists() else 0


def _at_most_one_at_a_time(out: Path) -> None:
    lines = [line.split() for line in (out / "log").read_text().splitlines()]
    assert [line[0] for line in lines[0::2]] == ["began"] * len(lines[0::2])
    assert all(line[0] in ("left", "ended") for line in lines[1::2])
    assert all(a[1] == b[1] for a, b in zip(lines[0::2], lines[1::2], strict=True))
    assert lines[-1][0] == "ended"


def test_a_slow_loop_does_more_than_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With long rounds a look is due whenever the last one is answered."""
    monkeypatch.setattr(live_job, "LOOK_S", 0.0)
    with site(tmp_path / "state") as here:
        uid = here.submit(elastic(tmp_path / "out", {"epochs": 10**6, "pace_s": 0.005}))
        here.backend.wait(0)
        for workers in (1, 2):
            here.give({uid: [(0, workers)]})
            here.trains(uid, workers)
        here.give({uid: []})
        here.until(lambda: not here.job(uid).held.open)


def test_a_full_disk_at_a_launch_is_no_failure_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["sleep", "1000"]))
        here.backend.wait(0)
        keep, full = here.store.keep, [False]

        def keeps(uid: int, held: Held) -> None:
            if full[0] and held.open:
                raise OSError(ENOSPC, "No space left on device")
            keep(uid, held)

        monkeypatch.setattr(here.store, "keep", keeps)
        full[0] = True
        here.give({uid: [(0, 1)]})
        for _ in range(10):
            here.backend.wait(here.backend.now_s + 0.1)
        assert (here.job(uid).held.failures, here.job(uid).held.open) == (0, False)
        assert any("No space left" in text for text in here.said)
        full[0] = False
        here.until(lambda: here.job(uid).status)
        assert here.job(uid).held.run == 1


# What the head is told.

W0, W1 = Seat("worker", 0, (0,)), Seat("worker", 1, (1,))


def test_orders_tell_where_a_job_is_with_what_it_was_told() -> None:
    held = Held()
    orders = Orders(held)
    assert (orders.phase, orders.share) == ("waiting", ())
    held.seats = {"w0": W0}
    assert (orders.phase, orders.fresh) == ("waiting", False)
    orders.obey()
    assert (orders.phase, orders.share) == ("starting", ((0, 1, 0),))
    assert (orders.awaited, orders.occupied) == ([W0], [])
    held.open = True
    orders.begin()
    assert (orders.phase, orders.awaited, orders.occupied) == ("running", [], [W0])
    held.open = False  # the run is over, and the job was told to run: another one follows
    assert (orders.phase, orders.share) == ("running", ((0, 1, 0),))
    held.open, held.seats, held.leaving = True, {"w1": W1}, {"w0": W0}
    assert orders.share == ((0, 1, 0),)
    orders.halt()
    orders.halt()
    assert (orders.phase, orders.share) == ("stopping", ((0, 1, 0),))
    held.open = False
    assert (orders.phase, orders.share) == ("waiting", ())


def test_what_was_written_down_before_a_crash_counts_as_ordered() -> None:
    held = Held(seats={"w1": W1}, leaving={"w0": W0}, open=True)
    orders = Orders(held)
    assert (orders.phase, orders.share, orders.fresh) == ("running", ((1, 1, 0),), True)
    assert orders.occupied == [W0, W1]
    stops = Orders(Held(leaving={"w0": W0}, open=True))
    assert (stops.phase, stops.share) == ("stopping", ((0, 1, 0),))


def test_other_seats_on_the_same_nodes_need_no_order_nor_does_a_start_not_begun() -> None:
    held = Held(seats={"w0": W0}, open=True)
    orders = Orders(held)
    held.seats = {"w2": Seat("worker", 0, (1,))}
    assert not orders.fresh
    orders.catch_up()
    assert orders.fresh
    held.seats = {"w2": Seat("worker", 0, (1,)), "w3": W1}
    orders.catch_up()
    assert not orders.fresh
    waits = Held(seats={"w0": W0})
    orders = Orders(waits)
    orders.obey()
    waits.seats = {"w0": W0, "w1": W1}
    orders.catch_up()
    assert (orders.phase, orders.fresh) == ("starting", True)
    waits.seats = {}
    orders.catch_up()
    assert (orders.phase, orders.fresh) == ("starting", False)  # to be withdrawn


def test_free_gpus_are_those_that_nobody_has_or_awaits_in_another_place() -> None:
    has = {0: 2, 1: 2, 2: 0}
    assert free_gpus(has, [], []) == has
    assert free_gpus(has, [W0, W0, W1], []) == {0: 1, 1: 1, 2: 0}
    # Whoever waits for a GPU that is still in use is counted by its own share.
    assert free_gpus(has, [W0, W1], [W0]) == {0: 2, 1: 1, 2: 0}
