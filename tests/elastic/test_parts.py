"""The parts of rota.elastic that need no second process."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from children import PATIENCE_S
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from rota.elastic import Elastic, worker_group
from rota.elastic.batches import Batches, Position, ShareSampler
from rota.elastic.exchange_allreduce import warm_up
from rota.elastic.handover import moves, rebalance
from rota.elastic.handshake import new_token
from rota.elastic.listener import MemberListener
from rota.elastic.parking import Parking, parked, resume
from rota.elastic.rendezvous import unblock_port
from rota.elastic.replica import Replica
from rota.elastic.state_codec import receive, send
from rota.elastic.worker_group import WorkerGroup, _listening, bound_store, gloo_options
from rota.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = new_token()
sizes = st.lists(st.integers(1, 5), min_size=1, max_size=40)


@given(st.integers(1, 50), st.integers(1, 12), sizes, st.sampled_from(["constant", "linear"]))
def test_every_sample_is_taken_once_with_any_numbers_of_workers(
    samples: int, batch: int, workers: list[int], rule: str
) -> None:
    plan = Batches(samples=samples, batch=batch, epochs=2, rule=rule)
    sampler, at, taken = ShareSampler(plan), Position(), Counter[tuple[int, int]]()
    while not plan.over(at):
        n = workers[at.step % len(workers)]
        shares = [sampler.share(at, rank, n) for rank in range(n)]
        assert sum(share.share for share in shares) == shares[0].total
        assert all(share.indices.size == max(share.share, 1) for share in shares)
        taken.update((at.epoch, int(k)) for s in shares for k in s.indices[: s.share])
        at = plan.after(at, n)
    assert taken == Counter({(epoch, k): 1 for epoch in range(2) for k in range(samples)})
    assert at.samples == 2 * samples


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    plan = Batches(samples=100, batch=10, seed=3)
    a, b = ShareSampler(plan), ShareSampler(plan)
    b.share(Position(epoch=5), 0, 1)
    for epoch in (0, 1):
        at = Position(epoch=epoch)
        assert a.share(at, 0, 1).indices.tolist() == b.share(at, 0, 1).indices.tolist()
    assert a.share(Position(), 0, 1).indices.tolist() != sorted(range(10))
    with pytest.raises(UnknownNameError, match="Did you mean 'linear'"):
        Batches(samples=1, batch=1, rule="linaer")


weights = st.lists(st.integers(1, 1000), min_size=1, max_size=30)


@given(weights, st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=2, max_size=5))
def test_parameters_are_spread_evenly_and_few_move(
    elements: list[int], courses: list[set[str]]
) -> None:
    held: dict[str, tuple[int, ...]] = {}
    for course in courses:
        servers = sorted(course)
        after = rebalance(elements, held, servers)
        kept = sorted(key for keys in after.values() for key in keys)
        assert kept == list(range(len(elements)))
        load = {name: sum(elements[k] for k in keys) for name, keys in after.items()}
        rich = max(load, key=load.__getitem__)
        gap = load[rich] - min(load.values())
        assert all(elements[key] >= gap for key in after[rich]) or gap == 0
        transfers = moves(held, after, "w", [name for name in servers if name not in held])
        moved = {key for keys in transfers.values() for key in keys or ()}
        owner = {key: name for name, keys in held.items() for key in keys}
        assert moved == {k for name, keys in after.items() for k in keys if owner.get(k) != name}
        assert {receiver for _, receiver in transfers} >= set(servers) - set(held)
        held = after


def test_a_new_server_takes_what_lies_closest_to_its_share() -> None:
    # 10 + 6 + 4 on a; b should get 10. The first move is that of 10, then both have 10.
    assert rebalance([10, 6, 4], {"a": (0, 1, 2)}, ["a", "b"]) == {"a": (1, 2), "b": (0,)}
    # b leaves: a takes all back.
    assert rebalance([10, 6, 4], {"a": (1, 2), "b": (0,)}, ["a"]) == {"a": (0, 1, 2)}


@pytest.fixture
def pipe() -> Iterator[tuple[socket.socket, socket.socket]]:
    a, b = socket.socketpair()
    with a, b:
        a.settimeout(PATIENCE_S)
        b.settimeout(PATIENCE_S)
        yield a, b


def passed_on(pipe: tuple[socket.socket, socket.socket], tree: Any, into: Any = ()) -> Any:
    sender = threading.Thread(target=send, args=(pipe[0], tree))
    sender.start()
    found = receive(pipe[1], into)
    sender.join()
    return found


def test_a_state_arrives_as_it_was_sent(pipe: tuple[socket.socket, socket.socket]) -> None:
    tree = {
        "model": [torch.randn(3, 4), torch.arange(5), torch.tensor(2.5), torch.zeros(0, 2)],
        "half": torch.randn(300, 500).to(torch.bfloat16),
        "slice": torch.arange(20).reshape(4, 5)[:, 1:3],
        0: {
            "lr": 0.1,
            "betas": (0.9, 0.999),
            "none": None,
            "flag": True,
            "text": "ü",
            "inf": 1e999,
        },
        "empty": [{}, (), []],
    }
    place = torch.zeros(3, 4)
    found = passed_on(pipe, tree, [place, torch.zeros(7)])
    assert found["model"][0].data_ptr() == place.data_ptr()
    assert torch.equal(place, tree["model"][0])
    assert found[0] == tree[0]
    assert found["empty"] == tree["empty"]
    for a, b in zip(found["model"], tree["model"], strict=True):
        assert torch.equal(a, b)
        assert a.dtype == b.dtype
    assert torch.equal(found["half"], tree["half"])
    assert torch.equal(found["slice"], tree["slice"])


def test_what_cannot_be_handed_over_is_named(pipe: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(ConfigError, match=r"state\.ema\.rng is a Generator"):
        send(pipe[0], {"ema": {"rng": torch.Generator()}})


def trained(steps: int = 3) -> Replica:
    torch.manual_seed(steps)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    replica = Replica(model, optimizer, Batches(samples=9, batch=3, rule="linear"), scheduler, {})
    for _ in range(steps):
        model(torch.randn(5, 3)).square().sum().backward()
        replica.update()
        replica.zero_grad()
        replica.position = replica.batches.after(replica.position, 1)
    return replica


def test_a_replica_goes_on_as_the_one_it_was_copied_from(
    pipe: tuple[socket.socket, socket.socket],
) -> None:
    a, b = trained(3), trained(0)
    b.load(passed_on(pipe, a.extract(None), b.targets(None)), None, with_position=True)
    assert a.position == b.position
    for replica in (a, b):
        replica.model(torch.ones(2, 3) * torch.tensor([[1.0], [2.0]])).square().sum().backward()
        replica.update()
    assert a.checksum() == b.checksum()
    assert a.optimizer.param_groups[0]["lr"] == b.optimizer.param_groups[0]["lr"]
    for one, other in zip(a.tensors(), b.tensors(), strict=True):
        assert torch.equal(one, other)


def test_parameters_move_with_their_moments(pipe: tuple[socket.socket, socket.socket]) -> None:
    a, b = trained(3), trained(0)
    b.load(passed_on(pipe, a.extract([1, 2]), b.targets([1, 2])), [1, 2], with_position=True)
    for key in (1, 2):
        moments = a.optimizer.state[a.parameters[key]], b.optimizer.state[b.parameters[key]]
        assert torch.equal(moments[0]["exp_avg"], moments[1]["exp_avg"])
        assert torch.equal(a.parameters[key], b.parameters[key])
    assert not b.optimizer.state.get(b.parameters[0])
    assert b.position == a.position


def test_members_that_train_different_things_are_told_apart() -> None:
    a = trained(1)
    a.outline().check("b", trained(0).outline(), "a")
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
    b = Replica(model, torch.optim.SGD(model.parameters()), a.batches, None, {})
    # 3·5 + 5 + 5 + 5 against 3·4 + 4 + 4 + 4.
    with pytest.raises(ConfigError, match=r"b trains another .* of 30 elements .* of 24 elements"):
        b.outline().check("b", a.outline(), "a")
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))  # as many, but no buffers
    c = Replica(model, torch.optim.SGD(model.parameters()), a.batches, None, {})
    with pytest.raises(ConfigError, match="another model"):
        c.outline().check("c", a.outline(), "a")
    d = trained(0)
    d.batches = Batches(samples=9, batch=4, rule="linear")
    with pytest.raises(ConfigError, match="Member d has batch=4, but a has batch=3"):
        d.outline().check("d", a.outline(), "a")
    assert a.outline().total == 9


def test_the_learning_rate_follows_the_rule() -> None:
    # 0.1 for one worker, 0.1 · 4 for four, back again for one; the schedule's base with it.
    replica = trained(0)
    replica.scale_for(4)
    assert replica.optimizer.param_groups[0]["lr"] == pytest.approx(0.4)
    assert replica.scheduler is not None
    assert replica.scheduler.base_lrs == pytest.approx([0.4])
    replica.scale_for(1)
    assert replica.optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_a_single_bit_changes_the_checksum() -> None:
    a, b = trained(2), trained(2)
    assert a.checksum() == b.checksum()
    with torch.no_grad():
        bits = b.parameters[0].view(torch.int32)
        bits[0, 0] ^= 1
    assert a.checksum() != b.checksum()


def test_a_script_runs_alone_without_an_agent() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    with Elastic(model, optimizer, samples=10, batch=4, epochs=2, shuffle=False) as run:
        for batch in run:
            seen += batch.indices.tolist()
            assert run.step(run.model(torch.ones(batch.share, 2)).mean())
    assert seen == [*range(10), *range(10)]
    assert (run.steps, run.size, run.rank, run.leaving) == (6, 1, 0, False)


def test_micro_batches_make_the_same_step_as_the_whole() -> None:
    def train(*cuts: int) -> list[float]:
        torch.manual_seed(1)
        model, data = nn.Linear(2, 1), torch.randn(10, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Elastic(model, optimizer, samples=10, batch=10, clip_norm=0.1) as run:
            for batch in run:
                x = data[torch.from_numpy(batch.indices)]
                for part in x.tensor_split(cuts)[:-1]:
                    run.backward(run.model(part).square().mean(), samples=len(part))
                part = x.tensor_split(cuts)[-1]
                run.step(run.model(part).square().mean(), samples=len(part))
        return [float(p.detach().sum()) for p in model.parameters()]

    assert train(3, 4) == pytest.approx(train(), rel=1e-5)


def test_a_sample_counts_once() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Elastic(model, optimizer, samples=4, batch=4) as run:
        for _ in run:
            run.backward(model(torch.ones(3, 2)).mean(), samples=3)
            with pytest.raises(ConfigError, match=r"told of 5 samples in step 0, .* has 4"):
                run.backward(model(torch.ones(2, 2)).mean(), samples=2)
            run.step()


def test_what_elastic_cannot_do_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.SyncBatchNorm(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match="SyncBatchNorm"):
        Elastic(model, optimizer, samples=1, batch=1)
    with pytest.raises(ConfigError, match="2 parameters that are not the model's"):
        Elastic(nn.Linear(2, 2), torch.optim.SGD(nn.Linear(1, 1).parameters()), samples=1, batch=1)
    plain = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(plain.parameters())
    with pytest.raises(ConfigError, match=r"carry\['ema'\] has no state_dict"):
        Elastic(plain, optimizer, samples=1, batch=1, carry={"ema": 3})
    with pytest.raises(ConfigError, match="batch=0"):
        Elastic(plain, optimizer, samples=1, batch=0)
    for name in ("clip_norm", "check_every"):
        with pytest.raises(ConfigError, match=f"{name}=0"):
            Elastic(plain, optimizer, samples=1, batch=1, **{name: 0})
    run = Elastic(plain, optimizer, samples=1, batch=1)
    with pytest.raises(ConfigError, match="belong into the loop"):
        run.step(torch.zeros(()))


def test_a_sharded_model_is_refused() -> None:
    class FSDPModule:
        """By this name torch marks what fully_shard has sharded."""

    class Sharded(FSDPModule, nn.Linear):
        pass

    model = Sharded(2, 2)
    with pytest.raises(ConfigError, match="hand Elastic the plain module"):
        Elastic(model, torch.optim.SGD(model.parameters()), samples=1, batch=1)


def groups_of(size: int, listeners: list[MemberListener] | None = None) -> dict[int, WorkerGroup]:
    """Groups as several members have them, all in this process."""
    listeners = listeners or [MemberListener("127.0.0.1", TOKEN) for _ in range(size)]
    cards = [
        {"name": f"w{k}", "host": "127.0.0.1", "state_port": listener.port}
        for k, listener in enumerate(listeners)
    ]
    groups: dict[int, WorkerGroup] = {}

    def connect(rank: int) -> None:
        groups[rank] = WorkerGroup(
            listeners[rank],
            1,
            f"w{rank}",
            cards,
            device=torch.device("cpu"),
            connect_s=PATIENCE_S,
            step_s=6 * PATIENCE_S,
        )

    threads = [threading.Thread(target=connect, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    for listener in listeners:
        listener.close()
    return groups


def test_a_group_that_is_cut_ends_the_calls_that_wait_in_it() -> None:
    # Rank 0 waits for a reduction that rank 1 never joins; without the cut it would wait for ever.
    groups = groups_of(2)
    work = groups[0].process_group.allreduce([torch.ones(3)])
    cutter = threading.Timer(0.2, groups[0].cut)
    cutter.start()
    with pytest.raises(RuntimeError, match="gloo"):
        work.wait()
    del work
    for group in groups.values():
        group.close(lost=True)


def test_a_call_that_gloo_forgets_to_fail_ends_with_the_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = groups_of(2)
    monkeypatch.setattr(WorkerGroup, "_links", lambda _: iter(()))  # so gloo does not notice it
    groups[0].begin(groups[0].process_group.allreduce([torch.ones(3)]))
    cutter = threading.Timer(0.2, groups[0].cut)
    cutter.start()
    with pytest.raises(RuntimeError, match="gloo waits for a member that is gone"):
        groups[0].wait()
    cutter.join()
    groups[0].close(lost=True)  # the process goes on, though the call waits for its time limit
    monkeypatch.undo()
    groups[1].close(lost=True)


def test_no_process_can_connect_to_a_group_once_it_is_formed() -> None:
    groups = groups_of(3)
    for address in groups[0]._addresses:
        assert address[0] == "127.0.0.1"
        with pytest.raises(TimeoutError):
            socket.create_connection(address, 0.3).close()
    assert len(groups[0]._addresses) == 3
    tensors = [torch.full((3,), float(rank)) for rank in range(3)]
    works = [groups[rank].process_group.allreduce([tensors[rank]]) for rank in range(3)]
    for work in works:
        work.wait()
    assert all(tensor.tolist() == [3.0, 3.0, 3.0] for tensor in tensors)
    del work, works
    for group in groups.values():
        group.close()


def test_warm_up_leaves_no_open_port() -> None:
    before = set(_listening().values())
    warm_up()
    for address in set(_listening().values()) - before:
        with pytest.raises(TimeoutError):
            socket.create_connection(address, 0.3).close()


def test_the_port_of_gloo_is_blocked_also_while_a_script_opens_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others, gloo = [], torch.distributed.ProcessGroupGloo.create_device

    def create(**facts: str) -> Any:
        if len(others) < 2:
            others.append(socket.create_server(("127.0.0.1", 0)))
        return gloo(**facts)

    monkeypatch.setattr(torch.distributed.ProcessGroupGloo, "create_device", create)
    options, _, address = gloo_options("127.0.0.1", 1.0)
    with pytest.raises(TimeoutError):
        socket.create_connection(address, 0.3).close()
    for other in others:
        socket.create_connection(other.getsockname(), PATIENCE_S).close()
        other.close()
    del options


_INTRUDER = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as link:
    print("in", flush=True)
    try:
        print(link.recv(1), flush=True)
    except OSError as error:
        print(b"", flush=True)
"""


def test_a_foreign_connection_made_while_a_group_connects_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    intruders: list[subprocess.Popen[str]] = []

    def let_one_in(file: int) -> None:
        unblock_port(file)
        with socket.socket(fileno=os.dup(file)) as listener:
            port = str(listener.getsockname()[1])
        intruder = subprocess.Popen(
            [sys.executable, "-c", _INTRUDER, port], stdout=subprocess.PIPE, text=True
        )
        intruders.append(intruder)
        assert intruder.stdout is not None
        assert intruder.stdout.readline() == "in\n"

    monkeypatch.setattr(worker_group, "unblock_port", let_one_in)
    groups = groups_of(2)
    tensors = [torch.full((3,), float(rank)) for rank in range(2)]
    works = [groups[rank].process_group.allreduce([tensors[rank]]) for rank in range(2)]
    for work in works:
        work.wait()
    assert all(tensor.tolist() == [1.0, 1.0, 1.0] for tensor in tensors)
    del work, works
    assert len(intruders) == 2
    for intruder in intruders:  # before the group is closed
        assert intruder.communicate(timeout=PATIENCE_S)[0] == "b''\n"
    for group in groups.values():
        group.close()


def test_a_store_of_torch_listens_where_it_is_told_to() -> None:
    store = bound_store("127.0.0.1")
    assert ("127.0.0.1", store.port) in _listening().values()
    other = torch.distributed.TCPStore("127.0.0.1", store.port, wait_for_workers=False)
    store.set("a", "b")
    assert other.get("a") == b"b"


class Killed(BaseException):
    """The process was killed: no clean-up runs."""


@pytest.mark.parametrize("shards", [{}, {"s": (0, 1)}])
def test_a_process_killed_while_it_saves_the_state_leaves_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: dict[str, tuple[int, ...]]
) -> None:
    left = 10**9

    def dying(call: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return call(*args, **kwargs)

        return counted

    for owner, name in ((os, "open"), (os, "fsync"), (Path, "replace"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, dying(getattr(owner, name)))
    place, steps = str(tmp_path / "p"), set()
    for moment in range(30):
        left = 10**9
        shutil.rmtree(place, ignore_errors=True)
        for step, token in ((3, "a"), (4, "b" if moment % 2 else "a")):
            replica, parking = trained(step), Parking(place, token, 0.0)
            left = moment if step == 4 else 10**9
            with suppress(Killed):
                for name in [*shards, ""]:
                    parking.park(replica, name, shards)
        left = 10**9
        found = trained(0)
        assert parked(place)
        resume(found, place)
        steps.add(found.position.step)
        assert found.checksum() == trained(found.position.step).checksum()
        # The next run removes what is left.
        Parking(place, "c", 0.0).park(trained(5), "", {})
        assert len(os.listdir(place)) == 2
    assert steps == {3, 4}


def test_the_state_is_saved_while_training_goes_on(tmp_path: Path) -> None:
    replica, parking = trained(3), Parking(str(tmp_path / "p"), "token", 1e-6)
    assert parking.due()
    before = replica.checksum()
    parking.keep(replica, "", {})
    with torch.no_grad():
        for parameter in replica.parameters:
            parameter.zero_()
    parking.finish(PATIENCE_S)
    found = trained(0)
    resume(found, str(tmp_path / "p"))
    assert (found.position.step, found.checksum()) == (3, before)
    assert not Parking(str(tmp_path), "token", 0.0).due()


def test_the_scheduler_needs_no_torch() -> None:
    program = (
        "import sys; import rota, rota.elastic.agent; "
        "from rota.elastic import ElasticJob, JobSpec; sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
