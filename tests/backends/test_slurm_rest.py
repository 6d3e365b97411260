"""Reading through slurmrestd: versions, whatever a server may do wrong, and looks without it."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from rest_server import JOBS, NODES, document, offering, rest_server

from rota.backends.slurm.checkup import check_rest
from rota.backends.slurm.cluster_facts import ClusterFacts
from rota.backends.slurm.replies import read_jobs, read_nodes
from rota.backends.slurm.rest import Slurmrestd
from rota.backends.slurm.slurm_driver import SlurmDriver
from rota.backends.slurm.slurm_reader import AGAIN_S, SlurmReader
from rota.backends.slurm.tools import Said, SlurmTools
from rota.errors import BackendError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rest_server import RestServer

JOBS_AT = "/slurm/v0.0.38/jobs"
LONG_S = 600.0
"""Only a hang takes longer."""


@pytest.fixture
def server() -> Iterator[RestServer]:
    with rest_server() as made:
        yield made


def asked(server: RestServer, **more: Any) -> Slurmrestd:
    return Slurmrestd(server.address, **{"patience_s": LONG_S, **more})


@pytest.mark.parametrize("tcp", [False, True])
def test_jobs_and_nodes_are_those_of_the_commands(tcp: bool) -> None:
    with rest_server(tcp=tcp) as server:
        rest = asked(server)
        assert rest.nodes() == read_nodes(NODES)
        assert rest.jobs() == read_jobs(JOBS)
        assert rest.version == "v0.0.38"
        # What it offers is asked once.
        rest.jobs()
        assert server.asked == ["/openapi/v3", "/slurm/v0.0.38/nodes", JOBS_AT, JOBS_AT]


def test_the_newest_version_is_asked_under_the_path_that_it_is_listed_with(
    server: RestServer,
) -> None:
    listed = json.loads(offering("v0.0.9", "v0.0.40", "v0.0.39"))
    listed["paths"]["/slurm/v0.0.41/jobs"] = {}  # which has no nodes
    listed["paths"]["/slurmdb/v0.0.50/jobs"] = {}
    for what in ("jobs", "nodes"):
        listed["paths"][f"/slurm/v0.0.40/{what}/"] = listed["paths"].pop(f"/slurm/v0.0.40/{what}")
    server.answers = {
        "/openapi": document(json.dumps(listed)),
        "/slurm/v0.0.40/jobs/": document(JOBS),
    }
    rest = asked(server)
    assert (rest.jobs(), rest.version) == (read_jobs(JOBS), "v0.0.40")
    assert server.asked == ["/openapi/v3", "/openapi", "/slurm/v0.0.40/jobs/"]


def test_a_server_that_came_back_in_another_version_is_asked_in_that(server: RestServer) -> None:
    rest = asked(server)
    rest.jobs()
    server.answers = {
        "/openapi/v3": document(offering("v0.0.39")),
        "/slurm/v0.0.39/jobs": document(JOBS),
    }
    with pytest.raises(BackendError, match="404: nothing is here"):
        rest.jobs()
    assert (rest.jobs(), rest.version) == (read_jobs(JOBS), "v0.0.39")


# Who asks.


def test_a_token_is_sent_over_tcp_only() -> None:
    names = ("x-slurm-user-token", "x-slurm-user-name")
    with rest_server(tcp=True) as server:
        asked(server, token="e30.e30.x-_", user="rota").jobs()
        assert [server.headers[name] for name in names] == ["e30.e30.x-_", "rota"]
        asked(server).jobs()
        assert not set(names) & set(server.headers)
    with rest_server() as server:
        asked(server, token="e30.e30.x-_", user="rota").jobs()
        assert not set(names) & set(server.headers)


@pytest.mark.parametrize("token", ["a\nX-Evil: 1", "a b", "SLURM_JWT:x", "é"])
def test_what_is_no_token_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(ConfigError, match="SLURM_JWT") as error:
        Slurmrestd("http://localhost:6820", token)
    assert token not in str(error.value)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("unix:", "no path from the root"),
        ("unix:rest.sock", "no path from the root"),
        ("unix:/" + "a" * 107, "at most 107 bytes"),
        ("https://host:6820", "https, which is not supported"),
        ("/run/slurmrestd.sock", "neither unix: nor http://"),
        ("host:6820", "neither unix: nor http://"),
        ("", "neither unix: nor http://"),
        ("http://host", "no port"),
        ("http://host:0", "no port"),
        ("http://:6820", "no host"),
        ("http://host:99999", "no address"),
        ("http://[::1:6820", "no address"),
        ("http://host:6820/slurm", "more than a host and a port"),
        ("http://me:secret@host:6820", "more than a host and a port"),
        ("http://host:6820?x=1", "more than a host and a port"),
    ],
)
def test_a_wrong_address_is_refused_with_what_to_give_instead(address: str, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)) as error:
        Slurmrestd(address)
    assert "give unix:/PATH of its socket, or http://HOST:PORT" in str(error.value)


def test_a_right_address_is_not_refused() -> None:
    for address in ("unix:///run/x.sock", "http://host:6820/", "http://[::1]:6820"):
        assert Slurmrestd(address).address == address


# What may go wrong.


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (document("no", 401), "refuses this account (401)"),
        (document("", 500), "GET /slurm/v0.0.38/jobs: 500: nothing was said"),
        (document("x" * 9999, 502), "x…"),
        (document('{"errors": [{"description": "Unable\\nto contact"}, {"error": "e2"}]}', 500),
         "500: Unable to contact; e2"),
        (document('{"jobs": [], "errors": [{"error_number": 7}]}'), "{'error_number': 7}"),
        (document('{"jobs": [], "errors": ["odd"]}'), "odd"),
        (document("<html>"), "no JSON object: <html>"),
        (document("[" * 100_000), "no JSON object"),
        (document("[]"), "no JSON object: []"),
        (document("{}"), "slurmrestd listed no jobs"),
        (document('{"jobs": [7]}'), "slurmrestd listed 7 among its jobs"),
        (document('{"jobs": [{"job_id": 7}]}'), "slurmrestd describes job 7"),
        (document('{"jobs": [{"job_id": 7, "array_job_id": 1%s}]}' % ("0" * 400)), "job 7"),
        (document(JOBS)[:-100], "100 bytes are missing"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + JOBS.encode()[:-100], "no JSON object"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf", "IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "no JSON object"),
        (b"SSH-2.0-hello\r\n", "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\n" + b"a" * 99_999, "LineTooLong"),
        (b"", "RemoteDisconnected"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_told(server: RestServer, answer: bytes, said: str) -> None:
    server.answers[JOBS_AT] = answer
    with pytest.raises(BackendError) as error:
        asked(server).jobs()
    assert said in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("listed", ['{"paths": [7]}', "{}", offering()])
def test_a_server_without_jobs_and_nodes_is_told_of(server: RestServer, listed: str) -> None:
    server.answers["/openapi/v3"] = document(listed)
    with pytest.raises(BackendError, match="offers no list of jobs and nodes"):
        asked(server).nodes()


def test_where_nobody_listens_the_address_is_named() -> None:
    with rest_server() as gone:
        pass
    with pytest.raises(BackendError, match="No such file or directory; is it running there"):
        asked(gone).jobs()
    with pytest.raises(BackendError, match="http://" + "a" * 64):
        Slurmrestd(f"http://{'a' * 64}:1").jobs()  # no name of a host is as long


def drip(request: Any) -> None:
    """A byte now and then, until the other side has had enough."""
    with suppress(OSError):
        while True:
            request.wfile.write(b" ")
            request.connection.settimeout(0.01)
            with suppress(TimeoutError):
                request.connection.recv(1)


def hang(request: Any) -> None:
    """Nothing at all, until the other side has had enough."""
    request.connection.recv(1)


def slow_body(request: Any) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    drip(request)


def slow_head(request: Any) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Header: ")
    drip(request)


@pytest.mark.parametrize("answer", [hang, slow_body, slow_head])
def test_the_whole_answer_has_one_limit_of_time(server: RestServer, answer: Any) -> None:
    server.answers["/openapi/v3"] = answer
    with pytest.raises(BackendError, match=r"was not answered in 0\.2 s"):
        asked(server, patience_s=0.2).jobs()


def endless(request: Any) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    with suppress(OSError):
        while True:
            request.wfile.write(b" " * 65536)


def announced(request: Any) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n")
    hang(request)


@pytest.mark.parametrize("answer", [endless, announced])
def test_a_huge_answer_is_not_read_to_its_end(server: RestServer, answer: Any) -> None:
    server.answers[JOBS_AT] = answer
    with pytest.raises(BackendError, match="more than 5000000 bytes"):
        asked(server, most_bytes=5_000_000).jobs()


def test_an_answer_may_be_as_large_as_the_limit(server: RestServer) -> None:
    size = max(len(JOBS), len(offering("v0.0.38")))
    assert asked(server, most_bytes=size).jobs()
    with pytest.raises(BackendError, match="more than"):
        asked(server, most_bytes=size - 1).jobs()


# Looks.


class Commands(SlurmTools):
    """squeue and sinfo, counted."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[str] = []

    def run(self, *words: str) -> Said:
        self.given.append(words[0])
        return Said(0, {"squeue": JOBS, "sinfo": NODES}.get(words[0], ""), "")


def test_a_look_without_slurmrestd_is_made_by_commands_and_said_once(server: RestServer) -> None:
    now_s, said, tools = [0.0], list[str](), Commands()
    reader = SlurmReader(tools, asked(server), said.append, lambda: now_s[0])
    whole = (read_nodes(NODES), read_jobs(JOBS))
    assert reader.look() == whole
    assert (tools.given, said) == ([], [])

    # Its list of jobs fails: all of this look comes from commands, and so do those soon after.
    server.answers[JOBS_AT] = document("broken", 500)
    assert reader.look() == whole
    requests = len(server.asked)
    assert reader.look() == whole
    assert (tools.given, len(server.asked)) == (["sinfo", "squeue"] * 2, requests)
    assert said == [f"slurmrestd does not answer: {server.address}: GET {JOBS_AT}: 500: broken; "
                    "asks squeue and sinfo"]  # fmt: skip

    now_s[0] += AGAIN_S  # tried again, in vain
    reader.look()
    assert (len(server.asked) > requests, len(said)) == (True, 1)

    now_s[0] += AGAIN_S
    server.answers[JOBS_AT] = document(JOBS)
    assert reader.look() == whole
    assert (tools.given, said[1:]) == (["sinfo", "squeue"] * 3, ["slurmrestd answers again"])

    server.answers[JOBS_AT] = document("broken again", 500)
    reader.look()
    assert "broken again" in said[2]


def test_one_that_hangs_takes_little_of_the_time(server: RestServer) -> None:
    server.answers["/slurm/v0.0.38/nodes"] = document("", 500)
    clock = count(0.0, 20.0)  # the attempt takes 20 s, so that it waits for 200
    reader = SlurmReader(Commands(), asked(server), clock=lambda: next(clock))
    reader.look()  # from 0 to 20
    tried = len(server.asked)
    for _ in range(9):  # at 40, 60, … 200
        reader.look()
    assert len(server.asked) == tried
    reader.look()
    assert len(server.asked) > tried


def test_when_commands_fail_as_well_their_error_is_told(server: RestServer) -> None:
    server.answers = {}
    tools = Commands()
    tools.run = lambda *_words: Said(1, "", "Unable to contact slurm controller")  # type: ignore[method-assign]
    with pytest.raises(BackendError, match="sinfo --json: Unable to contact"):
        SlurmReader(tools, asked(server)).look()


def test_the_driver_looks_through_it(server: RestServer) -> None:
    tools = Commands()
    sight = SlurmDriver(tools, frozenset({"rota"}), passive=True, rest=asked(server)).observe()
    plain = SlurmDriver(Commands(), frozenset({"rota"}), passive=True).observe()
    assert (set(tools.given), len(sight.nodes)) == ({"scontrol"}, len(plain.nodes))
    assert [job.name for job in sight.jobs] == [job.name for job in plain.jobs] != []


# The doctor.


def test_the_doctor_looks_whether_it_answers_for_this_cluster(server: RestServer) -> None:
    nodes, jobs = read_nodes(NODES), read_jobs(JOBS)
    facts = ClusterFacts(partitions_wanted=("rota",), nodes=nodes)
    found = check_rest(facts, asked(server))
    assert (found.level, f"v0.0.38: {len(nodes)} nodes, {len(jobs)} jobs" in found.found) == (
        "ok", True
    )  # fmt: skip
    other = ClusterFacts(partitions_wanted=("rota",), nodes=nodes[1:])
    found = check_rest(other, asked(server))
    assert (found.level, "other nodes" in found.found) == ("bad", True)
    server.answers[JOBS_AT] = document("broken", 500)
    found = check_rest(facts, asked(server))
    assert (found.level, "500: broken" in found.found) == ("bad", True)
