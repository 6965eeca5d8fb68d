"""Files of other formats, which readers refuse by the name of their format."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile

import numpy as np
import torch


def _archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("deploy.prototxt", "name: 'a'")
    return out.getvalue()


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("net.caffemodel"))
    return out.getvalue()


def _torch(zipped: bool) -> bytes:
    out = io.BytesIO()
    torch.save({"w": torch.zeros(3)}, out, _use_new_zipfile_serialization=zipped)
    return out.getvalue()


def _npz() -> bytes:
    out = io.BytesIO()
    np.savez(out, a=np.zeros(3))
    return out.getvalue()


def _npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.zeros(3))
    return out.getvalue()


SAFETENSORS_HEADER = json.dumps({"ip/0": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()


OTHERS: dict[str, tuple[bytes, str]] = {
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1000\n", "Git LFS pointer"),
    "annex": (b"/annex/objects/SHA256E-s12--00.caffemodel\n", "git-annex pointer"),
    "html": (b"<!DOCTYPE html><html><head><title>Quota exceeded</title></head></html>", "HTML page"),
    "html after a comment": (b"\n<!-- a -->\n<HTML lang=en>", "HTML page"),
    "xml": (b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>', "XML file"),
    "gzip": (gzip.compress(b"x" * 99), "gzip file"),
    "bzip2": (bz2.compress(b"x" * 99), "bzip2 file"),
    "xz": (lzma.compress(b"x" * 99), "xz file"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00\x01\x00\x00", "zstd file"),
    "7z": (b"7z\xbc\xaf\x27\x1c\x00\x04", "7z archive"),
    "rar": (b"Rar!\x1a\x07\x01\x00", "RAR archive"),
    "zip": (_archive(), "zip archive"),
    "tar": (_tar(), "tar archive"),
    "onnx, its start": (b"\x08\x07\x12\x07pytorch", "ONNX model"),
    "onnx": (b"\x08\x08\x12\x04mine\x1a\x011:\x04\x0a\x02ab\x42\x04\x0a\x00\x10\x11", "ONNX model"),
    "torch": (_torch(True), "torch"),
    "torch, old": (_torch(False), "torch"),
    "pickle": (pickle.dumps({"a": 1}), "pickle"),
    "npy": (_npy(), "numpy"),
    "npz": (_npz(), "numpy"),
    "safetensors": (len(SAFETENSORS_HEADER).to_bytes(8, "little") + SAFETENSORS_HEADER + bytes(4), "safetensors"),
    "json": (b'{"format": "layers-model"}', "JSON"),
    "png": (b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", "PNG image"),
    "jpeg": (b"\xff\xd8\xff\xe0\x00\x10JFIF", "JPEG image"),
    "pdf": (b"%PDF-1.4\n", "PDF"),
    "tflite": (b"\x1c\0\0\0TFL3\0\0", "TensorFlow Lite"),
    "darknet": (b"\0\0\0\0\2\0\0\0\5\0\0\0" + bytes(20), "Darknet"),
    "zeros": (bytes(1000), "zeros"),
}
