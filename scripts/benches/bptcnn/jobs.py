"""Jobs of ``scripts/bench bptcnn``: the texts to train by, and the commands that train by them on the test bed."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import read_net, read_solver
from bpt.proto.text import to_text
from bpt.report.outer import RunRecord, read_csv
from bpt.simulate.simulation import Strategy
from scripts.benches.bptcnn.data import write_test_net, write_training, write_windows
from scripts.benches.harness.launch import PROTOTXT, RANK, ROOT, JobError, order
from scripts.benches.harness.testbed import TESTBED

LENET = PROTOTXT / "lenet"
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
    """

    samples: int
    passes: int
    batch: int
    batches: int
    tests: int

    @property
    def iterations(self) -> int:
        """That one process trains."""
        return self.samples * self.passes // self.batch

    def write(self, folder: Path) -> tuple[Path, Path]:
        """The solver of LeNet that all train by, and the net that tests on all windows; with the images, in ``folder``.

        The memory layout is set (CHANNELS_LAST), so that no trials of it fall into the measurement.
        """
        param = read_solver(LENET / "solver.prototxt").param
        net = read_net(LENET / "train_val.prototxt").param
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
    """Runs on the test bed that is up. What has been done already in the same folder is not done again.

    Args:
        solver: the text to train by.
        iterations: that it says.
        hosts: the first one serves; the others compute, the fastest first.
        folder: for what runs leave.
    """

    def __init__(self, solver: Path, iterations: int, hosts: Sequence[str], folder: Path) -> None:
        self._solver = solver
        self._iterations = iterations
        self._fastest = hosts[1]
        self._slots = ",".join(f"{host}:1" for host in hosts)
        self._folder = folder

    def train(self, way: Strategy, seed: int) -> Left:
        """Train one way, on all hosts.

        Raises:
            JobError: it has failed.
        """
        chosen = f"parallel_param {{ exchange: {way.exchange} balance: {way.balance} }}"
        words = ["bpt", "train", "--solver", str(self._solver), "--set", chosen, "--set"]
        return self._run(str(way), seed, ["--slots", self._slots, "--", *words])

    def alone(self, seed: int) -> Left:
        """Train with one process on the fastest host.

        Raises:
            JobError: it has failed.
        """
        single = ["python", str(RANK), "bptcnn.single", str(self._solver)]
        return self._run(ALONE, seed, ["--on", self._fastest, "--", *single])

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
            before = busy()
            call([str(TESTBED), "run", *words, settings], prefix.with_name("log.txt"))
            noted.write_text(str((before + busy()) / 2))
        weights = prefix.with_name(f"run_iter_{self._iterations}.caffemodel")
        return Left(read_csv(report), weights, float(noted.read_text()))


def call(words: Sequence[str], log: Path) -> None:
    """Run a program; what it prints goes to ``log``.

    Raises:
        JobError: its exit status was not 0.
    """
    with log.open("w") as output:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
        raise JobError(f"{' '.join(words)}: exit status {done.returncode}; {log} ends with\n{last}")


def busy(seconds: float = 1.0) -> float:
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
