"""Jobs of the outer layer on the digits: the texts to train by, and the commands that train by them on the test bed."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import read_net, read_solver
from bpt.config.proto.text import to_text
from bpt.perf.simulate.simulation import Strategy
from bpt.train.outer.report import RunRecord, read_csv
from scripts.benches.harness.digits import write_test_net, write_training, write_windows
from scripts.benches.harness.launch import PROTOTXT, RANK, ROOT, JobError, environment, mpirun, order
from scripts.benches.harness.testbed import TESTBED

LENET = PROTOTXT / "lenet"
NETS = ("lenet", "bpt_cnn/case1", "bpt_cnn/case2", "bpt_cnn/case3")
CLASSES = 10
RIVAL = Strategy("ASGD", "UNIFORM")  # DistBelief's way
DIGITS = ROOT / "data" / "digits"
STAT = Path("/proc/stat")
ALONE = "one process"
# At LeNet's own 0.01 all learn nearly everything in their first pass: nothing would be seen of the time it takes.
RATE = 0.004
FALLS_AT = 0.8  # of the iterations: where the learning rate becomes a tenth, as in LeNet's own solver


@dataclass(frozen=True)
class Work:
    """What all train.

    Attributes:
        samples: of the data set.
        passes: K, so often one process trains each of them.
        batch: samples of an iteration.
        batches: A, the parts that IDPA hands out.
        tests: during a pass, on the test images.
        net: one of NETS. Those of the paper's Table 2 see the digits' windows in place of ImageNet's.
    """

    samples: int
    passes: int
    batch: int
    batches: int
    tests: int
    net: str = "lenet"

    @property
    def iterations(self) -> int:
        """That one process trains."""
        return self.samples * self.passes // self.batch

    def write(self, folder: Path) -> tuple[Path, Path]:
        """LeNet's solver, that all train by, and the net that tests on all windows; with the images, in ``folder``.

        The memory layout is set (CHANNELS_LAST), so that no trials of it fall into the measurement.
        """
        param = read_solver(LENET / "solver.prototxt").param
        net = _with_digits(read_net(PROTOTXT / self.net / "train_val.prototxt").param)
        train, test = (layer for layer in net.layer if layer.type == "Data")
        train.data_param.source = str(write_training(DIGITS, folder, self.samples))
        train.data_param.batch_size = self.batch
        train.data_param.shuffle = True
        test.data_param.source = str(DIGITS / "test_lmdb")
        for field in ("net", "display", "stepvalue"):
            param.ClearField(field)
        param.net_param.CopyFrom(net)
        param.base_lr = RATE
        param.max_iter = self.iterations
        param.stepvalue.append(round(FALLS_AT * self.iterations))
        param.test_interval = max(1, self.iterations // (self.passes * self.tests))
        param.engine = pb.SolverParameter.CHANNELS_LAST
        param.parallel_param.balance_param.num_batches = self.batches
        solver, windows = folder / "solver.prototxt", folder / "windows.prototxt"
        solver.write_text(to_text(param))
        write_test_net(net, write_windows(DIGITS, folder), windows)
        return solver, windows


def _with_digits(net: pb.NetParameter) -> pb.NetParameter:
    """A net of images of 1000 classes as one of LeNet's digits; LeNet as it is."""
    digits = [layer for layer in read_net(LENET / "train_val.prototxt").param.layer if layer.type == "Data"]
    for layer, own in zip([layer for layer in net.layer if layer.type == "Data"], digits, strict=True):
        layer.transform_param.CopyFrom(own.transform_param)
        layer.data_param.CopyFrom(own.data_param)
    [*_, classifier] = (layer for layer in net.layer if layer.type == "InnerProduct")
    classifier.inner_product_param.num_output = CLASSES
    return net


@dataclass(frozen=True)
class Left:
    """What a run has left.

    Attributes:
        record: what bpt or single.py wrote of it.
        weights: the last ones.
        others: cores that the rest of the machine used just before it and just after; they disturb it.
    """

    record: RunRecord
    weights: Path
    others: float


class Jobs:
    """Runs on the test bed that is up, or on this host. What has been done in the same folder is not done again.

    Args:
        solver: the text to train by.
        iterations: that it says.
        hosts: the first one serves; the others compute, the fastest first.
        folder: for what runs leave.
        servers: parameter servers apart from the main server, on its host.
        bed: whether there is a test bed.
        agwu: fields of ``agwu_param``, for all but the rival.
    """

    def __init__(
        self, solver: Path, iterations: int, hosts: Sequence[str], folder: Path, servers: int = 0, bed: bool = True,
        agwu: str = "",
    ) -> None:  # fmt: skip
        self._solver = solver
        self._iterations = iterations
        self._hosts = hosts
        self._slots = self._slots_of(len(hosts) - 1, servers)
        self._servers = servers
        self._agwu = f" agwu_param {{ {agwu} }}" if agwu else ""
        self._bed = bed
        self._folder = folder

    @property
    def nodes(self) -> int:
        """Computing nodes."""
        return len(self._hosts) - 1

    def _slots_of(self, nodes: int, servers: int) -> str:
        """The server's host with its ranks, and so many computing hosts with one each, the fastest first."""
        used = self._hosts[: 1 + nodes]
        return ",".join(f"{host}:{1 if number else 1 + servers}" for number, host in enumerate(used))

    def train(
        self, way: Strategy, seed: int, nodes: int = 0, threads: int = 0, fields: str = "", name: str = ""
    ) -> Left:
        """Train one way.

        Args:
            nodes: computing nodes, the fastest first; 0: all.
            threads: of the inner layer of each node (``inner_param { engine: TASK_DAG }``); 0: without it.
            fields: more of ``parallel_param``.
            name: of the run, if there are more fields than the way says.

        Raises:
            JobError: it has failed.
        """
        servers = 0 if way == RIVAL else self._servers
        apart = f" servers: {servers}" * (servers > 0)
        inner = f" inner_param {{ engine: TASK_DAG num_threads: {threads} }}" * (threads > 0)
        more = ("" if way == RIVAL else self._agwu) + f" {fields}" * bool(fields)
        chosen = f"parallel_param {{ exchange: {way.exchange} balance: {way.balance}{apart}{inner}{more} }}"
        if way.exchange == RIVAL.exchange:
            chosen += without_momentum(self._solver)
        words = ["train", "--solver", str(self._solver), "--set", chosen, "--set"]
        name = name or str(way) + f" {nodes} nodes" * (nodes > 0) + f" {threads} threads" * (threads > 0)
        used = nodes or self.nodes
        if not self._bed:
            return self._run(name, seed, [*mpirun(1 + used + servers), sys.executable, "-m", "bpt", *words])
        slots = self._slots_of(used, servers)
        return self._run(name, seed, [str(TESTBED), "run", "--slots", slots, "--", "bpt", *words])

    def alone(self, seed: int) -> Left:
        """Train with one process on the fastest host.

        Raises:
            JobError: it has failed.
        """
        single = [str(RANK), "bptcnn.single", str(self._solver)]
        if not self._bed:
            return self._run(ALONE, seed, [sys.executable, *single])
        return self._run(ALONE, seed, [str(TESTBED), "run", "--on", self._hosts[1], "--", "python", *single])

    def calibrate(self, seconds: float) -> Path:
        """Train for so many seconds on all hosts at once; returns the file with what was seen.

        Raises:
            JobError: it has failed.
        """
        answer = self._folder / "calibration.json"
        if not answer.exists():
            asked = {"solver": str(self._solver), "seconds": seconds}
            words, answered = order("bptcnn.calibration", asked, self._folder)
            call([str(TESTBED), "run", "--slots", self._slots, "--", "python", *words], answer.with_suffix(".log"))
            answered.rename(answer)
        return answer

    def _run(self, name: str, seed: int, words: Sequence[str]) -> Left:
        prefix = self._folder / f"{name.replace(' ', '_')}_{seed}" / "run"
        report, noted = prefix.with_name("run_run"), prefix.with_name("others.txt")  # which is the last to be written
        if not noted.exists():
            prefix.parent.mkdir(parents=True, exist_ok=True)
            settings = f'random_seed: {seed} snapshot_prefix: "{prefix}"'
            watched = 1.0 if self._bed else 0.1
            before = busy(watched)
            call([*words, settings], prefix.with_name("log.txt"))
            noted.write_text(str((before + busy(watched)) / 2))
        weights = prefix.with_name(f"run_iter_{self._iterations}.caffemodel")
        return Left(read_csv(report), weights, float(noted.read_text()))


def without_momentum(solver: Path) -> str:
    """The settings of ASGD: stale gradients with momentum diverge; the steps are as long without it."""
    param = read_solver(solver).param
    return f" momentum: 0 base_lr: {param.base_lr / (1 - param.momentum):g}"


def call(words: Sequence[str], log: Path) -> None:
    """Run a program; what it prints goes to ``log``.

    Raises:
        JobError: its exit status was not 0.
    """
    with log.open("w") as output:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False, env=environment()
        )
    if done.returncode:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
        raise JobError(f"{' '.join(words)}: exit status {done.returncode}; {log} ends with\n{last}")


def busy(seconds: float) -> float:
    """How many cores the machine uses now, in the mean over so many seconds."""
    before = STAT.read_text()
    time.sleep(seconds)
    return cores_used(before, STAT.read_text())


def cores_used(before: str, after: str) -> float:
    """How many cores were in use in the mean between two readings of ``/proc/stat``."""
    cores = len(re.findall(r"^cpu\d", after, re.MULTILINE))
    used, total = (late - early for early, late in zip(_ticks(before), _ticks(after), strict=True))
    return cores * used / total if total else 0.0


def _ticks(text: str) -> tuple[int, int]:
    """Ticks of all cores: in use, and all, by the first line of ``/proc/stat``."""
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, text.split(maxsplit=9)[1:9])
    used = user + nice + system + irq + softirq + steal
    return used, used + idle + iowait
