"""Files are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from bpt.base.atomic import atomic_file, atomic_path, check_place
from bpt.base.errors import FileError, WriteError


def test_writes_a_new_file(tmp_path: Path) -> None:
    target = tmp_path / "a.h5"
    with atomic_path(target) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".h5"
        assert temporary.name.startswith(".a.")
        temporary.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_replaces_a_file(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("old")
    target.chmod(0o640)
    with atomic_file(target) as file:
        file.write(b"new")
        file.flush()
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_new_files_have_ordinary_permissions(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "a"):
        pass
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "latest"
    link.symlink_to(tmp_path / "folder" / "a")
    with atomic_file(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert (tmp_path / "folder" / "a").read_text() == "new"


def _write_half(file: BinaryIO, error: type[BaseException]) -> None:
    file.write(b"half")
    raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_interrupted_writing_changes_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "a"
    target.write_text("old")
    with pytest.raises(error), atomic_file(target) as file:
        _write_half(file, error)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_failure_to_finish_changes_nothing(tmp_path: Path, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = tmp_path / "a"
    target.write_text("old")
    monkeypatch.setattr(os, function, fail)
    with pytest.raises(WriteError) as caught, atomic_file(target) as file:
        file.write(b"new")
    assert str(caught.value) == f"{target}: could not be written: No space left on device"
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_full_disk(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="No space left on device"), atomic_path(tmp_path / "a"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    def complaint(path: Path) -> str:
        with pytest.raises(WriteError) as caught, atomic_file(path):
            pytest.fail("the block must not be entered")
        return str(caught.value).removeprefix(f"{path}: could not be written: ")

    assert complaint(tmp_path / "no" / "a") == f'there is no folder "{tmp_path}/no"'
    assert complaint(tmp_path) == "there is a folder of that name"
    (tmp_path / "file").touch()
    assert complaint(tmp_path / "file" / "a") == f'there is no folder "{tmp_path}/file"'


def test_a_pipe_gets_the_content_once_it_is_complete(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    path = f"/proc/self/fd/{writing}"  # as /dev/stdout is; its real path is no file
    with atomic_file(path) as file:
        file.write(b"some ")
        file.write(b"words")
    with contextlib.suppress(ValueError), atomic_file(path) as file:
        file.write(b"half")
        raise ValueError
    os.close(writing)
    with open(reading, "rb") as pipe:
        assert pipe.read() == b"some words"


def test_a_device() -> None:
    check_place("/dev/null")
    with atomic_path("/dev/null") as path:
        path.write_bytes(b"x")


def test_a_place_is_checked_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def complaint(path: Path) -> str:
        with pytest.raises(FileError) as caught:
            check_place(path)
        assert caught.value.exit_status == 2
        return str(caught.value).removeprefix(f"{path}: cannot be written: ")

    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    for path in ("new", "file", f"{tmp_path}/new"):
        check_place(path)
    assert complaint(Path("no/a")) == 'there is no folder "no"; make it, or name another'
    assert complaint(Path("file/a")) == 'there is no folder "file"; make it, or name another'
    assert complaint(tmp_path) == "it is a folder"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert complaint(Path("new")) == 'the folder "." is not writable'


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can create a file")
def test_a_folder_that_takes_no_files_shows_before_the_work() -> None:
    with pytest.raises(FileError, match='nothing can be created in the folder "/proc": '):
        check_place("/proc/trace.json")
