"""The other side of ``scripts/bench data``: torch's DataLoader, Pillow, and what anyone would write around them."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path

import lmdb
import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bpt.config.proto import bpt_pb2 as pb

Sizes = tuple[int, int, float]  # resized to, crop, mean


class Images(Dataset[tuple[Tensor, int]]):
    """The images of a list of files, or of an LMDB of encoded Datums; those of files are resized."""

    def __init__(self, kind: str, folder: Path, sizes: Sizes) -> None:
        self.resized, self.crop, self.mean = sizes
        lines = (folder / "list.txt").read_text().splitlines()
        self.entries = [line.rsplit(" ", 1) for line in lines]
        self.folder = str(folder / "lmdb") if kind == "Data" else ""
        self.transaction: lmdb.Transaction | None = None

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        name, label = self.entries[index]
        if self.folder:
            image = Image.open(io.BytesIO(self.record(index).data)).convert("RGB")
        else:
            image = Image.open(name).convert("RGB").resize((self.resized, self.resized), Image.Resampling.BILINEAR)
        left, top = (random.randint(0, length - self.crop) for length in image.size)
        image = image.crop((left, top, left + self.crop, top + self.crop))
        if random.getrandbits(1):
            image = ImageOps.mirror(image)
        pixels = torch.from_numpy(np.asarray(image, np.float32)).permute(2, 0, 1)
        return pixels.sub(self.mean), int(label)

    def record(self, index: int) -> pb.Datum:
        if self.transaction is None:  # each process opens the LMDB for itself
            self.transaction = lmdb.open(self.folder, readonly=True, lock=False).begin()
        return pb.Datum.FromString(bytes(self.transaction.get(f"{index:08d}".encode(), b"")))


def loader(kind: str, folder: Path, batch: int, workers: int, sizes: Sizes) -> Callable[[int], object]:
    """What reads so many batches by a DataLoader with ``workers`` processes, which wait between two calls."""
    data: DataLoader[tuple[Tensor, int]] = DataLoader(
        Images(kind, folder, sizes), batch, num_workers=workers, drop_last=True,
        persistent_workers=workers > 0, multiprocessing_context="fork" if workers else None,
    )  # fmt: skip

    def read(batches: int) -> None:
        got = sum(1 for _ in data)
        assert got == batches, (got, batches)

    return read
