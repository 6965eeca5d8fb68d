"""A place where bpt is what its wheel brings: an environment, and folders in which nothing of the repository is.

Other packages are those of the environment that the tests run in, so that nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.make_digits import write_pictures
from tests.guides.other_caffes import lay_other_caffes, lay_torchvision
from tests.support.guides.blocks import Block
from tests.support.mpirun import mpi_environment
from tests.support.paths import GOLDEN, ROOT

FOLLOW = Path(__file__).with_name("follow.py")
SOURCES = "bpt", "prototxt", "scripts", "tools", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"
_MANY = re.compile(r"(max_iter: )(\d{3,})")


def shortened(text: str) -> str:
    """A solver or commands that train a hundredth of the iterations, or 20: it is looked at that all work together.

    What is only simulated stays as it is.
    """
    if "bpt simulate" in text:
        return text
    return _MANY.sub(lambda found: f"{found[1]}{max(20, int(found[2]) // 100)}", text)


@dataclass(frozen=True)
class Answer:
    """What a block has done."""

    status: int | str
    out: str
    err: str


@dataclass(frozen=True)
class Bed:
    """The environment with bpt from its wheel.

    Attributes:
        home: its folder.
    """

    home: Path

    @classmethod
    def make(cls, folder: Path) -> Bed:
        """Build the wheel from the working tree and install it in a new environment inside of ``folder``."""
        source, home = folder / "source", folder / "environment"
        source.mkdir()
        for name in SOURCES:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
            copy(ROOT / name, source / name)
        build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
        _call([sys.executable, "-c", build, str(folder)], source)
        (wheel,) = folder.glob("*.whl")
        _call([sys.executable, "-m", "venv", "--without-pip", str(home)], folder)
        python = home / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
        pip.append("--force-reinstall")  # also where PYTHONPATH leads to the repository
        _call([*pip, str(wheel)], folder)
        (packages,) = home.glob("lib/python*/site-packages")
        (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        _lend_mpi(Path(sys.prefix), home)
        return cls(home)

    def follow(self, steps: Sequence[Block], folder: Path) -> list[Answer]:
        """Do what the blocks say, in order, in ``folder``, up to the first that fails."""
        asked, told = folder.with_name(f"{folder.name}.steps"), folder.with_name(f"{folder.name}.answers")
        said = [asdict(block) | {"file": block.file} for block in steps]
        for step in said:
            step["text"] = step["text"] if step["file"] else shortened(step["text"])
        asked.write_text(json.dumps(said))
        _call([str(self.home / "bin" / "python"), str(FOLLOW), str(asked), str(told)], folder, self._variables())
        return [Answer(**answer) for answer in json.loads(told.read_text())]

    def folder(self, place: Path, text: str) -> Path:
        """Make the folder of a reader of ``text``: networks and scripts of the wheel, and what make_digits.py makes."""
        place.mkdir()
        (place / ".venv").symlink_to(self.home)
        if "prototxt/" in text:
            brought = self.home / "share" / "bpt"
            for name in ("prototxt", "scripts"):
                shutil.copytree(brought / name, place / name)
            for solver in place.glob("prototxt/**/solver*.prototxt"):
                solver.write_text(shortened(solver.read_text()))
            for part in ("train_lmdb", "test_lmdb"):
                shutil.copytree(GOLDEN / "lmdb" / f"digits_{part}", place / "data" / "digits" / part)
            write_pictures(place / "data" / "digits")
        if "tools/" in text:
            (place / "tools").symlink_to(ROOT / "tools")
        if "VOCdevkit" in text:
            lay_other_caffes(place)
        if "resnet18.pth" in text:
            lay_torchvision(place)
        return place

    def _variables(self) -> dict[str, str]:
        """Of the reader's shell: ranks may be more than cores, and nothing of the working tree is found."""
        variables = mpi_environment({"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "MPLBACKEND": "Agg"})
        del variables["PYTHONPATH"]
        paths = self.home / "bin", Path(sys.prefix) / "bin", os.environ["PATH"]
        return variables | {"PATH": os.pathsep.join(map(str, paths)), "PYTHONWARNINGS": "default"}


def _lend_mpi(from_home: Path, home: Path) -> None:
    """Let the environment at ``home`` find the MPI that a package has put into the other one."""
    programs = [f"bin/{name}" for name in ("mpirun", "prterun", "prte", "prted")]
    for name in (*programs, "lib/libmpi.so.40", "lib/libmpi.so", "lib/openmpi"):
        if (from_home / name).exists():
            (home / name).symlink_to(from_home / name)


def _call(words: Sequence[str], folder: Path, variables: dict[str, str] | None = None) -> None:
    """Run a program that must do well."""
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
