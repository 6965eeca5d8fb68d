"""What is said of the plan of a run by the outer layer."""

from __future__ import annotations

import shutil
import tempfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bpt.apps.doctor import outer_plan, outer_work
from bpt.apps.doctor.findings import Finding, Ranks, Severity
from bpt.apps.doctor.outer_plan import check_outer_plan
from bpt.apps.doctor.parallel_plan import CheckedPlan
from bpt.apps.doctor.texts import Texts
from bpt.base.errors import LayerError, PrototxtError, UserError
from bpt.config.plan.resolve import read_plan
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.system.comm.base import Communicator
from bpt.train.outer.flat_weights import FlatWeights
from tests.apps.doctor.nets import data_net, net_text, write_run
from tests.apps.doctor.plan_checks import check as check_inner
from tests.apps.doctor.world import on_hosts, texts_of
from tests.support.hdf5_files import write as write_hdf5
from tests.support.lmdbs import write_images

CPU = torch.device("cpu")
IDPA = "parallel_param { exchange: AGWU balance: IDPA %s }"
UDPA = "parallel_param { exchange: AGWU %s }"


@pytest.fixture(autouse=True)
def of_known_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank r has r + 1 times the power of rank 0."""

    def powers(world: Communicator, device: float | None) -> list[float | None]:
        return [1000.0 * (rank + 1) for rank in range(world.size)]

    monkeypatch.setattr(outer_plan, "powers", powers)


@pytest.fixture
def data(tmp_path: Path) -> str:
    """An LMDB of 20 images of 1×2×2."""
    return write_images(tmp_path / "data", [np.full((1, 2, 2), index, np.uint8) for index in range(20)])


def check(hosts: str, path: Path, known: tuple[str, ...] = (), start: int = 0) -> CheckedPlan:
    """The plan of the solver at ``path``, the same on all ranks."""

    def one(ranks: Ranks) -> CheckedPlan:
        rank = ranks.world.rank
        texts = Texts.read(lambda: read_plan(path, ["max_iter: 100"]), rank)
        assert texts.checked.error is None
        assert texts.solver.value and texts.plans.value
        return check_outer_plan(ranks, texts.solver.value, texts.plans.value, CPU, known, start)

    plans = on_hosts(hosts, one)
    assert all((other.section, str(other.wrong)) == (plans[0].section, str(plans[0].wrong)) for other in plans)
    return plans[0]


def only(plan: CheckedPlan, kind: Severity) -> Finding:
    (finding,) = [finding for finding in plan.section.findings if finding.kind is kind]
    return finding


def test_idpa(tmp_path: Path, data: str) -> None:
    found = check("abb", write_run(tmp_path / "a", IDPA % "", data_net(data)))
    assert found.section.table == (
        "worker  rank  host  MHz × cores  first samples",
        "0       1     b            2000              2",
        "1       2     b            3000              3",
    )
    assert texts_of(found.section, Severity.OK) == [
        "AGWU, balance IDPA; server on rank 0; 2 computing nodes",
        # K = 100 · 4 / 20; K' = A + floor(K - (A + 1) / 2) = 4 + floor(17.5)
        "100 iterations of 4 samples are 20 passes over 20 samples (K); each worker makes 21 over its own",
        "batch 1 of 4 has 5 samples, 2 to 3 for each of 2 workers: by the power of the workers (MHz × cores); the next "
        "ones by each worker's time for a sample",
        # values, history, newest, tested, two for each worker; and values, gradients, history, submitted, coming
        "the weights take 0.1 KiB; rank 0 holds up to 8 copies of them as the server, a worker 5; blobs "
        "need further memory",
        "each pass moves 0.2 KiB of weights to the server and back (2 c_w m, Eq. 11)",  # 240 bytes
    ]
    assert len(found.section.findings) == 5
    assert found.snapshot == 2 * 4 * 15


def test_samples_that_a_test_takes_again(tmp_path: Path, data: str) -> None:
    """5 × 4 = 20 are no more than there are; 6 × 4 are, with one process as with workers."""
    tested = "test_iter: 5 test_iter: 6 test_interval: 1 "
    for index, (hosts, more) in enumerate((("a", ""), ("abb", IDPA % ""))):
        path = write_run(tmp_path / str(index), tested + more, data_net(data, test=data))
        looked = check(hosts, path) if more else check_inner(hosts, path)
        (found,) = [each for each in looked.section.findings if "takes" in each.text]
        assert found.kind is Severity.WARNING
        assert found.text == "test net #1 takes 6 × 4 = 24 samples, data has 20: some count up to 2 times"
        assert found.remedy == "set test_iter and batch_size so that their product is 20"


def test_udpa_with_a_server_that_computes(tmp_path: Path, data: str) -> None:
    found = check("ab", write_run(tmp_path / "a", UDPA % "server: COLOCATED", data_net(data)))
    said = texts_of(found.section, Severity.OK)
    assert said[0] == "AGWU, balance UNIFORM; server on rank 0, which computes as well; 2 computing nodes"
    assert said[2] == "the 20 samples are handed out at once, 10 for each of 2 workers"
    assert said[-1].endswith("(2 c_w m, Eq. 11), except 0.1 KiB that stay in rank 0's memory")
    assert [line.split()[1] for line in found.section.table[1:]] == ["0", "1"]


def test_one_process(tmp_path: Path, data: str) -> None:
    found = check("a", write_run(tmp_path / "a", UDPA % "", data_net(data, shuffle=False)))
    assert texts_of(found.section, Severity.OK)[2] == "the 20 samples are handed out at once, all to one worker"
    assert {finding.kind for finding in found.section.findings} == {Severity.OK}
    assert found.section.table == ()


def test_one_worker(tmp_path: Path, data: str) -> None:
    finding = only(check("ab", write_run(tmp_path / "a", UDPA % "", data_net(data))), Severity.NOTE)
    assert "rank 0 is only its server" in finding.text and "server: COLOCATED" in finding.remedy


def test_pipelines(tmp_path: Path, data: str) -> None:
    """Each has the power of its ranks: 2000 + 3000 and 4000 + 5000."""
    text = "parallel_param { exchange: ASGD num_stages: 2 balance: IDPA %s }"
    found = check("aabbc", write_run(tmp_path / "a", text % "pipeline_param { micro_batches: 2 }", data_net(data)))
    assert found.section.table == (
        "worker  rank  host  MHz × cores  first samples",
        "0       1-2   a+b          5000              2",
        "1       3-4   b+c          9000              3",
    )
    said = texts_of(found.section, Severity.OK)
    assert said[:2] == [
        "ASGD, balance IDPA; server on rank 0; 2 computing nodes, each a pipeline of 2 ranks",
        "Each computing node is a pipeline GPIPE of 2 micro-batches",
    ]
    assert said[2].startswith("Stage 0: ") and said[3].startswith("Stage 1: ")
    # 1 + momentum + gradients + 2 + 2 · 2; values, gradients and momentum, and 2 + 1 in main memory
    assert "up to 9 copies of them as the server, a worker 6, and 3 more on the first of its ranks" in said[-2]
    one = check("abb", write_run(tmp_path / "b", text % "pipeline_param { micro_batches: 2 }", data_net(data)))
    assert only(one, Severity.NOTE).remedy == "start more ranks, 2 for each computing node"
    wrong = check("abbb", write_run(tmp_path / "c", text % "", data_net(data)))
    assert isinstance(wrong.wrong, PrototxtError)
    assert "4 ranks are not 1 + 2 k: start 3 or 5" in only(wrong, Severity.PROBLEM).text


def test_asgd(tmp_path: Path, data: str) -> None:
    text = "parallel_param { exchange: ASGD agwu_param { push: 2 fetch: 6 } }"
    said = texts_of(check("abb", write_run(tmp_path / "a", text, data_net(data))).section, Severity.OK)
    assert said[-1] == (
        "each worker sends 0.1 KiB of gradients every 2 iterations, and gets as much of weights every 6"
    )
    assert "rank 0 holds up to 9 copies of them as the server, a worker 6;" in said[-2]


def test_asgd_with_momentum(tmp_path: Path, data: str) -> None:
    path = write_run(tmp_path / "a", "parallel_param { exchange: ASGD } momentum: 0.9", data_net(data))
    assert only(check("abb", path), Severity.WARNING).text == (
        "ASGD: gradients of 2 workers are stale, and momentum 0.9 amplifies that"
    )
    path = write_run(tmp_path / "b", "parallel_param { exchange: ASGD } momentum: 0.9", data_net(data))
    assert texts_of(check("a", path).section, Severity.WARNING) == []


def test_a_run_that_goes_on(tmp_path: Path, data: str) -> None:
    path = write_run(tmp_path / "a", UDPA % "", data_net(data))
    said = texts_of(check("abb", path, start=90).section, Severity.OK)
    assert said[1].startswith("10 iterations of 4 samples are 2 passes over 20 samples (K); each worker makes 2 ")
    assert only(check("abb", path, start=100), Severity.NOTE).text == (
        "nothing to train: the snapshot is at max_iter 100 already"
    )


def test_data_in_the_order_of_their_source(tmp_path: Path, data: str) -> None:
    finding = only(check("abb", write_run(tmp_path / "a", UDPA % "", data_net(data, shuffle=False))), Severity.NOTE)
    assert finding.text.startswith('layer "train" keeps the order of its source')
    assert finding.remedy.startswith("data_param { shuffle: true }")


def test_settings_without_effect(tmp_path: Path, data: str) -> None:
    path = write_run(tmp_path / "a", UDPA % "cgdp_param { step: 3 } agwu_param { push: 2 }", data_net(data))
    assert texts_of(check("abb", path).section, Severity.WARNING) == [
        "parallel_param: cgdp_param has no effect with exchange: AGWU",
        "parallel_param: agwu_param { push } has no effect with exchange: AGWU",
    ]


def test_too_few_samples(tmp_path: Path, data: str) -> None:
    path = write_run(tmp_path / "a", IDPA % "balance_param { num_batches: 20 }", data_net(data))
    found = check("abb", path)
    assert only(found, Severity.WARNING).text == (
        "worker 0: there are too few samples: nothing to train before the second batch"
    )
    path = write_run(tmp_path / "b", UDPA % "", data_net(data, batch=11))
    assert only(check("abb", path), Severity.NOTE).text.startswith(
        "a worker has about 10 samples, fewer than the 11 of an iteration"
    )
    found = check("a" * 22, path)
    assert only(found, Severity.WARNING).text == "worker 20: there are too few samples: nothing to train"
    assert found.section.table == ()  # too long


def test_numbers_that_do_not_fit(tmp_path: Path, data: str) -> None:
    path = write_run(tmp_path / "a", IDPA % "balance_param { num_batches: 21 }", data_net(data))
    found = check("abb", path)
    assert isinstance(found.wrong, UserError)
    assert only(found, Severity.PROBLEM).text == str(found.wrong)
    assert "num_batches is 21, but there are only 20 samples" in str(found.wrong)


def test_a_net_without_a_data_set(tmp_path: Path) -> None:
    found = check("abb", write_run(tmp_path / "a", UDPA % "", net_text()))
    assert isinstance(found.wrong, PrototxtError)
    assert "has no layer that reads a data set" in only(found, Severity.PROBLEM).text


def test_frequencies_that_cannot_be_read(tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outer_plan, "powers", lambda world, device: [None, 500.0, None])
    found = check("abb", write_run(tmp_path / "a", IDPA % "", data_net(data)))
    assert only(found, Severity.NOTE).text == (
        "rank 2 on host b: its frequency cannot be read; the mean of the others is used"
    )
    assert found.section.table[2].split() == ["1", "2", "b", "unknown", "2"]


def test_threads_that_are_no_number(tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is told of elsewhere; here nobody may wait for somebody who has no power."""
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    found = check("abb", write_run(tmp_path / "a", IDPA % "", data_net(data)))
    assert {line.split()[3] for line in found.section.table[1:]} == {"unknown"}


def test_a_test_net_that_is_wrong(tmp_path: Path, data: str) -> None:
    """Rank 0 alone builds it, and that is enough for the run to be refused."""
    text = UDPA % "" + " test_iter: 1 test_interval: 5"
    found = check("abb", write_run(tmp_path / "a", text, data_net(data, test=str(tmp_path / "none"))))
    assert isinstance(found.wrong, LayerError)
    assert only(found, Severity.PROBLEM).text.startswith("rank 0 on host a: ")
    found = check("abb", write_run(tmp_path / "b", text, data_net(data, test="none")), known=("none: no such folder",))
    assert found.wrong is None


class TestRoom:
    """Memory and disk that are too small."""

    @pytest.fixture
    def memory(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """A list whose element is what is free on each host."""
        free = [0]

        class Room:
            def __init__(self, device: Any) -> None:
                self.room = free[0]

        monkeypatch.setattr(outer_work, "Memory", Room)
        return free

    # c_w is 60 bytes: rank 0 needs 8 · 60, each worker 5 · 60
    @pytest.mark.parametrize(("hosts", "free", "short"), [
        ("abc", 480, ""), ("abc", 479, "a"), ("abb", 600, ""), ("abb", 599, "b"), ("aab", 780, ""), ("aab", 779, "a"),
    ])  # fmt: skip
    def test_memory(self, hosts: str, free: int, short: str, tmp_path: Path, data: str, memory: list[int]) -> None:
        memory[0] = free
        found = check(hosts, write_run(tmp_path / "a", UDPA % "", data_net(data)))
        said = texts_of(found.section, Severity.PROBLEM)
        assert [text.split(":")[0] for text in said] == ([f"host {short}"] if short else [])

    def test_records(self, tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
        usage = namedtuple("usage", "free")
        free = [10**9]
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(free[0]))
        path = write_run(tmp_path / "a", IDPA % "ship_data: true", data_net(data))
        # 20 small records fill a leaf page of the LMDB, of 4096 bytes
        assert "rank 0 sends the workers 4.0 KiB of records, for which they have room" in texts_of(
            check("abc", path).section, Severity.OK
        )
        free[0] = 2000  # worker 0 gets 2 of 5
        assert only(check("abc", path), Severity.PROBLEM).text.startswith(
            "rank 2 on host c: the records that rank 0 sends take about 2.4 KiB, but there is room for 2.0 KiB in "
        )
        assert only(check("abb", path), Severity.PROBLEM).text.startswith("ranks 1-2 on host b: the records")

    def test_a_folder_that_cannot_be_used(self, tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def none() -> str:
            raise FileNotFoundError(2, "No usable temporary directory found")

        monkeypatch.setattr(tempfile, "gettempdir", none)
        found = check("abb", write_run(tmp_path / "a", UDPA % "ship_data: true", data_net(data)))
        assert only(found, Severity.PROBLEM).text.startswith("ranks 1-2 on host b: ")
        assert "TMPDIR" in only(found, Severity.PROBLEM).remedy


def test_data_that_cannot_be_sent(tmp_path: Path) -> None:
    write_hdf5(tmp_path, {"data": np.zeros((8, 4), np.float32), "label": np.zeros(8)})
    (tmp_path / "list").write_text(f"{tmp_path}/0.h5\n")
    net = data_net("").replace('type: "Data"', 'type: "HDF5Data"')
    net = net.replace(
        'data_param { source: "" batch_size: 4 backend: LMDB shuffle: true }',
        f'hdf5_data_param {{ source: "{tmp_path}/list" batch_size: 4 }}',
    )
    found = check("abb", write_run(tmp_path / "a", UDPA % "ship_data: true", net))
    assert isinstance(found.wrong, LayerError)
    assert "ship_data sends the records of Data layers" in only(found, Severity.PROBLEM).text
    found = check("abb", write_run(tmp_path / "b", UDPA % "", net))
    assert only(found, Severity.NOTE).remedy.startswith("hdf5_data_param { shuffle: true }")


def test_only_rank_0_needs_data_that_it_sends(tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ship_data the workers cannot even see them."""
    path = write_run(tmp_path / "a", UDPA % "ship_data: true", data_net("here"))

    def one(ranks: Ranks) -> CheckedPlan:
        source = read_plan(path, ["max_iter: 100"])
        texts = Texts.read(lambda: source, ranks.world.rank)
        assert texts.plans.value
        if not ranks.world.rank:
            texts.plans.value["training net"].source.param.layer[0].data_param.source = data
        return check_outer_plan(ranks, source, texts.plans.value, CPU, (), 0)

    first, *others = on_hosts("abb", one)
    assert all(other.section == first.section for other in others)
    assert {finding.kind for finding in first.section.findings} == {Severity.OK}


def test_weights_are_as_many_as_travel(tmp_path: Path, data: str) -> None:
    norm = 'layer { name: "norm" type: "BatchNorm" bottom: "data" top: "data" }'
    net = data_net(data).replace('layer { name: "fc"', f'{norm} layer {{ name: "fc"')
    path = write_run(tmp_path / "a", UDPA % "", net)
    plans = Texts.read(lambda: read_plan(path, ["max_iter: 100"])).plans.value
    assert plans
    built = Net(build_graph_of(plans["training net"]))
    size = FlatWeights(built).size
    built.close()
    assert check("abb", path).snapshot == 2 * 4 * size
    assert size > 15
