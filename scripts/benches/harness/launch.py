"""Starts programs: on this machine, on many ranks, and the workers of benches on these."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PROTOTXT = ROOT / "prototxt"
RANK = Path(__file__).with_name("rank.py")
TIMEOUT = 3600.0  # seconds
GRACE = 20.0  # seconds for mpirun to end its ranks


class JobError(Exception):
    """A job has failed; says why in a line."""

    @property
    def is_memory(self) -> bool:
        """Whether it wanted more memory than there is."""
        return "out of memory" in str(self)


def mpirun(ranks: int) -> list[str]:
    """The launcher beside this Python, or else on the PATH."""
    beside = Path(sys.executable).with_name("mpirun")
    return [str(beside) if beside.exists() else "mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]


def environment(threads: int = 0) -> dict[str, str]:
    """That of this process, and what Open MPI wants to hear before it runs as root.

    Args:
        threads: of each rank; 0: not said.
    """
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    own = dict.fromkeys(names, "1") if os.geteuid() == 0 else {}
    return os.environ | own | ({"OMP_NUM_THREADS": str(threads)} if threads else {})


def call(
    words: Sequence[str], ranks: int = 1, threads: int = 0, timeout: float = TIMEOUT, tell: bool = False,
    options: Sequence[str] = (),
) -> str:  # fmt: skip
    """Run a program on so many ranks, without mpirun if it is one; returns what it has printed.

    Args:
        threads: of each rank; 0: not said.
        timeout: seconds.
        tell: let it write to this process's stderr.
        options: more of mpirun's.

    Raises:
        JobError: its exit status was not 0, or it took too long.
    """
    command = [*([*mpirun(ranks), *options] if ranks > 1 else []), *words]
    try:
        job = subprocess.Popen(
            command, env=environment(threads), stdout=subprocess.PIPE, stderr=None if tell else subprocess.PIPE,
            text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        raise JobError(f"{command[0]}: {error.strerror}") from None
    with job:
        try:
            printed, complaints = job.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            end(job)
            raise JobError(f"not done after {timeout:g} s") from None
    if job.returncode:
        raise JobError(reason(complaints or "") or reason(printed) or f"exit status {job.returncode}")
    return printed


def end(job: subprocess.Popen[str]) -> None:
    """End a program; mpirun, which SIGKILL would part from its ranks, gets time to end them first."""
    job.terminate()
    try:
        job.wait(GRACE)
    except subprocess.TimeoutExpired:
        job.kill()


def reason(text: str) -> str:
    """The line of a program's output that says best why it has failed: the first with "error:", or else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("error:") or "Error:" in line]
    return (told or lines[-1:] or [""])[0].removeprefix("error: ")


def worker(module: str, *words: str) -> list[str]:
    """The words that start ``module`` of ``scripts.benches`` as a process of a bench; see rank.py."""
    return [sys.executable, str(RANK), module, *words]


def order(module: str, work: object, folder: Path) -> tuple[list[str], Path]:
    """The words that make ranks do ``work``, and the file into which the first rank writes its answer.

    Args:
        module: of ``scripts.benches``; its function ``work`` gets what is given here and the communicator, and returns
            the answer.
        work: anything that JSON can hold.
        folder: for the file with the work, and that with the answer.
    """
    name = module.replace(".", "_")
    ordered, answer = folder / f"{name}.order.json", folder / f"{name}.answer.json"
    ordered.write_text(json.dumps(work))
    answer.unlink(missing_ok=True)
    return [str(RANK), module, str(ordered), str(answer)], answer


def run_worker(
    module: str, work: object, folder: Path, ranks: int = 1, threads: int = 0, timeout: float = TIMEOUT,
    tell: bool = False, options: Sequence[str] = (),
) -> Any:  # fmt: skip
    """Let ``module`` do its ``work`` on so many ranks of this machine; returns the first rank's answer; see ``order``.

    Raises:
        JobError: it has failed.
    """
    words, answer = order(module, work, folder)
    call([sys.executable, *words], ranks, threads, timeout, tell, options)
    return read_answer(answer)


def read_answer(path: Path) -> Any:
    """What the first rank has written; see ``order``."""
    return json.loads(path.read_text())
