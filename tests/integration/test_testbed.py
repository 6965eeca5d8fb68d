"""A cluster of unlike hosts on this machine: what ranks see of it, how it ends, and that nothing stays.

Needs root, cgroups and iproute2. A machine has one test bed at a time, so a test waits until another worker's is done.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from bpt.base.errors import RunError
from scripts.testbeds import bed, cgroups, commands, names
from scripts.testbeds.hosts import parse_hosts
from scripts.testbeds.link import Link
from tests.integration import testbed
from tests.support.marks import slow

pytestmark = testbed.needs_testbed

RANK = """
import json, socket, time
import numpy
from mpi4py import MPI
world = MPI.COMM_WORLD
"""

REPORT = (
    RANK
    + """
total = numpy.empty(3)
world.Allreduce(numpy.full(3, world.rank + 1.0), total)
mine = [socket.gethostname(), socket.gethostbyname("a"), socket.gethostbyname("b"), total.tolist()]
found = world.gather(mine)
if world.rank == 0:
    print(json.dumps(found))
"""
)


@testbed.needs_mpi
def test_ranks_see_hosts_of_their_own() -> None:
    testbed.up()
    addresses = ["10.77.0.1", "10.77.0.2"]
    found = json.loads(testbed.program("run", "--", "python", "-c", REPORT).stdout)
    assert found == [["a", *addresses, [3.0] * 3], ["b", *addresses, [3.0] * 3]]
    # Other hosts first, and more ranks than cores.
    found = json.loads(testbed.program("run", "--slots", "b:1,a:2", "--", "python", "-c", REPORT).stdout)
    assert found == [["b", *addresses, [6.0] * 3], ["a", *addresses, [6.0] * 3], ["a", *addresses, [6.0] * 3]]
    found = json.loads(testbed.program("run", "-n", "1", "--", "python", "-c", REPORT).stdout)
    assert found == [["a", *addresses, [1.0] * 3]]


SPEED = """
import time
wall, cpu = time.perf_counter(), time.process_time()
while time.perf_counter() < wall + 1:
    pass
print((time.process_time() - cpu) / (time.perf_counter() - wall))
"""


def test_a_host_gets_its_share_of_the_processor() -> None:
    testbed.up("a:0.8,b:0.2")
    a, b = (float(testbed.program("run", "--on", host, "--", "python3", "-S", "-c", SPEED).stdout) for host in "ab")
    # The kernel never gives more, but for a period's worth; less on a machine that is busy with other things.
    assert 0.05 < b < 0.24
    assert 1.2 * b < a < 0.96  # four times as much on a quiet machine


def test_a_host_shows_its_own_network_and_quota() -> None:
    """A program that asks how much processor time it may use is told, as in a container."""
    testbed.up()
    kind = cgroups.find()
    file = kind.host("b") / ("cpu.max" if kind.version == 2 else "cpu.cfs_quota_us")
    done = testbed.program(
        "run", "--on", "b", "--", "sh", "-c", f"ls /sys/class/net; cat {file}; echo $TMPDIR $HOSTNAME"
    )
    assert done.stdout.split() == ["eth0", "lo", "2500", *["10000"] * (kind.version == 2), str(names.SCRATCH), "b"]
    assert f" {names.FOLDER}" not in Path("/proc/self/mounts").read_text()  # its mounts are its own


TRANSFER = (
    RANK
    + """
data, answer = numpy.zeros(10_000_000, numpy.uint8), numpy.zeros(1)
for sender in (0, 1, 0):  # the first connects and warms up
    world.Barrier()
    begin = time.perf_counter()
    if world.rank == sender:
        world.Send(data, 1 - sender)
        world.Recv(answer, 1 - sender)
        print(time.perf_counter() - begin, flush=True)
    else:
        world.Recv(data, sender)
        world.Send(answer, sender)
"""
)


@testbed.needs_mpi
def test_a_link_has_its_bandwidth() -> None:
    testbed.up("a:1,b:1", "--bandwidth", "200mbit")
    seconds = [float(word) for word in testbed.program("run", "--", "python", "-c", TRANSFER).stdout.split()]
    # 80 Mbit over 200 Mbit/s are 0.4 s, and some more for the headers; unshaped it would be 0.02 s.
    assert len(seconds) == 3
    assert all(0.38 < found < 60 for found in seconds), seconds


def test_latency() -> None:
    """The kernel's netem is not everywhere: then it is refused, and nothing stays."""
    words = ["up", "--hosts", "a:1,b:1", "--bandwidth", "1gbit", "--latency", "20ms"]
    done = subprocess.run(
        [sys.executable, testbed.PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        assert done.returncode == 1
        assert re.fullmatch(r"error: --latency needs the kernel's netem .*Leave --latency out\n", done.stderr)
        assert bed.remains() == []
        return
    connect = (
        "import socket, time; begin = time.perf_counter()\n"
        "try: socket.create_connection(('b', 9))\n"
        "except ConnectionRefusedError: print(time.perf_counter() - begin)"
    )
    for _ in range(2):  # the first asks for b's hardware address, too
        seconds = float(testbed.program("run", "--on", "a", "--", "python3", "-c", connect).stdout)
    assert 0.04 < seconds < 60  # there and back, on a busy machine


LOOP = (
    RANK
    + """
x = numpy.zeros(1)
world.Allreduce(MPI.IN_PLACE, x)
if world.rank == 0:
    print("ready", flush=True)
while True:
    world.Allreduce(MPI.IN_PLACE, x)
"""
)


@testbed.needs_mpi
def test_a_killed_rank_ends_the_job() -> None:
    testbed.up()
    with testbed.started("--", "python", "-c", LOOP) as job:
        os.kill(testbed.rank_on("b", "python"), signal.SIGKILL)
        assert testbed.ended(job)[0] != 0


@testbed.needs_mpi
@pytest.mark.parametrize("number", [slow(signal.SIGINT), signal.SIGTERM])
def test_a_signal_ends_the_job(number: signal.Signals) -> None:
    testbed.up()
    with testbed.started("--", "python", "-c", LOOP) as job:
        job.send_signal(number)
        assert testbed.ended(job)[0] != 0


@testbed.needs_mpi
def test_control_c_at_a_terminal_ends_the_job() -> None:
    """There the kernel sends the signal to mpirun, too: it must come once, since twice means "at once" to mpirun."""
    testbed.up()
    ours, theirs = os.openpty()
    words = [sys.executable, testbed.PROGRAM, "run", "--", "python", "-c", LOOP]
    with subprocess.Popen(["setsid", "--ctty", "--wait", *words], stdin=theirs, stdout=theirs, stderr=theirs) as job:
        os.close(theirs)
        told = b""
        while b"ready" not in told:
            told += os.read(ours, 1000)
        os.write(ours, b"\x03")
        assert job.wait(testbed.PROMPT) != 0
        with suppress(OSError):  # EIO: nobody has the other end any more
            while more := os.read(ours, 1000):
                told += more
    os.close(ours)
    assert testbed.running() == []
    assert b"in progress" not in told, told


@testbed.needs_mpi
def test_the_job_ends_with_its_program() -> None:
    testbed.up()
    with testbed.started("--", "python", "-c", LOOP) as job:
        job.kill()
        job.wait()
        assert cgroups.end(cgroups.find().root, grace=testbed.PROMPT) == 0  # nobody had to be killed


def test_a_second_signal_does_not_ask() -> None:
    testbed.up("a:1")
    deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
    with testbed.started("--on", "a", "--", "python3", "-c", deaf) as job:
        job.send_signal(signal.SIGINT)
        job.send_signal(signal.SIGTERM)
        assert testbed.ended(job)[0] == 128 + signal.SIGKILL


def test_what_a_command_leaves_running_is_ended() -> None:
    testbed.up("a:1")
    assert (
        testbed.program("run", "--on", "a", "--", "sh", "-c", "setsid sleep 1000 & echo started").stdout == "started\n"
    )
    assert testbed.running() == []


def test_the_exit_status_is_the_commands() -> None:
    testbed.up("a:1,b:1")
    told = testbed.program("run", "--on", "b", "--", "sh", "-c", "exit 7", status=7)
    assert re.fullmatch(r"test bed, up since .{19}: hosts a:1:1,b:1:1; bandwidth not limited, .*\n", told.stderr)
    testbed.program("run", "--on", "b", "--", "sh", "-c", "kill -9 $$", status=128 + 9)
    told = testbed.program("run", "--on", "b", "--", "/absent/program", status=127)
    assert "/absent/program" in told.stderr


def test_words_and_folder_reach_the_command_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testbed.up("a:1")
    folder = tmp_path / "it's a $HOME"
    folder.mkdir()
    monkeypatch.chdir(folder)
    odd = ["two  words", "it's", '"', "$HOME", "*", "--", ""]
    script = "import os, sys, json; print(json.dumps([os.getcwd(), sys.argv[1:]]))"
    done = testbed.program("run", "--on", "a", "--", "python3", "-c", script, *odd)
    assert json.loads(done.stdout) == [str(folder), odd]


@testbed.needs_mpi
def test_exit_status_of_a_rank() -> None:
    testbed.up("a:1,b:1")
    testbed.program("run", "--", "sh", "-c", "exit 3", status=3)


def test_one_test_bed_at_a_time() -> None:
    testbed.up()
    told = testbed.program("up", "--hosts", "c:1.0", status=1)
    assert re.match(r"error: a test bed is up already, since [-0-9]+ [:0-9]+ \(hosts a:1:1,b:0\.25:1;", told.stderr)
    assert "scripts/testbed down" in told.stderr
    status = testbed.program("status").stdout
    assert re.search(r"^b +10\.77\.0\.2 +0\.25 +1  none$", status, re.MULTILINE)
    assert "bpt-testbed-b" in testbed.program("down").stdout
    assert bed.remains() == []
    assert testbed.program("down").stdout == "there was no test bed\n"
    assert testbed.program("status").stdout == "no test bed is up\n"


def test_run_before_up() -> None:
    told = testbed.program("run", "--", "true", status=1)
    assert told.stderr == "error: no test bed is up: scripts/testbed up --hosts 'a:1.0,b:0.25'\n"


def test_down_ends_what_runs() -> None:
    testbed.up("a:1")
    with testbed.started("--on", "a", "--", "sh", "-c", "echo ready; sleep 1000") as job:
        testbed.program("down")
        assert testbed.ended(job)[0] == 128 + signal.SIGKILL


def test_down_after_a_crash() -> None:
    testbed.up()
    names.STATE.unlink()  # as if "up" had been killed on its last step
    for words in (["up", "--hosts", "a:1"], ["run", "--", "true"]):
        told = testbed.program(*words, status=1)
        assert "remains of a test bed" in told.stderr
        assert "scripts/testbed down" in told.stderr
    assert "remains of one" in testbed.program("status").stdout
    testbed.program("down")
    assert bed.remains() == []


def test_an_up_that_fails_halfway_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cgroups.Hierarchy.add_host

    def half(self: cgroups.Hierarchy, name: str, share: float) -> None:
        if name == "b":
            assert {"bpt-testbed", "bpt-testbed-a", "bpt-testbed-b"} <= set(bed.remains())
            raise RunError("no share for b")
        whole(self, name, share)

    monkeypatch.setattr(cgroups.Hierarchy, "add_host", half)
    with pytest.raises(RunError, match="no share for b"):
        bed.up(bed.TestBed(parse_hosts("a:1,b:0.5"), Link(1e9)))
    assert bed.remains() == []
    assert not names.LOCK.exists()


def test_flags_that_do_not_go_together(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    testbed.up("a:1")
    for words, says in [
        (["--on", "b", "--", "true"], "--on: no host 'b'; the hosts are a"),
        (["--on", "a", "-n", "2", "--", "true"], "--on runs the command without mpirun"),
        (["-n", "2", "--", "true"], "-n 2: the hosts have 1 slots"),
    ]:
        monkeypatch.setattr(sys, "argv", ["testbed", "run", *words])
        assert commands.main() == 2
        assert says in capsys.readouterr().err
