#!/usr/bin/env python3
"""Writes lists of ADNI's scans, two groups of them, for VolumeData layers: train.txt and test.txt.

    scripts/lay_out_adni.py ADNI/ ADNI_8_22_2026.csv --classes CN AD --out data/adni

takes the folder of the downloaded NIfTI files and the table that comes with them (columns Image Data ID, Subject and
Group are used). A file belongs to the row whose image ID is in its name or else in the name of its folder:
ADNI_002_S_0295_MR_..._I45108.nii to I45108. No file is copied or changed.

The first group gets the label 0, the second 1. The split is by subject: all scans of a person are in the same list, so
that no net is tested on a brain that it has seen. A part of each group's subjects, chosen by --seed, is for testing; a
subject with scans of both groups counts for the first of them. NC means CN. What is left out is told, with the reason.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bpt.base.errors import BptError, FileError, UserError, WriteError

COLUMNS = ("Image Data ID", "Subject", "Group")
SAME = {"NC": "CN"}  # names of one group
_IN_NAME = re.compile(r"(?:^|_)I(\d+)(?=[_.]|$)", re.IGNORECASE)
_ID = re.compile(r"I?(\d+)", re.IGNORECASE)
_EXAMPLES = 3

Tell = Callable[[str], None]


class Scan(NamedTuple):
    """A row of the table: the number of its image ID, whose scan it is, and the group."""

    image: int
    subject: str
    group: str


def group_of(name: str) -> str:
    """The name by which a group is known here: as ADNI writes it, but the same whatever the case."""
    upper = name.strip().upper()
    return SAME.get(upper, upper)


def read_table(path: Path, tell: Tell) -> list[Scan]:
    """The rows of ADNI's table, each image once.

    Raises:
        FileError: missing, not a table with these columns, empty, or with an image in two groups or subjects.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            columns = {name.strip().lower(): name for name in reader.fieldnames or () if name}
            missing = [name for name in COLUMNS if name.lower() not in columns]
            if missing:
                raise FileError(path, f'is not ADNI\'s table: it has no column "{missing[0]}"')
            keys = [columns[name.lower()] for name in COLUMNS]
            rows = [(reader.line_num, [(row[key] or "").strip() for key in keys]) for row in reader]
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(path, f"is not a table of comma-separated values: {error}") from None
    scans: dict[int, Scan] = {}
    incomplete = []
    for line, (name, subject, group) in rows:
        image = _ID.fullmatch(name)
        if not (image and subject and group):
            incomplete.append(f"line {line}")
            continue
        scan = Scan(int(image[1]), subject, group_of(group))
        if scans.setdefault(scan.image, scan) != scan:
            before = scans[scan.image]
            now, then = (f"{one.subject} ({one.group})" for one in (scan, before))
            raise FileError(f"{path}:{line}", f"image I{scan.image} is of {now}, but further up of {then}")
    _tell_of(tell, "rows", incomplete, "image ID, subject or group is missing")
    if not scans:
        raise FileError(path, "lists no images")
    return list(scans.values())


def find_files(folder: Path, tell: Tell) -> dict[int, Path]:
    """The NIfTI files under ``folder`` by the number of their image ID; of several, the first by name.

    Raises:
        FileError: no folder, or without any such file.
    """
    if not folder.is_dir():
        raise FileError(folder, "is not a folder" if folder.exists() else "no such folder")
    found: dict[int, Path] = {}
    nameless, more = [], []
    for path in sorted(folder.rglob("*")):
        if path.name.startswith(".") or not path.name.lower().endswith((".nii", ".nii.gz")) or not path.is_file():
            continue  # a Mac adds files "._ADNI_...", which are none
        image = image_of(path.relative_to(folder))
        if image is None:
            nameless.append(str(path))
        elif found.setdefault(image, path) != path:
            more.append(str(path))
    _tell_of(tell, "files", nameless, "no image ID, such as I45108, in the name or the folder's")
    _tell_of(tell, "files", more, "another file has the same image ID")
    if not found:
        raise FileError(folder, "holds no NIfTI files with image IDs (*_I45108.nii, I45108/*.nii.gz)")
    return found


def image_of(path: Path) -> int | None:
    """The number of the image ID in a file's name, the last if there are several, or else in its nearest folder's."""
    for part in reversed(path.parts):
        if numbers := _IN_NAME.findall(part):
            return int(numbers[-1])
    return None


def choose(scans: Iterable[Scan], files: Mapping[int, Path], classes: Sequence[str], tell: Tell) -> list[Scan]:
    """The scans of ``classes`` that have files, in the table's order.

    Raises:
        UserError: a class is no group of the table, or has no files.
    """
    scans = list(scans)
    groups = Counter(scan.group for scan in scans)
    for name in classes:
        if name not in groups:
            known = ", ".join(f"{group} ({count})" for group, count in sorted(groups.items()))
            raise UserError(f"the table has no group {name}; it has {known}")
    wanted = [scan for scan in scans if scan.group in classes]
    others = ", ".join(f"{group} ({count})" for group, count in sorted(groups.items()) if group not in classes)
    if others:
        tell(f"skipped {_number(len(scans) - len(wanted), 'rows')}: other groups: {others}")
    _tell_of(tell, "rows", [f"I{scan.image}" for scan in wanted if scan.image not in files], "no file")
    listed = {scan.image for scan in scans}
    _tell_of(tell, "files", [str(path) for image, path in files.items() if image not in listed], "not in the table")
    chosen = [scan for scan in wanted if scan.image in files]
    for name in classes:
        if all(scan.group != name for scan in chosen):
            raise UserError(f"no file belongs to a scan of group {name}")
    return chosen


def split(scans: Sequence[Scan], classes: Sequence[str], part: float, seed: int) -> set[str]:
    """The subjects to test on: ``part`` of those of each class, at least one, and never all.

    Which ones depends on the seed and the subjects only, not on the order of the table.

    Raises:
        UserError: a class has fewer than two subjects.
    """
    group_of_subject: dict[str, str] = {}
    for name in classes:
        for scan in scans:
            if scan.group == name:
                group_of_subject.setdefault(scan.subject, name)
    chosen: set[str] = set()
    for name in classes:
        subjects = [subject for subject, group in group_of_subject.items() if group == name]
        if len(subjects) < 2:
            raise UserError(
                f"group {name} has {_number(len(subjects), 'subjects')} of its own; to split takes at least 2"
            )
        subjects.sort(key=lambda subject: hashlib.blake2b(f"{seed} {subject}".encode()).digest())
        chosen.update(subjects[: min(max(round(part * len(subjects)), 1), len(subjects) - 1)])
    return chosen


def write(out: Path, scans: Sequence[Scan], files: Mapping[int, Path], classes: Sequence[str], test: set[str]) -> None:
    """Write both lists; a path is relative to ``out`` if the file is below it, else absolute."""
    for name, testing in (("train", False), ("test", True)):
        these = [scan for scan in scans if (scan.subject in test) == testing]
        target = out / f"{name}.txt"
        lines = [f"{_path(files[scan.image], out)} {classes.index(scan.group)}\n" for scan in these]
        try:
            out.mkdir(parents=True, exist_ok=True)
            target.write_text("".join(lines), encoding="utf-8")
        except OSError as error:
            raise WriteError(target, error.strerror or error) from None
        counts = ", ".join(_count(these, group) for group in classes)
        print(f"{target}: {_number(len(these), 'volumes')}: {counts}")


def _count(scans: Iterable[Scan], group: str) -> str:
    subjects = [scan.subject for scan in scans if scan.group == group]
    return f"{len(subjects)} {group} of {_number(len(set(subjects)), 'subjects')}"


def _path(path: Path, out: Path) -> str:
    file, folder = Path(os.path.abspath(path)), Path(os.path.abspath(out))
    return str(file.relative_to(folder) if file.is_relative_to(folder) else file)


def _tell_of(tell: Tell, what: str, which: Sequence[str], why: str) -> None:
    if which:
        rest = len(which) - _EXAMPLES
        names = ", ".join(which[:_EXAMPLES]) + (f" and {rest} more" if rest > 0 else "")
        tell(f"skipped {_number(len(which), what)}: {why}: {names}")


def _number(count: int, what: str) -> str:
    return f"{count} {what if count != 1 else what.removesuffix('s')}"


def lay_out(args: argparse.Namespace) -> None:
    classes = [group_of(name) for name in args.classes]
    if classes[0] == classes[1]:
        raise UserError(f"--classes needs two groups, not {classes[0]} twice")
    scans = read_table(args.table, print)
    files = find_files(args.folder, print)
    chosen = choose(scans, files, classes, print)
    test = split(chosen, classes, args.test, args.seed)
    print("labels: " + ", ".join(f"{label} is {name}" for label, name in enumerate(classes)))
    write(args.out, chosen, files, classes, test)


def part_of(text: str) -> float:
    """A type for argparse: a number between 0 and 1, without these."""
    value = float(text)
    if not 0 < value < 1:
        raise ValueError(text)
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write lists of ADNI's scans for VolumeData layers.")
    parser.add_argument("folder", type=Path, help="the downloaded NIfTI files, in folders of any depth")
    parser.add_argument("table", type=Path, help="ADNI's CSV file")
    parser.add_argument(
        "--classes", nargs=2, default=["CN", "AD"], metavar="GROUP", help="labels 0 and 1 (default: CN AD)"
    )
    parser.add_argument("--test", type=part_of, default=0.2, help="part of the subjects to test on (default: 0.2)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of these subjects (default: 0)")
    parser.add_argument("--out", type=Path, default=Path("data/adni"), help="folder of the lists (default: data/adni)")
    try:
        lay_out(parser.parse_args(arguments))
    except BptError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
