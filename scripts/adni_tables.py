"""ADNI's tables, as scripts/lay_out_adni.py reads them: scans, the people scanned, and how impairments progressed."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import NamedTuple

from bpt.base.errors import FileError

COLUMNS = ("Image Data ID", "Subject", "Group")
SAME = {"NC": "CN"}  # names of one group
OF_PERSON: Mapping[str, tuple[str, ...]] = {
    "sex": ("Sex", "Gender", "PTGENDER"), "age": ("Age",), "mmse": ("MMSE", "MMSE Total Score", "MMSCORE"),
}  # fmt: skip
"""Columns that the table may have, by the name in scans.csv."""
DIAGNOSES = ("PTID", "EXAMDATE", "DIAGNOSIS")
IMPAIRED = {"MCI", "EMCI", "LMCI"}  # groups that follow-up divides
STABLE, PROGRESSIVE = "SMCI", "PMCI"
_CODES = {"1": "CN", "2": "MCI", "3": "AD", "DEMENTIA": "AD"}  # of DIAGNOSIS
_DATES = ("%Y-%m-%d", "%m/%d/%Y")
_DAYS = 365.25 / 12  # of a month
_ID = re.compile(r"I?(\d+)", re.IGNORECASE)
_EXAMPLES = 3

Tell = Callable[[str], None]


class Scan(NamedTuple):
    """A row of the table: the number of its image ID, whose scan it is, and the group."""

    image: int
    subject: str
    group: str


class Person(NamedTuple):
    """What the table tells of the person at a scan: sex (M, F or empty), age in years and MMSE score, if known."""

    sex: str = ""
    age: float | None = None
    mmse: float | None = None


def group_of(name: str) -> str:
    """Return the name by which a group is known here: as ADNI writes it, but the same whatever the case."""
    upper = name.strip().upper()
    return SAME.get(upper, upper)


def read_rows(
    path: Path, what: str, needed: Sequence[str], optional: Mapping[str, Sequence[str]]
) -> list[tuple[int, list[str], dict[str, str]]]:
    """Return the line, the ``needed`` cells and the ``optional`` ones that are there, of each row of a table.

    Args:
        what: the table, for messages.
        optional: a name and the columns that may have it; the first of them that is there counts.

    Raises:
        FileError: missing, or not a table with these columns.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            columns = {name.strip().lower(): name for name in reader.fieldnames or () if name}
            missing = [name for name in needed if name.lower() not in columns]
            if missing:
                raise FileError(path, f'is not {what}: it has no column "{missing[0]}"')
            keys = [columns[name.lower()] for name in needed]
            found = {
                key: [columns[n.lower()] for n in names if n.lower() in columns] for key, names in optional.items()
            }
            more = {key: names[0] for key, names in found.items() if names}
            return [
                (
                    reader.line_num,
                    [(row[key] or "").strip() for key in keys],
                    {key: (row[name] or "").strip() for key, name in more.items()},
                )
                for row in reader
            ]
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(path, f"is not a table of comma-separated values: {error}") from None


def read_table(path: Path, tell: Tell) -> tuple[list[Scan], dict[int, Person]]:
    """Return the rows of ADNI's table, each image once, and the person of each image.

    Raises:
        FileError: missing, not a table with these columns, empty, or with an image in two groups or subjects.
    """
    scans: dict[int, Scan] = {}
    people: dict[int, Person] = {}
    incomplete, wrong = [], []
    for line, (name, subject, group), about in read_rows(path, "ADNI's table", COLUMNS, OF_PERSON):
        image = _ID.fullmatch(name)
        if not (image and subject and group):
            incomplete.append(f"line {line}")
            continue
        scan = Scan(int(image[1]), subject, group_of(group))
        if scans.setdefault(scan.image, scan) != scan:
            before = scans[scan.image]
            now, then = (f"{one.subject} ({one.group})" for one in (scan, before))
            raise FileError(f"{path}:{line}", f"image I{scan.image} is of {now}, but further up of {then}")
        try:
            people.setdefault(scan.image, person_of(about))
        except ValueError:
            wrong.append(f"line {line}")
            people.setdefault(scan.image, Person())
    tell_of(tell, "rows", incomplete, "image ID, subject or group is missing")
    tell_of(tell, "personal facts", wrong, "a sex, an age or an MMSE score that is none")
    if not scans:
        raise FileError(path, "lists no images")
    return list(scans.values()), people


def person_of(about: Mapping[str, str]) -> Person:
    """Return the person whom cells describe; empty ones tell nothing.

    Raises:
        ValueError: the sex is neither male nor female, or the age or the score is no number.
    """
    sex = about.get("sex", "").upper()
    if sex not in ("", "M", "F", "MALE", "FEMALE"):
        raise ValueError(sex)
    age, mmse = (float(cell) if (cell := about.get(name, "")) else None for name in ("age", "mmse"))
    return Person(sex[:1], age, mmse)


def read_progress(path: Path, months: float, tell: Tell) -> dict[str, str]:
    """Return sMCI or pMCI by subject, from ADNI's table of diagnoses.

    Args:
        months: after the first diagnosis of MCI, until which one of AD makes it progressive, and up to which at least
            a subject must have been seen to be stable.

    Raises:
        FileError: missing, or not such a table.
    """
    visits: dict[str, list[tuple[date, str]]] = defaultdict(list)
    wrong = []
    for line, (subject, day, code), _ in read_rows(path, "ADNI's table of diagnoses", DIAGNOSES, {}):
        when = _day(day)
        if not (subject and when):
            wrong.append(f"line {line}")
            continue
        visits[subject].append((when, _CODES.get(code.upper().removesuffix(".0"), code.upper())))
    tell_of(tell, "diagnoses", wrong, "subject or date is missing")
    found = {}
    for subject, diagnoses in visits.items():
        diagnoses.sort()
        first = next((day for day, diagnosis in diagnoses if diagnosis == "MCI"), None)
        if first is None:
            continue
        later = [((day - first).days / _DAYS, diagnosis) for day, diagnosis in diagnoses if day >= first]
        if any(diagnosis == "AD" and after <= months for after, diagnosis in later):
            found[subject] = PROGRESSIVE
        elif all(diagnosis != "AD" for _, diagnosis in later) and later[-1][0] >= months:
            found[subject] = STABLE
    return found


def _day(text: str) -> date | None:
    """Return the date in ADNI's ways of writing it; ``None``: it is none."""
    for form in _DATES:
        try:
            return datetime.strptime(text, form).date()
        except ValueError:
            pass
    return None


def follow_up(scans: Iterable[Scan], progress: Mapping[str, str], tell: Tell) -> list[Scan]:
    """Return the scans with sMCI and pMCI in place of MCI, without those of subjects who were not seen long enough."""
    kept, short = [], []
    for scan in scans:
        if scan.group not in IMPAIRED:
            kept.append(scan)
        elif scan.subject in progress:
            kept.append(scan._replace(group=progress[scan.subject]))
        else:
            short.append(f"I{scan.image}")
    tell_of(tell, "rows", short, "of MCI, which the diagnoses do not tell to be stable or progressive")
    return kept


def tell_of(tell: Tell, what: str, which: Sequence[str], why: str) -> None:
    """Tell how many of ``what`` are skipped, why, and some examples; nothing if ``which`` is empty."""
    if which:
        rest = len(which) - _EXAMPLES
        names = ", ".join(which[:_EXAMPLES]) + (f" and {rest} more" if rest > 0 else "")
        tell(f"skipped {counted(len(which), what)}: {why}: {names}")


def counted(count: int, what: str) -> str:
    """Return a number with its noun: "1 row", "2 rows"."""
    return f"{count} {what if count != 1 else what.removesuffix('s')}"
