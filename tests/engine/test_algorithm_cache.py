"""The file of measured times: for this machine only, and never a reason to fail."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from bpt.engine import algorithm_cache as module
from bpt.engine.algorithm_cache import AlgorithmCache
from tests.support.kernel_nets import times

LAYER, OTHER = "Convolution, 32×1×20×20", "InnerProduct, 32×2048"


def test_written_and_read(tmp_path: Path) -> None:
    cache = AlgorithmCache(tmp_path / "new" / "folder")
    assert cache.times == {}
    cache.times[LAYER] = times(0.002, 0.001)
    cache.write()
    assert AlgorithmCache(tmp_path / "new" / "folder").times == {LAYER: times(0.002, 0.001)}


def test_nothing_new_is_not_written(tmp_path: Path) -> None:
    AlgorithmCache(tmp_path).write()
    assert not list(tmp_path.iterdir())


def test_two_processes_write(tmp_path: Path) -> None:
    first, second = AlgorithmCache(tmp_path), AlgorithmCache(tmp_path)
    first.times[LAYER] = times(2, 1)
    second.times[OTHER] = times(4, 3)
    first.write()
    second.write()
    assert AlgorithmCache(tmp_path).times == {LAYER: times(2, 1), OTHER: times(4, 3)}


def test_another_machine_has_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = AlgorithmCache(tmp_path)
    cache.times[LAYER] = times(2, 1)
    cache.write()
    (path,) = tmp_path.iterdir()
    before = module.machine_facts()
    for name in before:
        monkeypatch.setattr(module, "machine_facts", lambda name=name: {**before, name: "another"})
        assert AlgorithmCache(tmp_path).times == {}
    # Not even if the file is copied.
    other = AlgorithmCache(tmp_path)
    other.times[LAYER] = times(4, 3)
    other.write()
    (copied,) = set(tmp_path.iterdir()) - {path}
    path.write_bytes(copied.read_bytes())
    monkeypatch.undo()
    assert AlgorithmCache(tmp_path).times == {}


def test_the_environment_of_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert "ONEDNN_MAX_CPU_ISA=AVX2" in str(module.machine_facts()["environment"])


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace("0.002", "-1"),
        lambda text: text.replace("PATCHES", "UNKNOWN"),
        lambda text: text.replace("FORWARD", "UNKNOWN"),
        lambda text: json.dumps({**json.loads(text), "layers": {LAYER: 1}}),
    ],
    ids=["cut", "a list", "a negative time", "an algorithm", "a role", "a number"],
)
def test_a_damaged_file_is_ignored_with_one_warning(
    damage: object, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = AlgorithmCache(tmp_path)
    cache.times[LAYER] = times(0.002, 0.001)
    cache.write()
    (path,) = tmp_path.iterdir()
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    with caplog.at_level(logging.WARNING, "bpt"):
        cache = AlgorithmCache(tmp_path)
        assert cache.times == {}
        cache.times[OTHER] = times(4, 3)
        cache.write()
    assert len(caplog.messages) == 1
    assert str(path) in caplog.messages[0]
    assert AlgorithmCache(tmp_path).times == {OTHER: times(4, 3)}


def test_what_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    cache = AlgorithmCache(tmp_path / "file" / "folder")
    cache.times[LAYER] = times(2, 1)
    with caplog.at_level(logging.INFO, "bpt"):
        cache.write()
    assert "cannot be kept" in caplog.text
    nowhere = AlgorithmCache(None)
    nowhere.times[LAYER] = times(2, 1)
    nowhere.write()
    assert AlgorithmCache(None).times == {}


def test_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = AlgorithmCache.of_user()
    cache.times[LAYER] = times(2, 1)
    cache.write()
    (path,) = (tmp_path / "bpt").iterdir()
    assert path.name.startswith("algorithms-")
