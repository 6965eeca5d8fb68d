"""The two files that every command starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.errors import PrototxtError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import read_net, read_solver, resolve_path
from tests.support.golden_files import INPUTS


def test_reads_a_solver() -> None:
    source = read_solver(INPUTS / "solver.prototxt")
    assert source.param.net == "lenet_train_test.prototxt"
    assert source.path == str(INPUTS / "solver.prototxt")
    assert source.origin("base_lr").path == source.path
    assert str(source.origin("delta")) == f"{source.path}:1:1"
    assert source.notes == ()


def test_overrides() -> None:
    source = read_solver(INPUTS / "solver.prototxt", ["max_iter: 7", "parallel_param { exchange: TREE }"])
    assert source.param.max_iter == 7
    assert source.param.parallel_param.exchange == pb.ParallelParameter.TREE
    assert str(source.origin("max_iter")) == "--set 'max_iter: 7':1:1"


def test_overrides_are_upgraded_too() -> None:
    assert read_solver(INPUTS / "solver.prototxt", ["solver_type: ADAM"]).param.type == "Adam"
    with pytest.raises(PrototxtError, match="given at --set 'type: \"SGD\"':1:1; keep one of them"):
        read_solver(INPUTS / "solver.prototxt", ['type: "SGD"', "solver_type: ADAM"])


def test_mistake_in_an_override() -> None:
    with pytest.raises(PrototxtError, match='did you mean "max_iter"'):
        read_solver(INPUTS / "solver.prototxt", ["max_itr: 7"])


def test_mistakes_that_were_given_to_caffe() -> None:
    with pytest.raises(PrototxtError) as caught:
        read_solver(INPUTS / "solver_unknown_field.prototxt")
    assert str(caught.value).startswith(
        f'{INPUTS}/solver_unknown_field.prototxt:16:1: SolverParameter has no field "warmup_iters"'
    )
    for name, place in (("bad_bad_enum", "5:90"), ("bad_net_unknown_field", "8:148"), ("bad_syntax", "3:1")):
        with pytest.raises(PrototxtError) as caught:
            read_net(INPUTS / f"{name}.prototxt")
        assert str(caught.value).startswith(f"{INPUTS}/{name}.prototxt:{place}: ")


def test_snapshot_prefix_that_is_not_set(tmp_path: Path) -> None:
    path = tmp_path / "my.solver.prototxt"
    path.write_text('net: "n.prototxt"')
    source = read_solver(path)
    assert source.param.snapshot_prefix == f"{tmp_path}/my.solver"
    assert source.notes == (f"snapshot_prefix was not specified and is set to {tmp_path}/my.solver",)


def test_snapshot_prefix_that_is_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "solver.prototxt"
    path.write_text(f'snapshot_prefix: "{tmp_path}"')
    source = read_solver(path)
    assert source.param.snapshot_prefix == f"{tmp_path}/solver"
    assert source.notes == (f"snapshot_prefix was a directory and is replaced to {tmp_path}/solver",)


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ('snapshot_prefix: ""', ["snapshot_prefix is empty: snapshots go to the current folder, as "
         "_iter_<N>.caffemodel and so on"]),
        ('snapshot_prefix: "" snapshot_after_train: false', []),
        ('snapshot_prefix: "a" test_interval: 5', ["test_interval is 5, but there is no test_iter: nothing is tested"]),
        ('snapshot_prefix: "a" test_interval: 5 test_iter: 2', []),
        ('snapshot_prefix: "a" test_interval: 5 test_net: "b"', []),  # which is refused later
    ],
)  # fmt: skip
def test_settings_without_what_they_need(text: str, notes: list[str], tmp_path: Path) -> None:
    (tmp_path / "s.prototxt").write_text(text)
    source = read_solver(tmp_path / "s.prototxt")
    assert list(source.notes) == notes


def test_reads_a_net() -> None:
    source = read_net(INPUTS / "lenet_train_test.prototxt")
    assert source.param.layer[0].type == "Data"
    assert source.origin("layer", 0, "type").path == source.path
    assert source.notes == ()


def test_reads_a_net_in_an_old_format(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text('layers { name: "r"\ntype: RELU }')
    source = read_net(path)
    assert source.param.layer[0].type == "ReLU"
    assert str(source.origin("layer", 0, "type")) == f"{path}:2:1"
    assert source.notes == (
        f"{path}:1:1: Successfully upgraded file specified using deprecated V1LayerParameter",
        f"{path}: upgraded in memory only; tools/upgrade_net_proto_text.py writes it in today's format",
    )


def test_resolve_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "solvers"
    folder.mkdir()
    (folder / "net.prototxt").touch()
    solver = folder / "solver.prototxt"
    monkeypatch.chdir(tmp_path)
    assert resolve_path("net.prototxt", "solvers/solver.prototxt") == "solvers/net.prototxt"
    assert resolve_path("net.prototxt", solver) == f"{folder}/net.prototxt"
    assert resolve_path("other.prototxt", solver) == "other.prototxt"
    assert resolve_path(str(folder / "net.prototxt"), "x/y") == f"{folder}/net.prototxt"
    (tmp_path / "net.prototxt").touch()
    assert resolve_path("net.prototxt", solver) == "net.prototxt"
    monkeypatch.chdir(folder)
    assert resolve_path("net.prototxt", "solver.prototxt") == "net.prototxt"
