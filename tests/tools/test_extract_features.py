"""``tools/extract_features.py``: what the net makes of its data, sample by sample."""

from __future__ import annotations

import re
from pathlib import Path

import lmdb
import numpy as np
import pytest

import bpt
from bpt.config.proto import bpt_pb2 as pb
from tests.support.commands import Tool

NET = "lenet_train_test.prototxt"
WEIGHTS = "lenet_iter_60.caffemodel"


def records(path: str) -> list[tuple[str, pb.Datum]]:
    environment = lmdb.open(path, readonly=True, lock=False)
    with environment.begin() as transaction:
        found = [(key.decode(), pb.Datum.FromString(value)) for key, value in transaction.cursor()]
    environment.close()
    return found


@pytest.mark.usefixtures("inputs")
def test_features_are_the_nets_blobs(tool: Tool) -> None:
    outcome = tool("extract_features", WEIGHTS, NET, "ip1,pool2", "a,b", "2", "lmdb")
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out == "a: 50 records of ip1\nb: 50 records of pool2\n"
    net = bpt.Net(NET, WEIGHTS, bpt.TEST)
    wanted: dict[str, list[np.ndarray]] = {"ip1": [], "pool2": []}
    for _ in range(2):
        net.forward()
        for blob, rows in wanted.items():
            rows.extend(net.blobs[blob].data.copy())
    for path, blob, shape in (("a", "ip1", (48, 1, 1)), ("b", "pool2", (16, 4, 4))):
        found = records(path)
        assert [key for key, _ in found] == [f"{number:010d}" for number in range(50)]
        for (_, datum), values in zip(found, wanted[blob], strict=True):
            assert (datum.channels, datum.height, datum.width) == shape
            np.testing.assert_allclose(np.array(datum.float_data), values.ravel(), rtol=1e-5, atol=1e-6)
            assert (datum.data, datum.label) == (b"", 0)


@pytest.mark.usefixtures("inputs")
def test_a_blob_twice(tool: Tool) -> None:
    outcome = tool("extract_features", WEIGHTS, NET, "ip1,ip1", "a,b", "1", "lmdb")
    assert (outcome.status, outcome.out) == (0, "a: 25 records of ip1\nb: 25 records of ip1\n")
    assert records("a") == records("b")


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([WEIGHTS, NET, "ip3", "a", "2", "lmdb"], f'{NET}: its TEST net has no blob "ip3"; did you mean "ip2"?'),
        ([WEIGHTS, NET, "ip1,ip2", "a", "2", "lmdb"], "2 blobs (ip1, ip2) need as many databases, but 1 are given"),
        ([WEIGHTS, NET, "ip1,ip2", "a,a", "2", "lmdb"], "each blob needs a database of its own: a, a"),
        ([WEIGHTS, NET, "ip1,ip2", "a,./a", "2", "lmdb"], "each blob needs a database of its own: a, ./a"),
        ([WEIGHTS, NET, "loss", "a", "2", "lmdb"], f'{NET}: blob "loss" is one number for the whole batch, not a '
         "feature of each sample"),
        ([WEIGHTS, NET, "ip1", "a", "2", "leveldb"], "DB_TYPE leveldb: LevelDB is neither read nor written; an LMDB "
         "holds the same records: DB_TYPE lmdb"),
        ([WEIGHTS, NET, "ip1", "a", "0", "lmdb"], 'NUM_BATCHES: takes a whole number of at least 1, found "0" '
         "(extract_features.py --help explains)"),
        (["none", NET, "ip1", "no/a", "2", "lmdb"], 'no/a: cannot be written: there is no folder "no"; make it, '
         "or name another"),
        ([WEIGHTS, "other.prototxt", "ip1", "a", "2", "lmdb"], f"{WEIGHTS}: weights of another net: no layer is one of "
         "those with parameters in other.prototxt (other_conv1, other_conv2, other_ip1, …)"),
        ([WEIGHTS, NET, "ip1", "a", "2", "lmdb", "TPU"], 'the mode is CPU or GPU, found "TPU"'),
        ([WEIGHTS, NET, "ip1", "digits_test_lmdb", "2", "lmdb"], "digits_test_lmdb: exists already; remove it or "
         "name another"),
    ],
)  # fmt: skip
def test_mistakes(words: list[str], message: str, tool: Tool) -> None:
    text = Path(NET).read_text()
    Path("other.prototxt").write_text(re.sub(r'name: "(conv\d|ip\d)"', r'name: "other_\1"', text))
    outcome = tool("extract_features", *words)
    assert outcome.error == message
    assert outcome.status == 2
