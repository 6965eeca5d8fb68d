"""``preprocess`` and ``classify``, bpt's own methods: image files for a Net, prepared as its training images were."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from bpt.apps.arguments import Path, checked_count, checked_path
from bpt.apps.classify.classification import Classification, PictureClassifier
from bpt.apps.pictures.image_input import Images
from bpt.apps.pictures.named_pictures import pictures
from bpt.apps.pictures.picture_net import BATCH
from bpt.apps.pictures.prepared import prepare_files
from bpt.caffe.core.operator import BlobOperator
from bpt.config.plan.nets import NetPlan
from bpt.nn import net as core
from bpt.nn.pass_context import PassContext


class ImageNet(Protocol):
    """The part of a Net that image files need."""

    _plan: NetPlan
    _operator: BlobOperator

    @property
    def _weights(self) -> list[str]: ...
    @property
    def _core(self) -> core.Net: ...
    def _in_use(self, new_parameters: bool = False) -> AbstractContextManager[None]: ...


def preprocess(net: ImageNet, *images: Path, preprocessing: Path = "") -> Images:
    """Return image files as an array for the net's input, prepared as ``bpt classify`` prepares them.

    The preprocessing is that of the data layer in the net's text. A text without a data layer takes it from
    ``<snapshot_prefix>_preprocessing.prototxt`` beside the weights that were loaded last::

        net.forward(data=net.preprocess("cat.jpg"))

    Args:
        images: image files, folders of them, and lists (.txt).
        preprocessing: a preprocessing record, which takes precedence over the text.

    Returns:
        (N, channels, height, width), float32.

    Raises:
        UserError: no preprocessing is found, or it does not fit the net.
        DataError: a file is missing or is not an image; the message names it.
    """
    files = [checked_path(each, "an image") for each in images]
    return prepare_files(net._plan, net._weights, files, checked_path(preprocessing, "preprocessing"))


def classify(
    net: ImageNet, *images: Path, top: int = 5, labels: Path = "", preprocessing: Path = ""
) -> list[Classification]:
    """Return the classes with the highest scores for each image, as ``bpt classify`` does.

    An example::

        [answer] = net.classify("cat.jpg", labels="names.txt")
        print(answer.best[0].name, answer.best[0].value)

    A second net in the phase TEST, with the current parameters of this one, classifies the images. The blobs of this
    net do not change.

    Args:
        images: image files, folders of them, and lists (.txt).
        top: number of classes to return for each image.
        labels: a text with the names of the classes, one a line, from class 0 on; or an SSD label map (.prototxt).
        preprocessing: as in ``preprocess``.

    Raises:
        UserError: no preprocessing is found, it does not fit the net, or the net has no class scores.
        DataError: a file is missing or is not an image; the message names it.
    """
    asked = pictures([checked_path(each, "an image") for each in images])
    with net._in_use():
        classifier = PictureClassifier.of(
            net._plan,
            net._weights,
            net._operator.device,
            min(len(asked), BATCH),
            labels=checked_path(labels, "labels"),
            preprocessing=checked_path(preprocessing, "preprocessing"),
            shared=net._core.values_by_name(),
            context=PassContext(precision=net._core.context.precision),
        )
        return list(classifier.answers(asked, min(checked_count(top, "classify: top"), classifier.net.classes)))
