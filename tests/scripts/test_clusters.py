"""The job for Slurm: what it starts, and, where there is a Slurm, that it trains."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import GOLDEN, ROOT

JOB = ROOT / "scripts" / "clusters" / "lenet.sbatch"
SLURM = all(shutil.which(name) for name in ("munged", "slurmctld", "slurmd", "sbatch"))


def test_the_job_hands_solver_settings_and_cores_to_srun(tmp_path: Path) -> None:
    double = tmp_path / "bin" / "srun"
    double.parent.mkdir()
    double.write_text('#!/bin/sh\necho "threads $OMP_NUM_THREADS"\nfor word; do echo "$word"; done\n')
    double.chmod(0o755)
    given = {
        "BPT_ENVIRONMENT": str(tmp_path),
        "SLURM_CPUS_PER_TASK": "3",
        "SOLVER": "a b.prototxt",
        "SET": "max_iter: 5",
    }
    done = subprocess.run(["bash", JOB], env={**os.environ, **given}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        *("threads 3", "--mpi=pmix", "--cpus-per-task=3", "bpt", "train", "--solver", "a b.prototxt"),
        *("--snapshot", "auto", "--set", "max_iter: 5"),
    ]


@pytest.mark.slow
@pytest.mark.skipif(not SLURM or os.geteuid() != 0, reason="no Slurm here, or not root")
def test_two_ranks_train_under_slurm(tmp_path: Path) -> None:
    (tmp_path / "prototxt").symlink_to(ROOT / "prototxt")
    (tmp_path / "data" / "digits").mkdir(parents=True)
    for part in ("train_lmdb", "test_lmdb"):
        (tmp_path / "data" / "digits" / part).symlink_to(GOLDEN / "lmdb" / f"digits_{part}")
    given = {"BPT_ENVIRONMENT": sys.prefix, "PYTHONPATH": str(ROOT), "SET": "max_iter: 4 test_initialization: false"}
    done = subprocess.run(
        [ROOT / "scripts" / "slurm_here"],
        cwd=tmp_path,
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Parallel: 2 ranks" in done.stdout
    assert (tmp_path / "snapshots" / "lenet" / "lenet_iter_4.caffemodel").exists()
