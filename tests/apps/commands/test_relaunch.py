"""Jobs that fail are started again, within limits; those that are to end are not; others take their place."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bpt.apps.commands.relaunch import Relaunch, RestartLimits, check_resumes, join
from bpt.base.errors import UsageError, WriteError
from bpt.cli.main import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


AT_ONCE = RestartLimits(3, wait=0.0)


def job(script: str) -> list[str]:
    """Notes each start in the file "starts"."""
    return ["sh", "-c", f"echo >> starts; {script}"]


def wait_for(path: Path) -> None:
    """Wait for a file, for two minutes at most."""
    pause, end = threading.Event(), time.monotonic() + 120
    while not path.exists() and time.monotonic() < end:
        pause.wait(0.01)


def starts() -> int:
    return len(Path("starts").read_text())


def test_until_it_ends_well(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bpt"):
        assert Relaunch(job("[ $(wc -l < starts) = 3 ]"), AT_ONCE).run() == 0
    assert starts() == 3
    told = [message for message in caplog.messages if message.startswith("The job has failed with status 1 after ")]
    assert [message.split("; ")[1] for message in told] == ["restart 1 of 3 in 0 s", "restart 2 of 3 in 0 s"]


@pytest.mark.parametrize(
    ("script", "status", "often"),
    [("exit 3", 3, 4), ("kill -9 $$", 128 + 9, 4), ("exit 2", 2, 1)],  # a mistake is not mended by a restart
)
def test_until_it_has_failed_too_often(script: str, status: int, often: int) -> None:
    assert Relaunch(job(script), AT_ONCE).run() == status
    assert starts() == often


def test_only_restarts_within_a_time_count() -> None:
    assert Relaunch(job("[ $(wc -l < starts) = 5 ]"), RestartLimits(1, within=1e-6, wait=0.0)).run() == 0


def test_a_job_that_is_to_end_is_not_started_again() -> None:
    """It gets the signal that this process gets."""
    assert Relaunch(job("kill -TERM $PPID; exec sleep 60"), AT_ONCE).run() == 128 + 15
    assert starts() == 1


class LatePopen(subprocess.Popen[bytes]):
    """A job that has sent its signal before the process that starts it has it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        wait_for(Path("sent"))


@pytest.mark.parametrize("popen", [subprocess.Popen, LatePopen])
def test_a_signal_goes_to_a_rank_that_has_announced_itself(
    popen: type[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that has started it may not pass signals on; a signal that comes again is for the job itself."""
    monkeypatch.setattr(subprocess, "Popen", popen)
    rank = (
        'sh -c \'trap "touch told; exit 7" TERM; touch $BPT_RUN_FOLDER/rank_$$; kill -TERM $RUN; touch sent;'
        " sleep 60 & wait'"
    )
    script = f"trap 'touch killed' TERM; RUN=$PPID {rank}"
    assert Relaunch(job(script), AT_ONCE).run() == 7
    assert Path("told").exists() and not Path("killed").exists()
    assert not list(Path().glob("bpt_run_*"))


RUNS = "trap 'exit 0' USR1; touch ready; while :; do sleep 0.02; done"


def joined_when_ready(*commands: list[str]) -> threading.Thread:
    """Lets this process's job be followed by these, each once the one before is ready."""

    def call() -> None:
        for command in commands:
            wait_for(Path("ready"))
            Path("ready").unlink()
            join(os.getpid(), command)

    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_another_command_takes_over() -> None:
    thread = joined_when_ready(["sh", "-c", "touch other; exit 0"])
    assert Relaunch(job(RUNS), AT_ONCE).run() == 0
    thread.join()
    assert Path("other").exists() and starts() == 1
    assert not list(Path().glob("bpt_run_*"))


def test_what_takes_over_from_a_job_that_is_to_end_gets_its_signal() -> None:
    def call() -> None:
        wait_for(Path("ready"))
        os.kill(os.getpid(), signal.SIGTERM)
        wait_for(Path("told"))
        join(os.getpid(), ["sh", "-c", "exec sleep 60"])

    thread = threading.Thread(target=call)
    thread.start()
    status = Relaunch(
        job("trap 'touch told' TERM; trap 'exit 0' USR1; touch ready; while :; do sleep 0.02; done")
    ).run()
    thread.join()
    assert status == 128 + signal.SIGTERM


def test_a_wrong_command_to_join_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    thread = joined_when_ready(["sh", "-c", "exit 2"], ["true"])
    with caplog.at_level(logging.WARNING, "bpt"):
        assert Relaunch(job(RUNS), AT_ONCE).run() == 0
    thread.join()
    assert starts() == 2
    assert "the command of bpt join is wrong; continuing" in caplog.text


def test_what_a_killed_process_of_the_same_number_has_left(tmp_path: Path) -> None:
    folder = tmp_path / f"bpt_run_{os.getpid()}"
    folder.mkdir(0o700)
    (folder / "join.json").write_text('["false"]')
    assert Relaunch(job("exit 0"), AT_ONCE).run() == 0
    assert starts() == 1 and not folder.exists()
    folder.mkdir()
    folder.chmod(0o777)  # anybody could leave commands there
    with pytest.raises(WriteError, match="is not a folder of this user alone"):
        Relaunch(job("exit 0"), AT_ONCE).run()
    with pytest.raises(UsageError, match="is no bpt run of this user"):
        join(os.getpid(), ["true"])


def test_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["join", str(os.getpid()), "--", "true"]) == 2
    assert "is no bpt run of this user that is running on this host" in capsys.readouterr().err
    assert main(["run"]) == 2
    assert "bpt run needs a command that starts the job" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no-such-program: No such file or directory"):
        Relaunch(["no-such-program"]).run()


def test_a_run_that_would_begin_anew_is_refused() -> None:
    with pytest.raises(UsageError, match="give it --snapshot auto"):
        check_resumes(["mpirun", "-n", "2", "/usr/bin/bpt", "train", "--solver", "s.prototxt"])
    for words in (["--snapshot", "auto"], ["-snapshot=auto"]):
        check_resumes(["mpirun", "bpt", "train", "--solver", "s.prototxt", *words])
    check_resumes(["my-script", "train"])
