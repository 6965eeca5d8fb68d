"""Datum records, byte for byte as Caffe's programs write them, and the ways in which a record may differ."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpt.base.errors import DataError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data import datum as module
from bpt.data.datum import decode_datum, encode_datum

# channels 1, height 2, width 3, six bytes of data, label 300
PLAIN = b"\x08\x01\x10\x02\x18\x03\x22\x06\x00\x01\x02\xfd\xfe\xff\x28\xac\x02"
IMAGE = np.array([[[0, 1, 2], [253, 254, 255]]], np.uint8)


def test_plain_record() -> None:
    image, label = decode_datum(PLAIN)
    assert image.dtype == np.uint8
    np.testing.assert_array_equal(image, IMAGE)
    assert label == 300
    assert encode_datum(IMAGE, 300).SerializeToString() == PLAIN


def test_label_of_zero_may_be_missing() -> None:
    image, label = decode_datum(PLAIN[:-3])
    np.testing.assert_array_equal(image, IMAGE)
    assert label == 0


@pytest.mark.parametrize("label", [0, 1, 127, 128, 2**14, 2**31 - 1, -1, -(2**31)])
def test_labels(label: int) -> None:
    image, found = decode_datum(encode_datum(IMAGE, label).SerializeToString())
    np.testing.assert_array_equal(image, IMAGE)
    assert found == label


def test_other_order_of_fields() -> None:
    """Protobuf allows any."""
    record = PLAIN[-3:] + PLAIN[:-3]
    image, label = decode_datum(record)
    np.testing.assert_array_equal(image, IMAGE)
    assert label == 300


def test_floats() -> None:
    values = np.array([[[0.5, -1, 2]]], np.float32)
    image, label = decode_datum(encode_datum(values, 3).SerializeToString())
    assert image.dtype == np.float32
    np.testing.assert_array_equal(image, values)
    assert label == 3


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (PLAIN[:-4], "not a Datum"),  # ends in the data
        (PLAIN[:-1], "not a Datum"),  # ends in the label
        (b"\x08" + b"\x80" * 10 + b"\x00" + PLAIN[2:], "not a Datum"),  # a number of more than ten bytes
        (PLAIN.replace(b"\x10\x02", b"\x10\x05"), "1×5×3 needs 15 values, has 6"),
        (PLAIN.replace(b"\x10\x02", b"\x10\x00"), "1×0×3; each must be at least 1"),
        (b"", "0×0×0; each must be at least 1"),
    ],
)
def test_damaged(record: bytes, says: str) -> None:
    with pytest.raises(DataError, match=says):
        decode_datum(record)


@given(st.data())
def test_same_as_protobuf(data: st.DataObject) -> None:
    """Whatever the bytes, the fast way says what protobuf says, or nothing."""
    record = bytearray(PLAIN)
    for _ in range(data.draw(st.integers(0, 3))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(record)))
    found = module._decode_plain(bytes(record[:cut]))
    if found is not None:
        parsed = pb.Datum.FromString(bytes(record[:cut]))
        assert (*found[0].shape, found[1]) == (parsed.channels, parsed.height, parsed.width, parsed.label)
        assert found[0].tobytes() == parsed.data
        assert not parsed.encoded and not parsed.float_data


@pytest.mark.skipif(sys.platform != "linux", reason="counts Linux's page faults")
def test_reading_leaves_freed_memory_to_the_process() -> None:
    """Once protobuf read the records, and had the C library give back all free memory every 10,000 blocks or so."""
    program = (
        "import resource, numpy as np, torch\n"
        "from bpt.base.malloc_settings import keep_freed_memory\n"
        "from bpt.data.datum import decode_datum, encode_datum\n"
        "keep_freed_memory()\n"
        "record = encode_datum(np.zeros((1, 2, 3), np.uint8), 1).SerializeToString()\n"
        "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "torch.ones(2**24)\n"
        "before = faults()\n"
        "for _ in range(30000):\n"
        "    decode_datum(record)\n"
        "torch.ones(2**22)\n"
        "print(faults() - before)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert int(said) < 2**11  # of the 2^12 pages of the second tensor


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
@pytest.mark.parametrize("shape", [(0, 0, 0), (3, 2, 3)])
def test_an_image_file_without_encoded(format: str, shape: tuple[int, int, int]) -> None:
    """Programs of forks wrote them so; the shape, if there is any, is the picture's."""
    image_module = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image_module.new("RGB", (3, 2), (250, 0, 0)).save(file, format)
    record = pb.Datum(
        data=file.getvalue(), label=4, channels=shape[0], height=shape[1], width=shape[2]
    ).SerializeToString()
    image, label = decode_datum(record)
    assert (image.shape, label) == ((3, 2, 3), 4)
    assert image[2].min() > 240 and image[:2].max() < 10  # blue first
    assert module.is_encoded(record)


def test_pixels_that_begin_as_an_image_file_are_pixels() -> None:
    pixels = b"\xff\xd8\xff\xe0"
    image, _ = decode_datum(pb.Datum(label=1, width=4, height=1, channels=1, data=pixels).SerializeToString())
    assert image.tobytes() == pixels
