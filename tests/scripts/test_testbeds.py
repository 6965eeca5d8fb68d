"""The test bed's arithmetic and texts, which need neither root nor Linux. tests/integration has the real thing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bpt.base.errors import RunError, UsageError
from scripts.testbeds import bed, cgroups, commands, enter, link, mpirun, programs
from scripts.testbeds.hosts import Host, hosts_file, parse_hosts, parse_slots
from tests.support.paths import ROOT

PROGRAM = ROOT / "scripts" / "testbed"
A, B = parse_hosts("a:1.0,b:0.25")


def test_hosts() -> None:
    assert parse_hosts("a:1.0, b-2:0.25,c:2.5,d:.5:3") == (
        Host("a", 1.0, 1, "10.77.0.1"),
        Host("b-2", 0.25, 1, "10.77.0.2"),
        Host("c", 2.5, 2, "10.77.0.3"),  # a slot for each whole core
        Host("d", 0.5, 3, "10.77.0.4"),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is not name:share"),
        ("a", "'a' is not name:share"),
        ("a:1,", "'' is not name:share"),
        ("a:1:1:1", "'a:1:1:1' is not name:share"),
        ("A:1", "'A' cannot be a host's name"),
        ("1:1", "'1' cannot be a host's name"),
        ("a_b:1", "'a_b' cannot be"),
        ("a-:1", "'a-' cannot be"),
        ("localhost:1", "'localhost' cannot be"),
        ("a" * 33 + ":1", "cannot be a host's name"),
        ("a:1,b:1,a:2", "two hosts called 'a'"),
        ("a:fast", "the share 'fast' is not a number"),
        ("a:-1", "the share '-1' is not a number"),
        ("a:nan", "the share 'nan' is not a number"),
        ("a:0", "at least 0.01"),
        ("a:1:0", "slots '0' is not a whole number"),
        ("a:1:x", "slots 'x' is not a whole number"),
        (",".join(f"h{i}:1" for i in range(255)), "255 hosts"),
    ],
)
def test_hosts_that_are_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match="--hosts: ") as caught:
        parse_hosts(text)
    assert says in str(caught.value)


def test_slots_of_one_run() -> None:
    assert list(parse_slots("b:1,a:2", (A, B)).items()) == [("b", 1), ("a", 2)]
    for text, says in [
        ("a", "'a' is not name:slots"),
        ("c:1", "no host 'c'; the hosts are a, b"),
        ("a:1,a:1", "twice"),
        ("a:0", "not a whole number"),
    ]:
        with pytest.raises(UsageError, match=says):
            parse_slots(text, (A, B))


def test_hosts_file() -> None:
    assert hosts_file((A, B)) == "127.0.0.1\tlocalhost\n10.77.0.1\ta\n10.77.0.2\tb\n"


@pytest.mark.parametrize(("text", "bits"), [("1gbit", 1e9), ("100mbit", 1e8), ("2.5Gbit", 2.5e9), ("500kbit", 5e5)])
def test_bandwidth(text: str, bits: float) -> None:
    assert link.parse_bandwidth(text) == bits


@pytest.mark.parametrize(("text", "seconds"), [("1ms", 1e-3), ("200us", 2e-4), ("0.5s", 0.5)])
def test_latency(text: str, seconds: float) -> None:
    assert link.parse_latency(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("text", ["1", "fast", "1gb", "-1gbit", "0gbit", "1bit", "1e3mbit", ""])
def test_bandwidth_that_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--bandwidth: "):
        link.parse_bandwidth(text)


@pytest.mark.parametrize("text", ["1", "soon", "0ms", "-1ms", "11s", "1 h", ""])
def test_latency_that_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--latency: "):
        link.parse_latency(text)


def test_words_of_tc() -> None:
    # A millisecond of 1 Gbit/s is 125 kB; of 100 Mbit/s less than the least burst.
    assert link.Link(1e9).shaper() == ["tbf", "rate", "1000000000bit", "burst", "125000b", "latency", "50ms"]
    assert link.Link(1e8).shaper() == ["tbf", "rate", "100000000bit", "burst", "32768b", "latency", "50ms"]
    assert link.Link(latency=1.5e-3).delay() == ["netem", "delay", "1500us", "limit", "1000000"]


def test_a_link_in_words() -> None:
    assert str(link.Link()) == "bandwidth not limited, latency none added"
    assert str(link.Link(1e9, 2e-4)) == "bandwidth 1gbit, latency 200us"
    assert str(link.Link(1e8, 1e-3)) == "bandwidth 100mbit, latency 1ms"


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (1.0, (10_000, 10_000)),
        (0.25, (2_500, 10_000)),
        (2.5, (25_000, 10_000)),
        (0.05, (1_000, 20_000)),  # the kernel's least quota is 1 ms
        (0.01, (1_000, 100_000)),
    ],
)
def test_quota(share: float, expected: tuple[int, int]) -> None:
    assert cgroups.quota(share) == expected


def test_the_cpu_controller_is_found_in_version_1() -> None:
    mounts = (
        "31 29 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
        "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct\\040x rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
        "34 31 0:31 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    assert cgroups.find(mounts) == cgroups.Hierarchy(Path("/sys/fs/cgroup/cpu,cpuacct x"), 1)


def test_the_cpu_controller_is_found_in_version_2(tmp_path: Path) -> None:
    mounts = f"31 29 0:28 / {tmp_path} rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    with pytest.raises(RunError, match="no cgroup hierarchy with the cpu controller"):
        cgroups.find(mounts)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory\n")
    assert cgroups.find(mounts) == cgroups.Hierarchy(tmp_path, 2)


def test_what_is_written_in_version_2(tmp_path: Path) -> None:
    """On plain files: the kernel's own are there as soon as the folder is."""
    (tmp_path / "cgroup.subtree_control").write_text("memory\n")
    (tmp_path / "bpt-testbed").mkdir()
    (tmp_path / "bpt-testbed" / "cgroup.subtree_control").write_text("\n")
    cgroups.Hierarchy(tmp_path, 2).add_host("b", 0.25)
    written = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {
        "cgroup.subtree_control": "+cpu\n",
        "bpt-testbed/cgroup.subtree_control": "+cpu\n",
        "bpt-testbed/cpu.weight": "1000\n",
        "bpt-testbed/b/cpu.weight": "25\n",
        "bpt-testbed/b/cpu.max": "2500 10000\n",
    }


def test_a_cgroup_that_is_refused_names_host_and_reason(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"host 'b' its share of the processor: .*No such file"):
        cgroups.Hierarchy(tmp_path / "absent", 1).add_host("b", 0.25)


def test_the_script_that_enters_a_host(tmp_path: Path) -> None:
    text = enter.script({"a": Path("/groups/a/job-1"), "b": Path("/groups/b/job-1")}, "/a folder")
    assert "b)\n    echo $$ >/groups/b/job-1/cgroup.procs\n    network=/run/netns/bpt-testbed-b\n" in text
    assert "cd '/a folder'\n" in text
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0  # sh can read it


def test_words_of_mpirun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpirun, "find_mpirun", lambda: Path("/bin/mpirun"))
    slots = {"a": 2, "b": 1}
    assert mpirun.words(slots, None, []) == ["/bin/mpirun", "--host", "a:2,b:1", "-n", "3"]
    assert mpirun.words(slots, 1, ["-x", "A=1"]) == ["/bin/mpirun", "--host", "a:2,b:1", "-n", "1", "-x", "A=1"]
    for ranks in (0, 4):
        with pytest.raises(UsageError, match=f"-n {ranks}: the hosts have 3 slots"):
            mpirun.words(slots, ranks, [])
    for option in ("--host", "-H", "--hostfile=x"):
        with pytest.raises(UsageError, match="--slots"):
            mpirun.words(slots, None, [option, "a"])


def test_what_the_caller_has_set_stays() -> None:
    found = mpirun.environment(Path("/run/enter"), {"OMP_NUM_THREADS": "3", "HOME": "/root"})
    assert (found["OMP_NUM_THREADS"], found["HOME"]) == ("3", "/root")
    assert found["PRTE_MCA_plm_ssh_agent"] == "/run/enter"
    assert mpirun.environment(Path("/run/enter"), {})["OMP_NUM_THREADS"] == "1"
    assert ("OMPI_ALLOW_RUN_AS_ROOT" in found) == (os.geteuid() == 0)


def test_an_mpirun_that_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mpirun"
    monkeypatch.setattr(mpirun, "job_path", lambda: str(tmp_path))
    with pytest.raises(RunError, match="no mpirun found; pip install"):
        mpirun.find_mpirun()
    for said in ("mpirun (Open MPI) 4.1.4", "HYDRA build details"):
        program.write_text(f"#!/bin/sh\necho '{said}'\n")
        program.chmod(0o755)
        with pytest.raises(RunError, match="is not Open MPI 5 or newer; it says"):
            mpirun.find_mpirun()
    program.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\n")
    assert mpirun.find_mpirun() == program


def test_where_no_test_bed_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert "needs Linux" in str(programs.why_not())
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in str(programs.why_not())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name, path: None if name == "tc" else f"/sbin/{name}")
    assert programs.why_not() == 'the program "tc" is missing (Debian, Ubuntu: apt install iproute2)'


def test_a_program_that_fails_is_quoted() -> None:
    with pytest.raises(RunError, match=r"^ls /absent: ls: .*No such file"):
        programs.call("ls", "/absent")
    with pytest.raises(RunError, match='the program "no-such-program" is missing'):
        programs.call("no-such-program")


def test_more_cores_than_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bed, "require", lambda: None)
    with pytest.raises(UsageError, match='host "a" wants 100000 cores; this machine has'):
        bed.up(bed.TestBed(parse_hosts("a:100000"), link.Link()))


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "arguments are required: <command>"),
        (["fly"], "invalid choice: 'fly'"),
        (["up"], "required: --hosts"),
        (["up", "--hosts", "a"], "'a' is not name:share"),
        (["up", "--hosts", "a:1", "--bandwidth", "fast"], "--bandwidth: 'fast'"),
        (["up", "--hosts", "a:1", "--bandwith", "1gbit"], "up: unknown: --bandwith 1gbit"),
        (["down", "now"], "down: unknown: now"),
        (["run", "-n", "2", "bpt"], "run: no command"),
        (["run", "-n", "two", "--", "bpt"], "invalid int value: 'two'"),
    ],
)
def test_a_wrong_command_line(
    argv: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["testbed", *argv])
    assert commands.main() == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    assert says in told


def test_the_program_starts_without_an_environment() -> None:
    """``sudo scripts/testbed`` runs in the system's Python, which has neither torch nor bpt."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(PROGRAM), "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "scripts/testbed up --hosts 'a:1.0,b:0.25'" in done.stdout
