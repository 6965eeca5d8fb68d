"""Check that all ranks run the same program and the same MPI: versions of packages, and a digest of bpt's source."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec

import numpy as np
import torch
from torch import distributed as dist

from bpt.apps.doctor.findings import Finding, Ranks, Section, grouped, note, ok, problem, warning
from bpt.base.version import PACKAGE, VERSION
from bpt.system.comm.launch import find_mpirun

_COMPUTING = ("bpt", "torch", "numpy")  # another version may compute other numbers
_OTHERS = ("protobuf", "mpi4py", "lmdb", "h5py")
_NONE = "not installed"


def check_versions(ranks: Ranks) -> tuple[Section, bool]:
    """Compare the versions of all ranks; a collective call.

    Returns:
        The section, and whether all ranks have the same bpt, so that they understand each other's messages.
    """
    everybody = ranks.world.allgather(versions_here())
    same = len({versions["bpt"] for versions in everybody}) == 1
    return Section("Versions", tuple(_compared(ranks, everybody))), same


def versions_here() -> dict[str, str]:
    """Return the versions of this rank's packages by name."""
    return {
        "Python": platform.python_version(),
        "bpt": f"{VERSION} (source {source_digest()})",
        "torch": torch.__version__,
        "numpy": np.__version__,
        **{package: _version(package) for package in _OTHERS},
    }


def source_digest() -> str:
    """Return 8 hexadecimal digits that identify the Python files of this bpt."""
    content = hashlib.blake2b(digest_size=4)
    for path in sorted(PACKAGE.rglob("*.py")):
        content.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return content.hexdigest()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return _NONE


def _compared(ranks: Ranks, everybody: list[dict[str, str]]) -> Iterator[Finding]:
    same = []
    for package, version in everybody[0].items():
        (_, those), *others = grouped([versions.get(package, _NONE) for versions in everybody]).items()
        if not others:
            same.append(f"{package} {version}")
        for theirs, members in others:
            text = f"{ranks.named(members)}: {package} {theirs}; {ranks.named(those)}: {version}"
            if package in _COMPUTING:
                yield problem(text, f"install the same {package} on all hosts (pip freeze lists the versions)")
            else:
                yield warning(text, f"install the same {package} on all hosts")
    yield ok(f"{'on all ranks: ' if ranks.world.size > 1 else ''}{', '.join(same) or 'nothing is the same'}")


_ALONE = "this is one process: no launcher (mpirun, srun) has started it, so MPI is not used"


def check_mpi(ranks: Ranks) -> Section:
    """Return the MPI library, its thread level and fault tolerance; a collective call."""
    everybody = ranks.world.allgather(tuple(ranks.world.describe().items()))
    if ranks.world.by_torch:
        return Section("MPI", tuple(_torch(ranks, everybody)))
    is_mpi = any(dict(facts)["library"] != "none" for facts in everybody)
    return Section("MPI", tuple(_library(ranks, everybody) if is_mpi else _alone()))


def _alone() -> Iterator[Finding]:
    there = {"mpi4py": find_spec("mpi4py"), "mpirun": find_mpirun()}
    missing = [what for what, found in there.items() if not found]
    if not missing:
        yield note(_ALONE, "to compute on 4 ranks: mpirun -n 4 bpt doctor …, and then mpirun -n 4 bpt train …")
    else:
        yield note(
            f"{_ALONE}; {' and '.join(missing)} could not be found here",
            "to compute on many ranks: pip install 'bpt[mpi]' brings mpi4py and an MPI with its mpirun (on a cluster: "
            "load its MPI's module, pip install mpi4py), then mpirun -n 4 bpt doctor …",
        )


def _torch(ranks: Ranks, everybody: list[tuple[tuple[str, str], ...]]) -> Iterator[Finding]:
    yield ok(
        f"not used: torchrun has started {ranks.world.size} ranks, and {dict(everybody[0])['library']} serves them"
    )
    sums = "NCCL sums gradients where each rank has a GPU of its own" if dist.is_nccl_available() else ""
    yield ok(sums or "gloo sums gradients between hosts, since this PyTorch has no NCCL")
    yield note(
        "fault tolerance is off: a rank that dies ends the job",
        "bpt run -- torchrun … starts it again; mpirun --with-ft ulfm … lets the other ranks continue",
    )


_DEVICE_MEMORY = {
    "none": "it takes no buffers in device memory (it is not CUDA-aware)",
    "unknown": "it does not say whether it takes buffers in device memory (is CUDA-aware)",
}
_HOST = "; bpt gives it buffers in the host's memory only, and copies data of a GPU there first"


def _library(ranks: Ranks, everybody: list[tuple[tuple[str, str], ...]]) -> Iterator[Finding]:
    groups = grouped(everybody)
    (first, those), *others = groups.items()
    facts = dict(first)
    for theirs, members in others:
        different = [f"{name} {value}" for name, value in theirs if facts.get(name) != value]
        yield problem(
            f"{ranks.named(members)}: another MPI than {ranks.named(those)}, {facts.get('library', 'none')}: "
            f"{', '.join(different) or 'none'}",
            "install the same MPI and mpi4py on all hosts, and load the same modules there",
        )
    yield ok(f"{facts.get('library')}, which follows the standard {facts.get('standard')}; {ranks.world.size} ranks")
    if ranks.world.size == 1:
        yield note("there is only one rank", "mpirun -n 4 … starts 4")
    level = facts.get("threads", "")
    if level == "MPI_THREAD_MULTIPLE":
        yield ok(f"threads: {level}: a rank computes while its gradients are sent")
    else:
        yield warning(
            f"threads: {level}: a rank cannot compute while its gradients are sent, which costs time",
            "use an MPI that is built with MPI_THREAD_MULTIPLE, and do not set MPI4PY_RC_THREAD_LEVEL",
        )
    if facts.get("fault tolerance") == "on":
        yield ok("fault tolerance (ULFM) is on")
    else:
        text = "fault tolerance (ULFM) is off: a rank that dies ends the job"
        yield note(text, "mpirun --with-ft ulfm … turns it on")
    kinds = facts.get("device memory", "unknown")
    yield ok(_DEVICE_MEMORY.get(kinds, f"it takes buffers in device memory ({kinds})") + _HOST)
