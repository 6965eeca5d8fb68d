"""ADNI's files and table, made up: who is in which list, and what is left out."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bpt.data.volume_source import list_volumes
from scripts import lay_out_adni
from tests.support.nifti_files import write
from tests.support.paths import ROOT

HEADER = (
    '"Image Data ID","Subject","Group","Sex","Age","Visit","Modality","Description","Type","Acq Date","Format",'
    '"Downloaded"'
)
GROUPS = {"AD": range(10), "CN": range(10, 25), "MCI": range(25, 28)}  # subjects
Run = Callable[..., tuple[int, str, str]]


def row(image: int, subject: int, group: str) -> str:
    about = '"M","84","1","MRI","MPR; GradWarp; N3; Scaled","Processed","4/18/2006","NiFTI",""'
    return f'"I{image}","{subject:03d}_S_{1000 + subject}","{group}",{about}'


def place(image: int, subject: int, name: str = "") -> str:
    person = f"{subject:03d}_S_{1000 + subject}"
    file = name or f"ADNI_{person}_MR_MPR__GradWarp__N3__Scaled_Br_20070319113623975_S13408_I{image}.nii"
    return f"{person}/MPR__GradWarp__N3__Scaled/2006-04-18_08_20_30.0/I{image}/{file}"


def add(folder: Path, path: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).touch()


@pytest.fixture
def adni(tmp_path: Path) -> Path:
    """The folder ADNI and the table adni.csv: two visits of each subject, images 1000 + 10 * subject + visit."""
    rows = []
    for group, subjects in GROUPS.items():
        for subject in subjects:
            for visit in (1, 2):
                image = 1000 + 10 * subject + visit
                rows.append(row(image, subject, group))
                add(tmp_path / "ADNI", place(image, subject))
    (tmp_path / "adni.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return tmp_path


@pytest.fixture
def run(adni: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Lays out; returns exit status, output and errors."""

    def run(*more: str, out: str = "out") -> tuple[int, str, str]:
        status = lay_out_adni.main([str(adni / "ADNI"), str(adni / "adni.csv"), "--out", str(adni / out), *more])
        return (status, *capsys.readouterr())

    return run


def listed(path: Path) -> list[tuple[int, int]]:
    """Subject and label of each line."""
    return [(int(entry.path.name.split("_")[1]), entry.label) for entry in list_volumes(str(path))]


def test_the_split_is_by_subject(run: Run, adni: Path) -> None:
    status, told, errors = run("--classes", "AD", "CN", "--test", "0.2", "--seed", "0")
    assert (status, errors) == (0, "")
    train, test = listed(adni / "out/train.txt"), listed(adni / "out/test.txt")
    assert sorted(train + test) == sorted([(s, 0) for s in GROUPS["AD"]] * 2 + [(s, 1) for s in GROUPS["CN"]] * 2)
    tested = {subject for subject, _ in test}
    assert not tested & {subject for subject, _ in train}
    assert len(tested & set(GROUPS["AD"])) == 2 and len(tested & set(GROUPS["CN"])) == 3
    assert told.splitlines() == [
        "skipped 6 rows: other groups: MCI (6)",
        "labels: 0 is AD, 1 is CN",
        f"{adni}/out/train.txt: 40 volumes: 16 AD of 8 subjects, 24 CN of 12 subjects",
        f"{adni}/out/test.txt: 10 volumes: 4 AD of 2 subjects, 6 CN of 3 subjects",
        "AD: 10 subjects, male/female 10/0, age 84.00/0.00, MMSE -",
        "CN: 15 subjects, male/female 15/0, age 84.00/0.00, MMSE -",
    ]


def test_the_seed_chooses_whatever_the_order(run: Run, adni: Path) -> None:
    def tested(*more: str) -> set[tuple[int, int]]:
        assert run(*more)[0] == 0
        return set(listed(adni / "out/test.txt"))

    first = tested()
    assert tested("--seed", "0") == first
    others = [tested("--seed", str(seed)) for seed in range(1, 5)]
    assert len({frozenset(names) for names in [first, *others]}) == 5
    header, *rows = (adni / "adni.csv").read_text().splitlines()
    (adni / "adni.csv").write_text("\n".join([header, *reversed(rows)]))
    assert tested() == first
    assert tested("--classes", "AD", "CN") == {(subject, 1 - label) for subject, label in first}


@pytest.mark.parametrize(("part", "counts"), [("0.01", (1, 1)), ("0.5", (5, 8)), ("0.99", (9, 14))])
def test_both_lists_have_both_groups(run: Run, adni: Path, part: str, counts: tuple[int, int]) -> None:
    assert run("--classes", "AD", "CN", "--test", part)[0] == 0
    subjects = {subject for subject, _ in listed(adni / "out/test.txt")}
    assert (len(subjects & set(GROUPS["AD"])), len(subjects & set(GROUPS["CN"]))) == counts


def test_other_groups_by_any_name(run: Run, adni: Path) -> None:
    text = (adni / "adni.csv").read_text()
    (adni / "adni.csv").write_text(text.replace('"CN"', '"NC"').replace('"AD"', '"sMCI"').replace('"MCI"', '"pMCI"'))
    status, told, _ = run("--classes", "smci", "PMCI")
    assert (status, told.splitlines()[0]) == (0, "skipped 30 rows: other groups: CN (30)")
    assert {label for subject, label in listed(adni / "out/train.txt") if subject in GROUPS["MCI"]} == {1}
    assert run("--classes", "CN", "sMCI")[0] == run("--classes", "NC", "sMCI")[0] == 0


def test_a_subject_of_both_groups_is_in_one_list(run: Run, adni: Path) -> None:
    """Each of its scans keeps its label. Here the second scan of three of CN's fifteen subjects is of MCI."""
    text = (adni / "adni.csv").read_text()
    for subject in (10, 11, 12):
        text = text.replace(row(1002 + 10 * subject, subject, "CN"), row(1002 + 10 * subject, subject, "MCI"))
    (adni / "adni.csv").write_text(text)
    for seed in range(5):
        assert run("--classes", "CN", "MCI", "--test", "0.5", "--seed", str(seed))[0] == 0
        train, test = listed(adni / "out/train.txt"), listed(adni / "out/test.txt")
        tested = {subject for subject, _ in test}
        assert not tested & {subject for subject, _ in train}
        assert (len(tested & set(GROUPS["CN"])), len(tested & set(GROUPS["MCI"]))) == (8, 2)  # halves, to even numbers
        assert sorted(label for subject, label in train + test if subject == 10) == [0, 1]


def test_a_group_without_subjects_of_its_own(run: Run, adni: Path) -> None:
    header, *rows = (adni / "adni.csv").read_text().splitlines()
    second = [line.replace('"AD"', '"CN"') if index % 2 else line for index, line in enumerate(rows)]
    (adni / "adni.csv").write_text("\n".join([header, *second[:20]]))
    assert run("--classes", "AD", "CN")[2] == ("error: group CN has 0 subjects of its own; to split takes at least 2\n")


def test_what_is_left_out(run: Run, adni: Path) -> None:
    folder = adni / "ADNI"
    (folder / place(1001, 0)).unlink()
    add(folder, place(1002, 0, "ADNI_copy_I1002.nii.gz"))
    add(folder, place(1011, 1, "._ADNI_x_I1011.nii"))
    add(folder, "other/ADNI_x_I77.nii")
    add(folder, "other/atlas.nii")
    add(folder, "other/notes_I5.txt")
    with (adni / "adni.csv").open("a") as file:
        file.write(row(1012, 1, "AD") + "\n" + '"","x","AD"\n"I8","","AD"\n"I9"\n"abc","x","AD"\n')
    status, told, errors = run("--classes", "AD", "CN")
    assert (status, errors) == (0, "")
    lines = told.splitlines()
    assert (
        lines[:6]
        == [
            "skipped 4 rows: image ID, subject or group is missing: line 59, line 60, line 61 and 1 more",
            f"skipped 1 file: no image ID, such as I45108, in the name or the folder's: {folder}/other/atlas.nii",
            f"skipped 1 file: another file has the same image ID: {folder}/{place(1002, 0, 'ADNI_copy_I1002.nii.gz')}",
            "skipped 6 rows: other groups: MCI (6)",
            "skipped 1 row: no file: I1001",
            f"skipped 1 file: not in the table: {folder}/other/ADNI_x_I77.nii",
        ]
        or lines[:6] == []
    )
    assert len(listed(adni / "out/train.txt") + listed(adni / "out/test.txt")) == 49


@pytest.mark.parametrize(
    ("path", "image"),
    [
        ("ADNI_002_S_0295_MR_MPR_Br_20070319113623975_S13408_I45108.nii", 45108),
        ("ADNI_I1_S2_I45108_brain.nii.gz", 45108),
        ("I45108.nii.gz", 45108),
        ("a/I45108/brain.nii", 45108),
        ("I7/I45108/brain.nii", 45108),
        ("I7/x_i45108.NII", 45108),
        ("MCI45108.nii", None),
        ("I45108x/brain_I.nii", None),
    ],
)
def test_image_ids(path: str, image: int | None) -> None:
    assert lay_out_adni.image_of(Path(path)) == image


def test_paths(run: Run, adni: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the list where the files are below it, so that the folder can be moved; else absolute."""
    assert run(out="ADNI")[0] == run(out="elsewhere")[0] == 0
    assert (adni / "ADNI/train.txt").read_text().startswith("000_S_1000/MPR__GradWarp")
    assert (adni / "elsewhere/train.txt").read_text().startswith(f"{adni}/ADNI/000_S_1000/MPR__GradWarp")
    before = listed(adni / "ADNI/train.txt")
    shutil.move(adni / "ADNI", adni / "my ADNI")
    assert listed(adni / "my ADNI/train.txt") == before
    monkeypatch.chdir(adni)
    assert lay_out_adni.main(["my ADNI", "adni.csv", "--out", "new"]) == 0
    assert listed(Path("new/train.txt")) == before


def test_a_table_as_spreadsheets_write_it(run: Run, adni: Path) -> None:
    text = (
        (adni / "adni.csv").read_text().replace('"', "").replace("\n", "\r\n").replace("Image Data ID", "image data id")
    )
    (adni / "adni.csv").write_bytes(b"\xef\xbb\xbf" + text.replace("\r\nI", "\r\n").encode())  # and without the I
    assert run()[0] == 0
    assert len(listed(adni / "out/train.txt")) == 40


PEOPLE = """\
Image Data ID,Subject,Group,Gender,Age,MMSE Total Score
I1011,a,MCI,M,70,26
I1012,a,MCI,M,71,25
I1021,b,MCI,Female,80,28
I1031,c,LMCI,F,75.5,
I1041,d,MCI,x,60,30
I1051,e,MCI,M,,27
I1061,f,MCI,M,90,24
I1071,g,CN,M,65,30
"""
DIAGNOSES = """\
PTID,EXAMDATE,DIAGNOSIS
a,2006-01-01,2
a,2007-01-01,3
b,1/1/2006,MCI
b,1/15/2009,2.0
c,2006-01-01,2
c,2008-12-31,3
d,2006-01-01,1
d,2007-01-01,2
d,2010-01-01,2
e,2006-01-01,2
e,2008-01-01,2
f,2006-01-01,2
f,2010-01-01,Dementia
g,2006-01-01,1
"""


def test_stable_and_progressive_impairment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Within 36 months a and c get AD; b and d do not, and were seen so long.

    e was not seen long enough, and f got AD later. Of the two scans of a, the first counts; d's sex is none.
    """
    for number in range(1, 8):
        for visit in (1, 2):
            add(tmp_path / "ADNI", f"I{1000 + 10 * number + visit}.nii")
    (tmp_path / "adni.csv").write_text(PEOPLE)
    (tmp_path / "dxsum.csv").write_text(DIAGNOSES)
    words = [str(tmp_path / "ADNI"), str(tmp_path / "adni.csv"), "--out", str(tmp_path / "out"), "--classes", "sMCI"]
    words += ["pMCI", "--test", "0.5", "--diagnoses", str(tmp_path / "dxsum.csv")]
    assert lay_out_adni.main(words) == 0
    told = capsys.readouterr().out.splitlines()
    assert "skipped 1 personal fact: a sex, an age or an MMSE score that is none: line 6" in told
    assert "skipped 2 rows: of MCI, which the diagnoses do not tell to be stable or progressive: I1051, I1061" in told
    assert told[-2:] == [
        # b: F, 80, 28; of d the sex is none, and so nothing is taken from its row
        "SMCI: 2 subjects, male/female 0/1, age 80.00/0.00, MMSE 28.00/0.00",
        # a: M, 70, 26; c: F, 75.5; mean 72.75, deviation 5.5 / √2
        "PMCI: 2 subjects, male/female 1/1, age 72.75/3.89, MMSE 26.00/0.00",
    ]
    with (tmp_path / "out/scans.csv").open(newline="") as file:
        rows = {row["file"].split("/")[-1]: row for row in csv.DictReader(file)}
    assert list(rows) == ["I1011.nii", "I1012.nii", "I1021.nii", "I1031.nii", "I1041.nii"]
    assert [row["label"] for row in rows.values()] == ["1", "1", "0", "1", "0"]
    assert [rows["I1012.nii"][name] for name in ("subject", "group", "sex", "age", "mmse")] == [
        "a", "PMCI", "M", "71.0", "25.0",
    ]  # fmt: skip
    assert rows["I1031.nii"]["mmse"] == rows["I1041.nii"]["sex"] == ""
    lists = {name: (tmp_path / "out" / f"{name}.txt").read_text() for name in ("train", "test")}
    assert all(f"{row['file']} {row['label']}" in lists[row["list"]] for row in rows.values())
    assert {row["list"] for row in rows.values()} == {"train", "test"}

    assert lay_out_adni.main([*words, "--months", "60"]) == 2  # nobody was seen so long without AD
    assert "the table has no group SMCI" in capsys.readouterr().err
    assert lay_out_adni.main(words[:-2]) == 2
    assert "sMCI and pMCI follow from --diagnoses" in capsys.readouterr().err


def test_a_table_that_is_none_of_diagnoses(run: Run, adni: Path) -> None:
    status, _, errors = run("--diagnoses", str(adni / "adni.csv"))
    assert (status, errors) == (
        2, f'error: {adni}/adni.csv: is not ADNI\'s table of diagnoses: it has no column "PTID"\n'
    )  # fmt: skip


def write_table(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "adni.csv").write_text(text)


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (None, "--classes AD AD", "--classes needs two groups, not AD twice"),
        (None, "--classes CN NC", "--classes needs two groups, not CN twice"),
        (None, "--classes AD LMCI", "the table has no group LMCI; it has AD (20), CN (30), MCI (6)"),
        (lambda folder: shutil.rmtree(folder / "ADNI"), "", "ADNI: no such folder"),
        (lambda folder: (folder / "adni.csv").unlink(), "", "adni.csv: No such file or directory"),
        (write_table(""), "", 'adni.csv: is not ADNI\'s table: it has no column "Image Data ID"'),
        (write_table("Image Data ID,Group\n"), "", 'it has no column "Subject"'),
        (write_table(HEADER + "\n"), "", "adni.csv: lists no images"),
        (lambda folder: (folder / "adni.csv").write_bytes(b"\xff\xfe\x00"), "", "is not a table of comma-separated"),
        (
            write_table("\n".join([HEADER, row(1, 2, "AD"), row(1, 3, "AD")])),
            "",
            "adni.csv:3: image I1 is of 003_S_1003 (AD), but further up of 002_S_1002 (AD)",
        ),
        (
            write_table("\n".join([HEADER, row(1, 2, "AD"), row(1011, 1, "CN")])),
            "",
            "no file belongs to a scan of group AD",
        ),
        (
            write_table("\n".join([HEADER, row(1001, 0, "AD"), row(1011, 1, "CN")])),
            "",
            "group CN has 1 subject of its own",
        ),
    ],
)
def test_errors(run: Run, adni: Path, change: Callable[[Path], object] | None, arguments: str, message: str) -> None:
    if change:
        change(adni)
    status, _, errors = run(*arguments.split())
    assert status == 2
    assert errors.startswith("error: ") and errors.count("\n") == 1
    assert message in errors
    assert not (adni / "out").exists()


def test_no_files(run: Run, adni: Path) -> None:
    shutil.rmtree(adni / "ADNI")
    (adni / "ADNI").mkdir()
    assert run()[2] == f"error: {adni}/ADNI: holds no NIfTI files with image IDs (*_I45108.nii, I45108/*.nii.gz)\n"


@pytest.mark.parametrize("part", ["0", "1", "nan", "x"])
def test_wrong_parts(run: Run, part: str) -> None:
    with pytest.raises(SystemExit) as left:
        run("--test", part)
    assert left.value.code == 2


def test_as_a_command_and_read_by_the_layer(adni: Path) -> None:
    for path in (adni / "ADNI").rglob("*.nii"):
        write(path)
    command = [sys.executable, str(ROOT / "scripts/lay_out_adni.py"), "ADNI", "adni.csv"]
    done = subprocess.run(command, cwd=adni, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list_volumes(str(adni / "data/adni/train.txt"))) == 40
