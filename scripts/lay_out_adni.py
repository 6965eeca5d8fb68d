#!/usr/bin/env python3
"""Write lists of ADNI's scans, two groups of them, for VolumeData layers: train.txt and test.txt.

    scripts/lay_out_adni.py ADNI/ ADNI_8_22_2026.csv --classes CN AD --out data/adni

takes the folder of the downloaded NIfTI files and the table that comes with them (columns Image Data ID, Subject and
Group are used). A file belongs to the row whose image ID is in its name or else in the name of its folder:
ADNI_002_S_0295_MR_..._I45108.nii to I45108. No file is copied or changed.

The first group gets the label 0, the second 1. The split is by subject: all scans of a person are in the same list, so
that no net is tested on a brain that it has seen. A part of each group's subjects, chosen by --seed, is for testing; a
subject with scans of both groups counts for the first of them. NC means CN. What is left out is told, with the reason.

scans.csv has a row for each listed scan: its file, list, label, subject and group, and sex, age and MMSE score, as far
as the table has columns for them. They are printed for each group as in Table 2 of the 3D-ResAttNet paper (Hybrid).

ADNI's table does not tell whose impairment is stable (sMCI) and whose progresses to AD (pMCI): that follows from later
visits. For this task, give ADNI's table of diagnoses (DXSUM; columns PTID, EXAMDATE and DIAGNOSIS):

    scripts/lay_out_adni.py ADNI/ ADNI_8_22_2026.csv --classes sMCI pMCI --diagnoses DXSUM.csv

A subject of MCI with a diagnosis of AD within --months of the first of MCI is of pMCI. One without any, whose last
diagnosis is as late as that or later, is of sMCI. Whoever was seen for a shorter time is left out.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bpt.base.errors import BptError, FileError, UserError, WriteError
from scripts.adni_tables import (
    PROGRESSIVE,
    STABLE,
    Person,
    Scan,
    Tell,
    counted,
    follow_up,
    group_of,
    read_progress,
    read_table,
    tell_of,
)

_IN_NAME = re.compile(r"(?:^|_)I(\d+)(?=[_.]|$)", re.IGNORECASE)


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
    tell_of(tell, "files", nameless, "no image ID, such as I45108, in the name or the folder's")
    tell_of(tell, "files", more, "another file has the same image ID")
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
            hint = "; sMCI and pMCI follow from --diagnoses" if name in (STABLE, PROGRESSIVE) else ""
            raise UserError(f"the table has no group {name}; it has {known}{hint}")
    wanted = [scan for scan in scans if scan.group in classes]
    others = ", ".join(f"{group} ({count})" for group, count in sorted(groups.items()) if group not in classes)
    if others:
        tell(f"skipped {counted(len(scans) - len(wanted), 'rows')}: other groups: {others}")
    tell_of(tell, "rows", [f"I{scan.image}" for scan in wanted if scan.image not in files], "no file")
    listed = {scan.image for scan in scans}
    tell_of(tell, "files", [str(path) for image, path in files.items() if image not in listed], "not in the table")
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
                f"group {name} has {counted(len(subjects), 'subjects')} of its own; to split takes at least 2"
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
        print(f"{target}: {counted(len(these), 'volumes')}: {counts}")


def write_scans(
    out: Path, scans: Sequence[Scan], files: Mapping[int, Path], people: Mapping[int, Person], labels: Sequence[str],
    test: set[str],
) -> None:  # fmt: skip
    """Write scans.csv: a row for each listed scan.

    Raises:
        WriteError: it cannot be written.
    """
    target = out / "scans.csv"
    try:
        with target.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["file", "list", "label", "subject", "group", "sex", "age", "mmse"])
            for scan in scans:
                where = "test" if scan.subject in test else "train"
                person = ["" if value is None else value for value in people[scan.image]]
                label = labels.index(scan.group)
                writer.writerow([_path(files[scan.image], out), where, label, scan.subject, scan.group, *person])
    except OSError as error:
        raise WriteError(target, error.strerror or error) from None


def demographics(scans: Iterable[Scan], people: Mapping[int, Person], classes: Sequence[str]) -> list[str]:
    """Return a line for each class, as in Table 2 (Hybrid): men and women, mean and deviation of age and MMSE score.

    Each subject counts once, by the first scan in the table that tells something of it. Deviations are those of a
    sample.
    """
    lines = []
    for name in classes:
        of_subject: dict[str, list[Person]] = defaultdict(list)
        for scan in scans:
            if scan.group == name:
                of_subject[scan.subject].append(people[scan.image])
        persons = [next((each for each in all_ if each != Person()), Person()) for all_ in of_subject.values()]
        sexes = Counter(person.sex for person in persons)
        gender = f"{sexes['M']}/{sexes['F']}" if sexes["M"] + sexes["F"] else "-"
        age, mmse = (_mean([getattr(person, key) for person in persons]) for key in ("age", "mmse"))
        lines.append(f"{name}: {counted(len(persons), 'subjects')}, male/female {gender}, age {age}, MMSE {mmse}")
    return lines


def _mean(values: Iterable[float | None]) -> str:
    """Return mean/deviation of the known values."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    return f"{statistics.fmean(known):.2f}/{statistics.stdev(known) if len(known) > 1 else 0:.2f}"


def _count(scans: Iterable[Scan], group: str) -> str:
    subjects = [scan.subject for scan in scans if scan.group == group]
    return f"{len(subjects)} {group} of {counted(len(set(subjects)), 'subjects')}"


def _path(path: Path, out: Path) -> str:
    file, folder = Path(os.path.abspath(path)), Path(os.path.abspath(out))
    return str(file.relative_to(folder) if file.is_relative_to(folder) else file)


def lay_out(args: argparse.Namespace) -> None:
    classes = [group_of(name) for name in args.classes]
    if classes[0] == classes[1]:
        raise UserError(f"--classes needs two groups, not {classes[0]} twice")
    scans, people = read_table(args.table, print)
    if args.diagnoses:
        scans = follow_up(scans, read_progress(args.diagnoses, args.months, print), print)
    files = find_files(args.folder, print)
    chosen = choose(scans, files, classes, print)
    test = split(chosen, classes, args.test, args.seed)
    print("labels: " + ", ".join(f"{label} is {name}" for label, name in enumerate(classes)))
    write(args.out, chosen, files, classes, test)
    write_scans(args.out, chosen, files, people, classes, test)
    if any(person != Person() for person in people.values()):
        for line in demographics(chosen, people, classes):
            print(line)


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
    parser.add_argument("--diagnoses", type=Path, help="ADNI's table of diagnoses (DXSUM), which divides MCI")
    parser.add_argument(
        "--months", type=float, default=36, help="after which MCI without AD counts as stable (default: 36)"
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
