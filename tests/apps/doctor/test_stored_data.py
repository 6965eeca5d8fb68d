"""``bpt doctor --data``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bpt.apps.doctor.findings import Ranks, Section, Severity
from bpt.apps.doctor.stored_data import check_stored_data, stored_at
from bpt.base.errors import FileError
from bpt.data.datum import encode_datum
from bpt.data.hdf5_file import Hdf5Writer
from bpt.data.lmdb_file import LmdbWriter
from bpt.system.comm.base import Communicator
from tests.support.doubles.thread_ranks import ThreadCommunicator, run_ranks
from tests.support.paths import GOLDEN


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An LMDB, an HDF5 file and its list, and a net that reads them, in the current folder."""
    monkeypatch.chdir(tmp_path)
    with LmdbWriter("db") as database:
        for index in range(20):
            database.put(encode_datum(np.full((1, 3, 4), index, np.uint8), index))
    rows = Hdf5Writer("rows.h5")
    rows.append({"data": np.zeros((6, 2))})
    rows.close()
    Path("list").write_text("rows.h5\n")
    Path("net.prototxt").write_text(
        'layer { name: "a" type: "Data" top: "x" data_param { source: "db" batch_size: 2 } include { phase: TRAIN } }'
        'layer { name: "b" type: "HDF5Data" top: "data" hdf5_data_param { source: "list" batch_size: 2 } }'
    )


def damage(path: str, content: bytes) -> None:
    whole = bytearray(Path(path).read_bytes())
    whole[whole.index(content)] ^= 1
    Path(path).write_bytes(whole)


def check(*places: str, ranks: int = 1) -> Section:
    def run(comm: Communicator) -> Section:
        return check_stored_data(Ranks.meet(comm), lambda: [one for place in places for one in stored_at(place)])

    sections = run_ranks(ranks, run)
    assert all(section == sections[0] for section in sections)
    return sections[0]


def test_each_kind_of_place() -> None:
    database = "LMDB db: 20 records, all as they were written"
    rows = 'HDF5 file rows.h5: 6 rows of "data", all as they were written'
    for places, expected in (
        (["db"], [database]),
        (["rows.h5"], [rows]),
        (["list"], [rows]),
        (["net.prototxt"], [database, rows]),
        (["db", "net.prototxt", "list"], [database, rows]),
    ):
        section = check(*places)
        assert [(finding.kind, finding.text) for finding in section.findings] == [
            (Severity.OK, text) for text in expected
        ]


def test_damage_names_file_and_record() -> None:
    damage("db/data.mdb", encode_datum(np.full((1, 3, 4), 7, np.uint8), 7).SerializeToString())
    (finding,) = check("db").findings
    assert finding.kind is Severity.PROBLEM
    assert finding.text.startswith('LMDB db is damaged: record "00000000"; record "00000001"; ')
    assert finding.text.endswith("and 15 more")  # the 20 records are on one page
    assert finding.remedy == "copy it again from an undamaged source, or make it again"


def test_what_has_no_checksums_is_read() -> None:
    folder = f"{GOLDEN}/lmdb/digits_test_lmdb"
    (finding,) = check(folder).findings
    text = f"LMDB {folder}: 100 records, all can be read; it has no checksums to compare them with"
    assert (finding.kind, finding.text) == (Severity.NOTE, text)


def test_every_host_looks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadCommunicator, "host", property(lambda comm: "aabb"[comm.rank]))
    section = check("db", ranks=4)
    text = "LMDB db: 20 records, all as they were written"
    assert [finding.text for finding in section.findings] == [f"rank 0 on host a: {text}", f"rank 2 on host b: {text}"]


def test_nothing_there() -> None:
    with pytest.raises(FileError, match="nowhere: cannot be read: No such file"):
        stored_at("nowhere")
    (finding,) = check("nowhere").findings
    assert (finding.kind, finding.text) == (Severity.PROBLEM, "nowhere: cannot be read: No such file or directory")
