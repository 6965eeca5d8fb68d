"""What Caffe's forks added: annotations, label maps and records of objects, lists of clips and of labelled pixels, and
weights and nets in the forks' own numbers; and safetensors."""

from __future__ import annotations

import random
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bpt.apps.convert.layer_arrays import read_weights
from bpt.apps.pictures.class_names import class_names
from bpt.base.errors import UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.blobs import array_to_raw_blob, blob_to_array
from bpt.config.proto.dialects import read_net
from bpt.config.proto.rewrite import rewrite_net_binary
from bpt.config.proto.text import parse_text
from bpt.data.annoset import Annotations, convert_annoset
from bpt.data.annotated import AnnotatedSample, decode_annotated, encode_annotated
from bpt.data.annotated_transform import AnnotatedTransform
from bpt.data.annotation_files import KINDS, read_labels, read_objects
from bpt.data.clip_source import ClipSource
from bpt.data.imageset import ImageConversion
from bpt.data.labelled_pixels import LabelledSource, LabelsOf
from bpt.data.video_frames import FrameFolder
from tests.fuzz import seeds
from tests.fuzz.engine import Target
from tests.fuzz.messages import Changer
from tests.fuzz.mutations import ODD_TEXTS, mutate_bytes, mutate_text
from tests.fuzz.targets.binary import Weights
from tests.support.annotation_files import JSON, MAP, TEXT, XML
from tests.support.dialect_messages import layer, message

_NOTES = (XML.encode(), JSON.encode(), TEXT.encode())


_NOTE_WORDS = (
    "<object>", "</object>", "<bndbox>", "</bndbox>", "<size>", "<width>40</width>", "<height>0</height>", "cat", "18",
    "<name>", "<difficult>1</difficult>", "<!DOCTYPE a [<!ENTITY b 'c'>]>", "&b;", "&#0;", '"annotation"', '"bbox"',
    '"image"', "null", "true", "[", "]", "{", "}", "NaN", "Infinity", "\n", " ",
)  # fmt: skip


_LIST_WORDS = ("im0.png", "im1.png", "notes.xml", "video", "1", "2", "\n", "\r", "\x0b", "\x85", "\0", "..")


_SAMPLER = """
transform_param {
  distort_param { brightness_prob: 1 brightness_delta: 32 contrast_prob: 1 contrast_lower: 0.5 contrast_upper: 1.5 }
  expand_param { prob: 1 max_expand_ratio: 1.5 }
  resize_param { prob: 1 height: 6 width: 5 interp_mode: LINEAR }
  emit_constraint { emit_type: CENTER }
}
annotated_data_param { batch_sampler { max_sample: 1 max_trials: 5
  sampler { min_scale: 0.3 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 }
  sample_constraint { min_jaccard_overlap: 0.1 } } }
"""


class AnnotationFiles(Target):
    """Annotations of objects, read as each kind that there is."""

    name = "annotation"
    short = 60
    suffix = ".xml"

    def case(self, rng: random.Random) -> bytes:
        return mutate_text(rng, _NOTES, _NOTE_WORDS)

    def run(self, case: bytes) -> None:
        path = self.file(case)
        refused: UserError | None = None
        for kind in KINDS:
            try:
                read_objects(path, kind, {"cat": 7, "18": 3}, (20, 40))
                return
            except UserError as error:
                refused = error
        assert refused
        raise refused


class AnnotatedLists(Target):
    """Lists of images and annotations, made an LMDB."""

    name = "annoset"
    short = 40
    suffix = ".txt"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        images = seeds.copy_data(folder) / "images"
        self._root = f"{images}/"
        images.joinpath("notes.xml").write_text(XML)
        images.joinpath("an im.xml").write_text("<annotation></annotation>")
        folder.joinpath("map.prototxt").write_text(MAP)

    def case(self, rng: random.Random) -> bytes:
        return mutate_text(rng, (b"im0.png notes.xml\nim1.png an im.xml\n", b"im1.png notes.xml\n"), _LIST_WORDS)

    def run(self, case: bytes) -> None:
        target = self.folder / "lmdb"
        shutil.rmtree(target, ignore_errors=True)
        convert_annoset(
            self._root, self.file(case), str(target), ImageConversion(), Annotations(label_map="map.prototxt")
        )


class LabelMaps(Target):
    """Label maps of ``bpt convert annoset`` and, with classes for names, of ``bpt detect``."""

    name = "label-map"
    short = 60
    suffix = ".prototxt"

    def case(self, rng: random.Random) -> bytes:
        return mutate_text(rng, (MAP.encode(),), ("item", "name", "label", "display_name", "{", "}", ":", '"cat"'))

    def run(self, case: bytes) -> None:
        path = self.file(case)
        read_labels(path, check=bool(len(case) % 2))
        class_names(path, 8)


class AnnotatedRecords(Target):
    """AnnotatedDatum records, sampled, expanded, distorted and resized as an AnnotatedData layer does it."""

    name = "annotated-datum"
    short = 60
    suffix = ".datum"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        param = parse_text(_SAMPLER, pb.LayerParameter).message
        samplers = param.annotated_data_param.batch_sampler
        self._transform = AnnotatedTransform(param.transform_param, pb.TRAIN, samplers)
        self._changer = Changer(lambda rng, field: rng.choice(ODD_TEXTS))

    def case(self, rng: random.Random) -> bytes:
        if rng.random() < 0.5:
            return mutate_bytes(rng, _records())
        datum = pb.AnnotatedDatum.FromString(rng.choice(_records()))
        self._changer.change(rng, datum, rng.choice((1, 2, 4)))
        return datum.SerializeToString()

    def run(self, case: bytes) -> None:
        sample = AnnotatedSample("key", *decode_annotated(case, 3))
        for epoch in range(3):
            made, objects = self._transform.prepared(sample, epoch, 0)
            assert made.image.shape == (3, 6, 5) and objects.shape[1:] == (7,)


@cache
def _records() -> tuple[bytes, ...]:
    image = np.random.default_rng(0).integers(0, 256, (3, 8, 9), dtype=np.uint8)
    objects = np.array([[7, 0, 0.1, 0.25, 0.5, 0.5, 1], [3, 0, 0, 0, 1, 1, 0], [7, 1, 0.6, 0.6, 0.9, 0.8, 0]])
    return tuple(encode_annotated(image, objects[:rows].astype(np.float32)).SerializeToString() for rows in range(4))


class ClipLists(Target):
    """VideoData's lists, and the first clips of them."""

    name = "clip-list"
    short = 60
    suffix = ".txt"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for name in ("video", "a video"):
            (folder / name).mkdir()
            for frame in range(1, 5):
                Image.new("RGB", (6, 5), (frame, 0, 0)).save(folder / name / f"{frame:06d}.jpg")

    def case(self, rng: random.Random) -> bytes:
        return mutate_text(rng, (b"video 1 5\na video/ 2 6\n\nvideo 3 7\n", b"video 3 7\n"), _LIST_WORDS)

    def run(self, case: bytes) -> None:
        source = ClipSource(self.file(case), FrameFolder(), frames=2, size=(3, 4))
        for index in range(min(2, len(source))):
            assert source.read(index).image.shape == (6, 3, 4)


class PixelLists(Target):
    """Lists of DenseImageData, ImageSegData and ImageLabelmapData, as each kind of labels, and the first images."""

    name = "pixel-list"
    short = 60
    suffix = ".txt"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._root = f"{seeds.copy_data(folder) / 'images'}/"

    def case(self, rng: random.Random) -> bytes:
        return mutate_text(rng, (b"im0.png im1.png\nim2.png im0.png\n", b"im1.png 7\n", b"im3.png\n"), _LIST_WORDS)

    def run(self, case: bytes) -> None:
        path = self.file(case)
        kind = list(LabelsOf)[len(case) % len(LabelsOf)]
        source = LabelledSource(path, kind, root_folder=self._root, size=(5, 6))
        assert source.read(0).labels.shape == (1, 5, 6)


class RawWeights(Weights):
    """Weights of NVIDIA's Caffe, whose numbers stand in ``raw_data``."""

    name = "raw-caffemodel"
    short = 60

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._seeds = [_raw(seeds.files("snapshots/Adam/*.caffemodel")[0], kind) for kind in (pb.FLOAT, pb.FLOAT16)]


def _raw(net: bytes, number: int) -> bytes:
    weights = pb.NetParameter.FromString(net)
    for each in weights.layer:
        for blob in each.blobs:
            blob.CopyFrom(array_to_raw_blob(blob_to_array(blob), number))
    return weights.SerializeToString()


class ForksNets(Target):
    """Binary nets in NVIDIA's and Intel's numbers, told apart, and written in today's."""

    name = "dialect"
    short = 60
    suffix = ".caffemodel"

    def case(self, rng: random.Random) -> bytes:
        return mutate_bytes(rng, _FORKS_NETS)

    def run(self, case: bytes) -> None:
        path = self.file(case)
        read_net(path)
        rewrite_net_binary(path, self.folder / "new.caffemodel")


_FORKS_NETS = (
    message((1, "net"), (12, 1), layer("ReLU", (145, 2), (149, 1)), layer("Data", (107, message((11, 2), (14, 1))))),
    message(layer("BatchNorm", (139, message((6, message((2, 1.0))), (7, 1), (15, 2))))),
    message(layer("BatchNorm", (139, message((5, 1), (6, 0), (7, message((2, 3.0))), (10, 1))))),
    message(layer("Pooling", (121, message((1, 1), (2, 1), (3, 3), (4, 2), (13, 0)))), layer("ROIPooling", (154, b""))),
    message(layer("SoftmaxWithLoss", (149, "CAFFE"), (101, message((3, 3), (4, 2.0)))), layer("BN", (45, b"\x18\x01"))),
    # MobileNet-YOLO's
    message(
        layer("AnnotatedData", (100, message((8, message((3, 300))), (8, message((3, 416)))))),
        layer("ReLU6", (211, message((1, 0.5)))),
        layer("Yolov3", (603, message((1, 13)))),
    ),
    message(layer("CropCenter", (149, message((1, 2)))), layer("Deconvolution", (106, message((1, 2))))),  # waifu2x's
    # R-FCN's
    message(
        layer("PSROIPooling", (10001, message((1, 0.0625), (2, 21), (3, 7)))),
        layer("Dropout", (108, message((2, 0)))),
        layer("SoftmaxWithLoss", (101, message((3, 3), (4, 128.0)))),
    ),
    # NVIDIA's, with a number that is Intel's, too; and Intel's
    message(layer("Convolution", (145, 2), (106, message((19, 1)))), layer("Dropout", (108, message((2, 2), (3, 7))))),
    message((9, "MKLDNN"), layer("Convolution", (106, message((19, 1), (21, "direct"))), (4, "t")), (101, b"")),
    message(layer("PriorBox", (203, message((1, 8.0)))), layer("TripletLoss", (203, message((1, 8.0)))), (11, 1)),
)


class Safetensors(Target):
    """Weights in safetensors."""

    name = "safetensors"
    short = 60
    suffix = ".safetensors"

    def case(self, rng: random.Random) -> bytes:
        return mutate_bytes(rng, (_tensors(np.float32), _tensors(np.float16)))

    def run(self, case: bytes) -> None:
        read_weights(self.file(case))


@cache
def _tensors(kind: type[np.floating]) -> bytes:
    library = pytest.importorskip("safetensors.numpy")
    content: bytes = library.save({"ip/0": np.ones((2, 3), kind), "ip/1": np.ones(2, kind), "a/b/0": np.ones((), kind)})
    return content


TARGETS = (
    AnnotationFiles, AnnotatedLists, LabelMaps, AnnotatedRecords, ClipLists, PixelLists, RawWeights, ForksNets,
    Safetensors,
)  # fmt: skip
