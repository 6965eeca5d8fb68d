"""Whether all ranks run the same program: versions of packages, and of bpt to the letter."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
import torch

import bpt
from bpt.doctor.findings import Finding, Section, ok, problem, warning
from bpt.doctor.ranks import Ranks, grouped

_COMPUTING = ("bpt", "torch", "numpy")  # other numbers come out of another version
_OTHERS = ("protobuf", "mpi4py", "lmdb", "h5py")
_NONE = "not installed"


def check_versions(ranks: Ranks) -> tuple[Section, bool]:
    """Compare the versions of all ranks; a collective call.

    Returns:
        The section, and whether all ranks have the same bpt, so that they understand each other.
    """
    everybody = ranks.world.allgather(versions_here())
    same = len({versions["bpt"] for versions in everybody}) == 1
    return Section("Versions", tuple(_compared(ranks, everybody))), same


def versions_here() -> dict[str, str]:
    """What this rank runs: package → version."""
    return {
        "Python": platform.python_version(),
        "bpt": f"{bpt.__version__} (source {source_digest()})",
        "torch": torch.__version__,
        "numpy": np.__version__,
        **{package: _version(package) for package in _OTHERS},
    }


def source_digest() -> str:
    """8 hexadecimal digits that tell the Python files of this bpt from those of any other."""
    content = hashlib.blake2b(digest_size=4)
    root = Path(bpt.__file__).parent
    for path in sorted(root.rglob("*.py")):
        content.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
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
                yield problem(text, f"install the same {package} on all hosts (pip freeze lists what is there)")
            else:
                yield warning(text, f"install the same {package} on all hosts")
    yield ok(f"{'on all ranks: ' if ranks.world.size > 1 else ''}{', '.join(same) or 'nothing is the same'}")
