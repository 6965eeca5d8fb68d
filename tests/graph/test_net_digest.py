"""Digests tell texts apart, on every machine alike."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bpt.base.file_digest import file_fact
from bpt.graph.net_digest import net_digest
from bpt.train.runtime.run_facts import solver_digest
from tests.support.golden_cases import graph_of
from tests.support.hdf5_files import numbered, write
from tests.support.hdf5_files import text as hdf5
from tests.support.small_solver import NET
from tests.support.training import solver_of

SOLVER = 'net: "a.prototxt" base_lr: 0.1 lr_policy: "fixed" test_iter: 1 parallel_param { num_shards: 2 }'


def test_sixteen_hexadecimal_digits() -> None:
    assert re.fullmatch("[0-9a-f]{16}", net_digest(graph_of(NET)))
    assert re.fullmatch("[0-9a-f]{16}", solver_digest(solver_of(SOLVER)))


def test_the_same_text_in_other_words() -> None:
    assert net_digest(graph_of(NET.replace("\n", "\n\n  # a comment\n"))) == net_digest(graph_of(NET))
    reordered = 'parallel_param { num_shards: 2 } test_iter: 1 lr_policy: "fixed" base_lr: 1e-1 net: "a.prototxt"'
    assert solver_digest(solver_of(reordered)) == solver_digest(solver_of(SOLVER))


def test_another_process_gets_the_same() -> None:
    program = (
        "from tests.graph.test_net_digest import *\nprint(net_digest(graph_of(NET)), solver_digest(solver_of(SOLVER)))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert told == [net_digest(graph_of(NET)), solver_digest(solver_of(SOLVER))]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kernel_size: 3", "kernel_size: 5"),
        ('name: "ip"', 'name: "ip2"'),
        ('type: "gaussian"', 'type: "xavier"'),
        ("dim: 8 dim: 3 dim: 6 dim: 6", "dim: 8 dim: 3 dim: 7 dim: 7"),
        ("shape { dim: 8 }", "shape { dim: 8 dim: 1 }"),
    ],
)
def test_other_nets(old: str, new: str) -> None:
    assert old in NET
    assert net_digest(graph_of(NET.replace(old, new))) != net_digest(graph_of(NET))


def test_the_phase_counts() -> None:
    more = 'layer { name: "more" type: "Silence" bottom: "x2" include { phase: TEST } }'
    data = 'layer { name: "d2" type: "DummyData" top: "x2" dummy_data_param { shape { dim: 8 } } }'
    text = NET + data + more
    assert net_digest(graph_of(text, phase=0)) != net_digest(graph_of(text, phase=1))


@pytest.mark.parametrize(
    ("old", "new"),
    [("0.1", "0.2"), ("test_iter: 1", "test_iter: 1 test_iter: 1"), ("num_shards: 2", "num_shards: 3"),
     ("num_shards: 2", "")],
)  # fmt: skip
def test_other_solvers(old: str, new: str) -> None:
    assert solver_digest(solver_of(SOLVER.replace(old, new))) != solver_digest(solver_of(SOLVER))


@pytest.mark.parametrize(
    "more",
    ['net: "/elsewhere/a.prototxt"', 'weights: "/elsewhere/w.caffemodel"', 'snapshot_prefix: "/elsewhere/s"',
     "solver_mode: GPU device_id: 3", 'parallel_param { balance_param { profile: "/elsewhere/p.json" } }'],
)  # fmt: skip
def test_what_may_differ_from_host_to_host(more: str) -> None:
    assert solver_digest(solver_of(SOLVER, more)) == solver_digest(solver_of(SOLVER))


def test_where_a_net_finds_its_data_may_differ(tmp_path: Path) -> None:
    """What stands there is compared by other means."""
    texts = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        source = write(tmp_path / name, numbered(0, 5))
        source.write_text(f"{tmp_path}/{name}/0.h5\n")
        texts.append(hdf5(source))
    first, second = map(graph_of, texts)
    assert net_digest(first) == net_digest(second)
    assert first.nodes[0].spec.param.hdf5_data_param.source != second.nodes[0].spec.param.hdf5_data_param.source
    assert net_digest(graph_of(texts[0].replace("batch_size: 3", "batch_size: 4"))) != net_digest(first)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * 2**20 + b"b")
    digest = file_fact(str(path))
    assert re.fullmatch("[0-9a-f]{16}", digest)
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    assert file_fact(str(copy)) == digest
    path.write_bytes(b"a" * 2**20 + b"c")
    assert file_fact(str(path)) != digest
    assert file_fact(str(tmp_path / "nowhere")) == "missing"
