"""The guide from a folder of pictures to an answer, followed to the letter in a folder of its own."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from bpt.cli.main import main

GUIDE = Path(__file__).parents[1] / "docs" / "first_own_images.md"
# The files in the order of their blocks; the guide names each just before it.
FILES = ("make_photos.py", "make_lists.py", "net.prototxt", "solver.prototxt")


def test_own_pictures_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = iter(FILES)
    end, printed = 0, []
    guide = GUIDE.read_text()
    for block in re.finditer(r"^```(\w+)\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL):
        if block[1] in ("python", "prototxt"):
            name = next(files)
            assert f"`{name}`" in guide[end : block.start()]
            Path(name).write_text(block[2])
        else:
            assert block[1] == "sh"
            for command in block[2].splitlines():
                program, *words = shlex.split(command)
                if program == "python":
                    runpy.run_path(words[0])
                else:
                    assert program == "bpt"
                    status = main(words)
                    done = capsys.readouterr()
                    assert status == 0, command + done.err
                    printed.append(done)
        end = block.end()
    assert not list(files)
    _, _, tested, one, all_of_them = printed
    accuracy = float(re.findall(r"accuracy = ([\d.]+)", tested.out + tested.err)[-1])
    assert accuracy > 0.9
    assert re.search(r'photos/circle/004.jpg\n +[\d.]+  0 "circle"\n', one.out)
    last = re.fullmatch(r"accuracy = ([\d.]+) \((\d+) of 60\)", all_of_them.out.splitlines()[-1])
    assert last and float(last[1]) == pytest.approx(accuracy, abs=1e-4)
