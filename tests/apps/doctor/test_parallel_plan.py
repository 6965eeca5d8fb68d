"""What is said of a run's division over ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bpt.apps.doctor import parallel_plan as plan
from bpt.apps.doctor.findings import Severity
from bpt.base.errors import LayerError
from tests.apps.doctor.nets import BATCH_NORM, net_text, write_run
from tests.apps.doctor.plan_checks import CPU, check
from tests.apps.doctor.world import texts_of


def test_one_process(tmp_path: Path) -> None:
    found = check("a", write_run(tmp_path / "a"))
    assert texts_of(found.section, Severity.OK) == [
        "1 rank = 1 replica; ALLREDUCE, balance UNIFORM",
        "training net: a batch of 8 samples",
        "parameters, gradients and history take 0.2 KiB on a rank; blobs need further memory",
    ]
    assert found.snapshot == 2 * 4 * 15  # weights and momentum of 3 · 4 weights and 3 biases


def test_data_parallel(tmp_path: Path) -> None:
    found = check("aabb", write_run(tmp_path / "a"))
    assert texts_of(found.section, Severity.OK)[1:] == [
        "training net: a batch of 8 samples, 2 for each of 4 ranks",
        "parameters, gradients and history take 0.2 KiB on a rank; blobs need further memory",
        # 15 parameters of 4 bytes, 1 µs a byte
        "each iteration sums 0.1 KiB of gradients over the ranks: about 0.06 ms by the Allreduce above, of which "
        "computing hides a part",
    ]
    assert len(found.section.findings) == 4


def test_local_steps(tmp_path: Path) -> None:
    found = check("ab", write_run(tmp_path / "a", "parallel_param { exchange: LOCAL local_param { steps: 4 } }"))
    told = "every 4 iterations average 0.1 KiB of weights over the replicas: about 0.06 ms by the Allreduce above"
    assert texts_of(found.section, Severity.OK)[-1] == told


def test_uneven_shares(tmp_path: Path) -> None:
    found = check("aaa", write_run(tmp_path / "a"))
    assert texts_of(found.section, Severity.NOTE) == [
        "training net: a batch of 8 samples, 2 to 3 for each of 3 ranks: those with 2 wait for the others"
    ]


def test_ranks_without_samples(tmp_path: Path) -> None:
    found = check("aaaaaa", write_run(tmp_path / "a", net=net_text(batch=4)))
    (finding,) = [finding for finding in found.section.findings if finding.kind is Severity.WARNING]
    assert finding.text == "training net: a batch of 4 samples leaves nothing to do for ranks 4-5"
    assert finding.remedy == "set a batch_size of at least 6, or start 4 ranks"


def test_a_batch_for_each_replica(tmp_path: Path) -> None:
    found = check("aa", write_run(tmp_path / "a", "parallel_param { batch_scope: REPLICA }"))
    assert "training net: a batch of 16 samples, 8 for each of 2 ranks" in texts_of(found.section, Severity.OK)


TURNED = """
layer { name: "turned" type: "Permute" bottom: "fc" top: "turned" include { phase: TEST } permute_param { order: 1 } }
"""


def test_tests_have_the_batch_of_the_text(tmp_path: Path) -> None:
    tested = "parallel_param { batch_scope: REPLICA } test_iter: 1 test_interval: 1"
    found = check("aa", write_run(tmp_path / "a", tested))
    assert "test net #0: a batch of 8 samples, 4 for each of 2 ranks" in texts_of(found.section, Severity.OK)
    found = check("aa", write_run(tmp_path / "b", tested, net_text() + TURNED))
    train = TURNED.replace("TEST", "TRAIN")
    kept = check("aa", write_run(tmp_path / "c", tested, net_text() + train))
    told = "training net: a batch of 16 samples, 8 for each of 2 ranks; batches of this net cannot be divided"
    assert told in texts_of(kept.section, Severity.OK)
    told = "test net #0: a batch of 8 samples, which cannot be divided: each rank runs all of it"
    assert told in texts_of(found.section, Severity.OK)


def test_masters_have_the_samples(tmp_path: Path) -> None:
    param = "parallel_param { num_shards: 2 fc_param { scheme: MASTER_SLAVE } }"
    found = check("aaaa", write_run(tmp_path / "a", param, net_text(batch=1)))
    assert texts_of(found.section, Severity.WARNING) == [
        "training net: a batch of 1 samples leaves nothing to do for rank 2"
    ]


def test_ranks_that_do_not_fit(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", "parallel_param { num_shards: 2 }")
    (finding,) = check("aaa", path).section.findings
    assert finding.kind is Severity.PROBLEM
    assert finding.text.startswith(f"{path}:1:")
    assert "3 ranks cannot be divided into num_stages 1 × num_shards 2" in finding.text


def test_a_layer_that_mixes_samples(tmp_path: Path) -> None:
    layer = 'layer { name: "s" type: "Softmax" bottom: "data" top: "s" softmax_param { axis: 0 } }'
    path = write_run(tmp_path / "a", net=net_text(between=layer))
    (text,) = texts_of(check("ab", path).section, Severity.PROBLEM)
    assert "net.prototxt:1:" in text
    assert 'layer "s": ' in text
    assert "train on one process" in text


def test_batch_norm(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", net=net_text(between=BATCH_NORM))
    (text,) = texts_of(check("ab", path).section, Severity.NOTE)
    assert text.startswith('BatchNorm "norm": each rank normalises by its own samples')
    assert texts_of(check("a", path).section, Severity.NOTE) == []
    path = write_run(tmp_path / "b", "parallel_param { sync_batch_norm: true }", net_text(between=BATCH_NORM))
    assert texts_of(check("ab", path).section, Severity.NOTE) == []


def test_too_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Small:
        def __init__(self, *arguments: Any) -> None:
            assert arguments == (CPU, 2)  # two ranks share the host's memory
            self.room = 170

    monkeypatch.setattr(plan, "Memory", Small)
    (text,) = texts_of(check("aabb", write_run(tmp_path / "a")).section, Severity.PROBLEM)
    # 15 parameters of 4 bytes, their gradients and momentum: 180 bytes
    assert text.startswith("ranks 0-3 on hosts a, b: parameters, gradients and history take 0.2 KiB for each rank")


def test_a_net_that_is_wrong(tmp_path: Path) -> None:
    layer = 'layer { name: "r" type: "ReLU" bottom: "nothing" top: "r" }'
    found = check("ab", write_run(tmp_path / "a", net=net_text(between=layer)))
    assert isinstance(found.wrong, LayerError)
    assert texts_of(found.section, Severity.PROBLEM) == [str(found.wrong)]


def test_a_net_whose_data_are_known_to_be_missing(tmp_path: Path) -> None:
    """One problem is told once."""
    net = 'layer { name: "d" type: "Data" top: "d" data_param { source: "nowhere" batch_size: 1 backend: LMDB } }'
    path = write_run(tmp_path / "a", net=net)
    found = check("ab", path, known=("nowhere: no such folder",))
    assert found.wrong is None
    assert [finding.kind for finding in found.section.findings] == [Severity.NOTE]
    assert isinstance(check("ab", path).wrong, LayerError)
