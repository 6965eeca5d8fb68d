"""CGDP on two hosts: summed in the memory of each, then between them; the weights of one process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import LmdbWriter
from scripts.make_synthetic import images
from tests.integration.testbed import needs_mpi, needs_testbed, program, up
from tests.support.paths import ROOT

pytestmark = [*needs_testbed, needs_mpi]

DRIVER = ROOT / "tests" / "mpi" / "check_ranks.py"
SGD = "momentum: 0.9 weight_decay: 0.0005 "
# Of 1000 layers: all; the last one is searched.
CHUNKS = ["chunk_size: 1", "chunk_size: 2", "chunk_size: 5", "chunk_size: 1000", "interval: 1"]


@pytest.mark.slow
def test_two_hosts_give_the_weights_of_one_process(tmp_path: Path) -> None:
    with LmdbWriter(tmp_path / "lenet_lmdb") as writer:
        for image, label in images(23, (1, 28, 28), 10, seed=1, part=0):
            writer.put(encode_datum(image, label))
    rows = [["lenet", 10, SGD, f"exchange: CGDP cgdp_param {{ {each} }}"] for each in CHUNKS]
    rows.append(["lenet", 11, SGD + "iter_size: 2", "exchange: CGDP cgdp_param { chunk_size: 1 } num_shards: 3"])
    up("a:1.0,b:0.5", "--bandwidth", "1gbit")
    done = program("run", "--slots", "a:2,b:1", "--", sys.executable, str(DRIVER), str(tmp_path), json.dumps(rows))
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result[:4] for result in results] == rows
    for *row, worst in results:
        for name, (gradient, weight, rounded) in worst.items():
            assert max(gradient, weight) <= 1e-5 and rounded <= 3e-5, (row, name)


def test_the_hosts_are_told_apart(tmp_path: Path) -> None:
    """Ranks of one host share memory, and those of two do not, whatever machine the hosts are on."""
    driver = tmp_path / "hosts.py"
    driver.write_text(
        "from bpt.system.comm.launch import world\n"
        "comm = world()\n"
        "found = comm.allgather((comm.host, comm.Split_type_shared().size))\n"
        "if comm.rank == 0: print(found)\n"
    )
    up("a:1.0,b:0.5", "--bandwidth", "1gbit")
    done = program("run", "--slots", "a:2,b:1", "--", sys.executable, str(driver))
    assert done.stdout.strip() == "[('a', 2), ('a', 2), ('b', 1)]"
