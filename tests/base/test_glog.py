"""glog's flags and environment: what they leave of a command line, which lines are written, and where."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bpt.base.errors import UsageError
from bpt.base.glog import GlogSettings, take_flags, wants_stderr
from bpt.base.log import LOG, start_logging
from bpt.cli.main import main


@pytest.mark.parametrize(
    ("words", "left", "environ"),
    [
        ("train --logtostderr --solver S", "train --solver S", {"GLOG_logtostderr": "true"}),
        ("-logtostderr=1 train", "train", {"GLOG_logtostderr": "1"}),
        ("train --nologtostderr", "train", {"GLOG_logtostderr": "false"}),
        ("--minloglevel 2 test -stderrthreshold=1", "test", {"GLOG_minloglevel": "2", "GLOG_stderrthreshold": "1"}),
        ("train --log_dir logs -v 3", "train", {"GLOG_log_dir": "logs", "GLOG_v": "3"}),
        ("run -- caffe train --logtostderr", "run -- caffe train --logtostderr", {}),
        ("run --minloglevel=1 -- caffe -v 2", "run -- caffe -v 2", {"GLOG_minloglevel": "1"}),
        ("plot --log a.log -version v", "plot --log a.log -version v", {}),
    ],
)
def test_flags(words: str, left: str, environ: dict[str, str]) -> None:
    found: dict[str, str] = {}
    assert (take_flags(words.split(), (), found), found) == (left.split(), environ)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minloglevel", "quiet"], '--minloglevel takes a whole number, found "quiet"'),
        (["--logtostderr=perhaps"], '--logtostderr takes true or false, found "perhaps"'),
        (["--log_dir"], "--log_dir needs a value"),
    ],
)
def test_mistakes(words: list[str], message: str) -> None:
    environ: dict[str, str] = {}
    with pytest.raises(UsageError) as error:
        take_flags(words, (), environ)
    assert (str(error.value), environ) == (message, {})


@pytest.mark.parametrize(
    ("environ", "settings"),
    [
        ({}, (logging.INFO, logging.INFO, "")),
        ({"GLOG_minloglevel": "2"}, (logging.ERROR, logging.ERROR, "")),
        ({"GLOG_log_dir": "d"}, (logging.INFO, logging.INFO, "d")),
        ({"GLOG_log_dir": "d", "GLOG_logtostderr": "1"}, (logging.INFO, logging.INFO, "")),
        ({"GLOG_log_dir": "d", "GLOG_alsologtostderr": "0"}, (logging.INFO, logging.ERROR, "d")),
        ({"GLOG_alsologtostderr": "0", "GLOG_stderrthreshold": "1"}, (logging.INFO, logging.WARNING, "")),
        ({"GLOG_minloglevel": "7"}, (logging.CRITICAL, logging.CRITICAL, "")),
    ],
)
def test_settings(environ: dict[str, str], settings: tuple[int, int, str]) -> None:
    assert GlogSettings.read(environ) == settings


def test_where_lines_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (("log_dir", str(tmp_path)), ("alsologtostderr", "false"), ("stderrthreshold", "1")):
        monkeypatch.setenv(f"GLOG_{name}", value)
    try:
        start_logging()
        LOG.info("Iteration 0")
        LOG.warning("slow")
        written = capsys.readouterr().err.splitlines()
    finally:
        for name in ("log_dir", "alsologtostderr", "stderrthreshold"):
            monkeypatch.delenv(f"GLOG_{name}")
        start_logging()
    assert [line.partition("] ")[2] for line in written] == ["slow"]
    (link,) = tmp_path.glob("*.INFO")
    assert [line.partition("] ")[2] for line in link.read_text().splitlines()] == ["Iteration 0", "slow"]
    assert link.is_symlink() and ".log.INFO." in link.resolve().name


def test_a_folder_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOG_log_dir", str(tmp_path / "none"))
    with pytest.raises(UsageError, match=r"log_dir: cannot write the log to .*: No such file or directory"):
        start_logging()


def test_commands_take_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GLOG_minloglevel", "0")  # so that it is put back
    assert main(["device_query", "--minloglevel=2"]) == 0
    assert "] " not in capsys.readouterr().err
    assert main(["device_query", "--minloglevel=0"]) == 0


@pytest.mark.parametrize(
    ("environ", "on_stderr", "asks"),
    [
        ({}, logging.WARNING, False),
        ({"GLOG_stderrthreshold": "2"}, logging.ERROR, False),
        ({"GLOG_stderrthreshold": "0"}, logging.INFO, False),
        ({"GLOG_logtostderr": "1"}, logging.INFO, True),
        ({"GLOG_alsologtostderr": "yes"}, logging.INFO, True),
        ({"GLOG_logtostderr": "no"}, logging.WARNING, False),
    ],
)
def test_stderr_gets_warnings_where_the_log_is_elsewhere(environ: dict[str, str], on_stderr: int, asks: bool) -> None:
    assert GlogSettings.read(environ, is_elsewhere=True).least_on_stderr == on_stderr
    assert wants_stderr(environ) == asks


def test_a_switch_that_is_neither_on_nor_off() -> None:
    with pytest.raises(UsageError, match='GLOG_logtostderr takes true or false, found "perhaps"'):
        wants_stderr({"GLOG_logtostderr": "perhaps"})
