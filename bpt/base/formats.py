"""Recognise files of other programs by their first bytes, so that an error can say what a wrong file is."""

from __future__ import annotations

import re
from typing import NamedTuple

HEAD = 65536
"""The number of first bytes that identify a file's format."""


class FileFormat(NamedTuple):
    """A kind of file that bpt does not read in this place: its name with an article, and the remedy."""

    what: str
    remedy: str = ""

    def refuse(self, wanted: str) -> str:
        """Return the end of a message which says that the file is of this kind, not ``wanted``."""
        return f"is {self.what}, not {wanted}{f'; {self.remedy}' if self.remedy else ''}"


_UNPACK = "unpack it"
_FETCH = "it only stands for the file"
_DOWNLOAD = "the download failed: fetch it again"
_PYTORCH = (
    "bpt reads weights of Caffe: save them from bpt, or by caffemodel or HDF5; for a network of torchvision, "
    "bpt convert --from torchvision:NAME --weights FILE --output PREFIX makes them"
)

JSON = FileFormat("a JSON file")
LMDB = FileFormat("the data.mdb of an LMDB", "name the folder that it lies in")
SAFETENSORS = FileFormat(
    "a safetensors file", "bpt convert --weights FILE --output NAME.caffemodel makes a file of weights of it"
)
TORCH_OLD = FileFormat("a file of torch.save, in its old format", _PYTORCH)
TORCH_ZIP = FileFormat("a zip archive of torch (torch.save, .pt)", _PYTORCH)

_BEGINS: tuple[tuple[bytes, FileFormat], ...] = (
    (
        b"version https://git-lfs.github.com/spec/",
        FileFormat("a Git LFS pointer", f"{_FETCH}: git lfs pull fetches that"),
    ),
    (b"/annex/objects/", FileFormat("a git-annex pointer", f"{_FETCH}: git annex get fetches that")),
    (b"\x1f\x8b", FileFormat("a gzip file", f"{_UNPACK}: gunzip, or tar xzf for a .tar.gz")),
    (b"\x1f\x9d", FileFormat("a file packed by compress", f"{_UNPACK}: uncompress")),
    (b"\xfd7zXZ\x00", FileFormat("an xz file", f"{_UNPACK}: unxz, or tar xJf for a .tar.xz")),
    (b"\x28\xb5\x2f\xfd", FileFormat("a zstd file", f"{_UNPACK}: unzstd")),
    (b"\x04\x22\x4d\x18", FileFormat("an lz4 file", f"{_UNPACK}: unlz4")),
    (b"7z\xbc\xaf\x27\x1c", FileFormat("a 7z archive", f"{_UNPACK}: 7z x")),
    (b"Rar!\x1a\x07", FileFormat("a RAR archive", f"{_UNPACK}: unrar x")),
    (b"\x89HDF\r\n\x1a\n", FileFormat("an HDF5 file")),
    (b"\x93NUMPY", FileFormat("an array of numpy (.npy)")),
    (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", TORCH_OLD),
    (b"\x89PNG\r\n\x1a\n", FileFormat("a PNG image")),
    (b"\xff\xd8\xff", FileFormat("a JPEG image")),
    (b"GIF87a", FileFormat("a GIF image")),
    (b"GIF89a", FileFormat("a GIF image")),
    (b"II*\x00", FileFormat("a TIFF image")),
    (b"MM\x00*", FileFormat("a TIFF image")),
    (b"%PDF-", FileFormat("a PDF document")),
    (b"\x7fELF", FileFormat("a program or library (ELF)")),
    (b"SQLite format 3\x00", FileFormat("an SQLite database")),
    (b"MATLAB 5.0 MAT-file", FileFormat("a MATLAB file")),
    (b"\x12\x01" + bytes(14), FileFormat("a file of arrays of MXNet (.params)")),
)
_PLACED: tuple[tuple[int, bytes, FileFormat], ...] = (
    (257, b"ustar", FileFormat("a tar archive", f"{_UNPACK}: tar xf")),
    (4, b"TFL3", FileFormat("a TensorFlow Lite model")),
    (16, b"\xde\xc0\xef\xbe", LMDB),
    (8, b"WEBP", FileFormat("a WebP image")),
)
_BZIP2 = re.compile(rb"BZh[1-9]1AY&SY")
_PICKLE = re.compile(rb"\x80[\x02-\x05][\x00-\xff]*?[(}\].qKX\x95\x8c]")
_HTML = re.compile(rb"(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_XML = re.compile(rb"<\?xml\b|<(?:Error|net|annotation|opencv_storage)>")
_JSON = re.compile(rb"\{\s*(?:\"|\})|\[\s*(?:[\"\[{\]0-9-]|true|false|null)")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_HEADER_OF_DARKNET = 20  # bytes
_DARKNET = re.compile(rb"\x00{4}[\x01\x02]\x00{3}[\x00-\x09]\x00{3}")  # versions: 0, 1 or 2, revision


def recognise(head: bytes, size: int) -> FileFormat | None:
    """Return the format of a file that begins with ``head`` and has ``size`` bytes; None if it is unknown.

    Caffe's own files are never recognised as another format.
    """
    return _by_signature(head) or _by_structure(head, size) or _by_text(head)


def _by_signature(head: bytes) -> FileFormat | None:
    for start, form in _BEGINS:
        if head.startswith(start):
            return form
    for place, content, form in _PLACED:
        if head.startswith(content, place):
            return form
    return None


def _by_structure(head: bytes, size: int) -> FileFormat | None:
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip(head)
    if is_safetensors(head, size):
        return SAFETENSORS
    found = None
    if _BZIP2.match(head):
        found = FileFormat("a bzip2 file", f"{_UNPACK}: bunzip2, or tar xjf for a .tar.bz2")
    elif head.startswith(b"BM") and size == int.from_bytes(head[2:6], "little"):
        found = FileFormat("a BMP image")
    elif _PICKLE.match(head[:64]):
        found = FileFormat("a pickle of Python")
    elif _DARKNET.match(head) and size > _HEADER_OF_DARKNET:
        found = FileFormat("weights of Darknet")
    elif head and not head.strip(b"\0"):
        found = FileFormat("nothing but zeros", "it was never written: fetch or write it again")
    return found


def is_safetensors(head: bytes, size: int) -> bool:
    """Return whether a file is in the format safetensors, in which a header of JSON follows its length in 8 bytes."""
    return head[8:10] in (b'{"', b"{}") and 2 <= int.from_bytes(head[:8], "little") <= size - 8


def _zip(head: bytes) -> FileFormat:
    """Return the format of a zip archive by the names of its members, which are not compressed."""
    first = head[30 : 30 + int.from_bytes(head[26:28], "little")]
    if b"/data.pkl" in head or first.endswith((b"/archive_format", b"/byteorder", b"/.format_version")):
        return TORCH_ZIP
    if first.endswith(b".npy"):
        return FileFormat("arrays of numpy (.npz)")
    if first.endswith((b"metadata.json", b"config.json", b".weights.h5")):
        return FileFormat("a model of Keras (.keras)")
    return FileFormat("a zip archive", f"{_UNPACK}: unzip")


def _by_text(head: bytes) -> FileFormat | None:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _HTML.match(text):
        return FileFormat("an HTML page", _DOWNLOAD)
    if _XML.match(text):
        return FileFormat("an XML file", "if it was to be something else, " + _DOWNLOAD)
    if _JSON.match(text) and not _CONTROL.search(text):
        return JSON
    return None
