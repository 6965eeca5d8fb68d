"""MultiBoxLoss: how far off boxes and scores are, against the objects of the images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from bpt.base.errors import DataError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.detection.boxes import BoxCode, decode, encode
from bpt.data.detection.matching import NOTHING, hardest, match
from bpt.data.detection.suppression import ALL, Suppression
from bpt.data.detection.truth import ROW, Objects, objects_by_image
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.detection_output import check_predictions
from bpt.nn.layers.loss import Loss, clip_forward
from bpt.nn.pass_context import PassContext

FIELD = "multibox_loss_param"
P = pb.MultiBoxLossParameter
LEAST = math.log(torch.finfo(torch.float32).tiny)  # of the logarithm of a probability, as in Caffe


class _Priors(NamedTuple):
    boxes: Tensor  # (priors, 4)
    variances: Tensor  # (priors, 4)


class _Positives(NamedTuple):
    """Which predicted box is to be which object: each of four (number,)."""

    images: Tensor
    classes: Tensor  # whose boxes they are; 0 if all classes share them
    priors: Tensor
    objects: Tensor  # places among those of the batch


@LAYERS.register("MultiBoxLoss")
class MultiBoxLoss(Loss):
    """``(loc_weight · Σ loc loss + Σ conf loss) / normalizer``, by default the number of matches (``VALID``).

    Bottoms: offsets ``(N, priors · 4)``, or ``(N, priors · classes · 4)`` without ``share_location``; scores ``(N,
    priors · num_classes)``; prior boxes and variances ``(1, 2, priors · 4)``; objects ``(1, 1, objects, 8)`` as
    AnnotatedData makes them. The latter two get no diff.

    Each object is matched with the prior box (without ``use_prior_for_matching``: the predicted one) that it overlaps
    most, and under ``match_type: PER_PREDICTION`` each other box with the object that it overlaps by
    ``overlap_threshold``. What is matched should tell that object, by ``code_type``, under ``loc_loss_type``; its
    scores should tell the object's label, under ``conf_loss_type``, and those of others the background. Of these only
    the hardest count: under ``mining_type: MAX_NEGATIVE`` it is ``neg_pos_ratio`` for each match of an image, among
    those that overlap no object by ``neg_overlap``; under HARD_EXAMPLE the hardest ``sample_size`` boxes of an image,
    matched or not; under NONE all.

    Of SSD's Caffe (Liu et al., *SSD: Single Shot MultiBox Detector*, 2016, eq. 1 to 3).

    Raises:
        DataError: in ``forward``, for an object whose label is no class or the background.
    """

    arity = Arity(bottoms=(4, 4), auto_tops=True)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.multibox_loss_param
        self.param = param
        self.shared, self.classes = param.share_location, param.num_classes
        self.boxes_of = 1 if self.shared else self.classes  # classes that have boxes of their own
        self.background, self.ratio = param.background_label_id, param.neg_pos_ratio
        self.threshold = param.overlap_threshold if param.match_type == P.PER_PREDICTION else None
        self.mining = _mining(param)
        self.code = BoxCode[pb.PriorBoxParameter.CodeType.Name(param.code_type)]
        self.counts_loc, self.counts_conf = (*spec.param.propagate_down, True, True)[:2]

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.multibox_loss_param
        check_predictions(spec, bottoms, FIELD, param.num_classes, param.share_location)
        if bottoms[3][-1:] != (ROW,):
            raise spec.error(f"needs objects (1, 1, objects, {ROW}): {show_bottoms(spec, bottoms)}", "bottom", 3)
        if not param.overlap_threshold > 0:
            raise spec.error("overlap_threshold must be above 0", FIELD, "overlap_threshold")
        if param.HasField("do_neg_mining") and param.do_neg_mining != (_mining(param) != P.NONE):
            raise spec.error(
                "do_neg_mining contradicts mining_type; leave out the former, which is old", FIELD, "do_neg_mining"
            )
        mining = _mining(param)
        if mining != P.NONE and not param.share_location:
            raise spec.error(
                "mining_type: NONE is the only one without share_location, as in SSD's Caffe", FIELD, "mining_type"
            )
        if mining == P.HARD_EXAMPLE and param.sample_size < 1:
            raise spec.error("sample_size must be at least 1", FIELD, "sample_size")
        return LayerShapes(((),))

    @classmethod
    def allow_force_backward(cls, bottom: int) -> bool:
        return bottom not in (2, 3)

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        param = spec.param.multibox_loss_param
        if param.conf_loss_type == P.LOGISTIC and _mining(param) == P.NONE:
            return "LOGISTIC with mining_type: NONE tells labels to other images' boxes, as in SSD's Caffe"
        # The priors are those of all samples, and objects name their image.
        return super().mixes_samples(spec, [bottoms[0], bottoms[1], bottoms[0], bottoms[0]])

    @classmethod
    def counts_by_data(cls, spec: LayerSpec) -> str:
        by_matches = cls(spec, PassContext()).normalization == pb.LossParameter.VALID
        return "it divides by the number of matches" if by_matches else ""

    def forward(self, *bottoms: Tensor) -> Tensor:
        images = bottoms[0].shape[0]
        priors = _Priors(*bottoms[2][0].detach().reshape(2, -1, 4))
        offsets = bottoms[0].reshape(images, len(priors.boxes), self.boxes_of, 4)
        scores = bottoms[1].reshape(images, len(priors.boxes), self.classes)
        objects = objects_by_image(bottoms[3].detach(), images, self.param.use_difficult_gt)
        matches, overlaps = self._match(offsets.detach(), priors, objects)
        labels = self._labels(bottoms[3], objects, matches)
        with torch.no_grad():
            matches, negatives = self._mine(offsets, scores, priors, objects, matches, overlaps, labels)
        positives = _positives(matches, objects)
        loss = scores.new_zeros(())
        if self.counts_loc:
            loss = loss + self.param.loc_weight * self._loc_losses(offsets, priors, objects, positives).sum()
        if self.counts_conf:
            loss = loss + self._conf_loss(scores, labels, (matches >= 0).any(1), negatives)
        return loss / self.normalizer(images, images * len(priors.boxes), (matches >= 0).sum())

    def _match(self, offsets: Tensor, priors: _Priors, objects: Sequence[Objects]) -> tuple[Tensor, Tensor]:
        """The object of each box, by its number in its image, and the overlap with it: two (N, classes, priors)."""
        shape = (len(objects), self.boxes_of, len(priors.boxes))
        matches = torch.full(shape, NOTHING, device=offsets.device)
        overlaps = priors.boxes.new_zeros(shape)
        inside_only = self.param.ignore_cross_boundary_bbox
        for image, (labels, boxes, _) in enumerate(objects):
            if not len(labels):
                continue
            if self.param.use_prior_for_matching:
                found = match(priors.boxes, boxes, self.threshold, inside_only)
                for own in range(self.boxes_of):
                    matches[image, own], overlaps[image, own] = found
                    if not self.shared:
                        others = (found.objects >= 0) & (labels[found.objects] != own)
                        matches[image, own, others] = NOTHING
                continue
            for own in range(self.boxes_of):
                mine = (torch.ones_like(labels) if self.shared else labels == own).nonzero()[:, 0]
                found = match(self._decoded(offsets[image, :, own], priors), boxes[mine], self.threshold, inside_only)
                numbers = torch.where(found.objects >= 0, _numbered(mine, found.objects), found.objects)
                matches[image, own], overlaps[image, own] = numbers, found.overlaps
        return matches, overlaps

    def _decoded(self, offsets: Tensor, priors: _Priors) -> Tensor:
        in_target = self.param.encode_variance_in_target
        return decode(self.code, offsets, priors.boxes, None if in_target else priors.variances)

    def _labels(self, rows: Tensor, objects: Sequence[Objects], matches: Tensor) -> Tensor:
        """Return the class that each box's scores should tell: (images, priors)."""
        labels = torch.full((len(objects), matches.shape[2]), self.background, device=matches.device)
        for image, (own, _, _) in enumerate(objects):
            told = torch.full_like(own, self.background + 1) if self.param.map_object_to_agnostic else own
            for found in matches[image]:
                labels[image] = torch.where(found >= 0, _numbered(told, found), labels[image])
            wrong = (own < 0) | (told >= self.classes) | (own == self.background)
            if wrong.any():
                label, name = int(own[wrong][0]), self.spec.bottom_names[3]
                reason = "the background's" if label == self.background else f"outside [0, {self.classes})"
                raise DataError(
                    f'layer "{self.spec.name}": an object of image {image} of the batch has the label {label} in '
                    f'"{name}", which is {reason}; mend the data set, or set num_classes and background_label_id by it'
                )
        return labels

    def _mine(
        self,
        offsets: Tensor,
        scores: Tensor,
        priors: _Priors,
        objects: Sequence[Objects],
        matches: Tensor,
        overlaps: Tensor,
        labels: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the matches that count, and which other boxes: a mask (images, priors), ``None``: all."""
        if self.mining == P.NONE:
            return matches, None
        losses = self._losses_by_box(scores, labels)
        own = matches[:, 0]
        if self.mining == P.MAX_NEGATIVE:
            eligible = (own == NOTHING) & (overlaps[:, 0] < self.param.neg_overlap)
            counts = ((own >= 0).sum(1) * self.ratio).long()
        else:
            eligible = torch.ones_like(own, dtype=torch.bool)
            counts = torch.full((len(own),), self.param.sample_size, device=own.device)
            pairs = _positives(matches, objects)
            losses[pairs.images, pairs.priors] += self._loc_losses(offsets, priors, objects, pairs)
        eligible = self._apart(offsets, priors, losses, eligible)
        chosen = hardest(losses, eligible, counts)
        negatives = chosen & (own == NOTHING)
        if self.mining == P.HARD_EXAMPLE:
            matches = torch.where(chosen[:, None] | (matches < 0), matches, NOTHING)
        return matches, negatives

    def _apart(self, offsets: Tensor, priors: _Priors, losses: Tensor, eligible: Tensor) -> Tensor:
        """Of the ``eligible`` boxes those that ``nms_param`` leaves, if the text has one."""
        nms = self.param.nms_param
        if not self.param.HasField("nms_param") or not nms.nms_threshold > 0:
            return eligible
        suppression = Suppression(nms.nms_threshold, nms.top_k if nms.HasField("top_k") else ALL)
        left = torch.zeros_like(eligible)
        for image, mask in enumerate(eligible):
            boxes = priors.boxes if self.param.use_prior_for_nms else self._decoded(offsets[image, :, 0], priors)
            best = suppression.best(torch.where(mask, losses[image], -torch.inf))
            left[image, best[suppression.select(boxes[best])]] = True
        return left

    def _loc_losses(self, offsets: Tensor, priors: _Priors, objects: Sequence[Objects], pairs: _Positives) -> Tensor:
        """Of each of the ``pairs``: (number,)."""
        predicted = offsets[pairs.images, pairs.priors, pairs.classes]
        boxes, variances = priors.boxes[pairs.priors], priors.variances[pairs.priors]
        wanted = torch.cat([own.boxes for own in objects])[pairs.objects] if objects else boxes
        in_target = self.param.encode_variance_in_target
        target = encode(self.code, wanted, boxes, None if in_target else variances)
        if self.param.bp_inside:
            own = boxes
            if not self.param.use_prior_for_matching:
                own = decode(self.code, predicted.detach(), boxes, None if in_target else variances)
            predicted = torch.where((own < 0) | (own > 1), target, predicted)
        if in_target:
            predicted, target = predicted / variances, target / variances
        if self.param.loc_loss_type == P.L2:
            return (predicted - target).square().sum(1) / 2
        return functional.smooth_l1_loss(predicted, target, reduction="none").sum(1)

    def _conf_loss(self, scores: Tensor, labels: Tensor, matched: Tensor, negatives: Tensor | None) -> Tensor:
        if negatives is not None:
            chosen = matched | negatives
            return self._losses_by_box(scores[chosen], labels[chosen]).sum()
        if self.param.conf_loss_type == P.SOFTMAX:
            return self._losses_by_box(scores, labels).sum()
        # As in SSD's Caffe, which tells nobody to be background here, and looks for the scores of image i as if it were
        # i · priors numbers behind the first one, not i · priors · classes.
        images, priors = matched.nonzero(as_tuple=True)
        wanted = torch.zeros_like(scores)
        wanted.view(-1)[images * scores.shape[1] + priors * self.classes + labels[images, priors]] = 1
        return functional.binary_cross_entropy_with_logits(scores, wanted, reduction="sum")

    def _losses_by_box(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return how far ``scores`` (…, classes) are from telling ``labels`` (…): (…)."""
        if self.param.conf_loss_type == P.SOFTMAX:
            log_p = functional.log_softmax(scores, -1).gather(-1, labels[..., None])[..., 0]
            return -clip_forward(log_p, LEAST)
        wanted = functional.one_hot(labels, self.classes).to(scores.dtype)
        return functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none").sum(-1)


def _mining(param: pb.MultiBoxLossParameter) -> int:
    if param.HasField("do_neg_mining") and not param.HasField("mining_type"):
        return P.MAX_NEGATIVE if param.do_neg_mining else P.NONE
    return param.mining_type


def _numbered(values: Tensor, numbers: Tensor) -> Tensor:
    """``values`` at ``numbers``; anything where these are below 0."""
    return values[numbers.clamp(min=0)] if len(values) else numbers


def _positives(matches: Tensor, objects: Sequence[Objects]) -> _Positives:
    images, classes, priors = (matches >= 0).nonzero(as_tuple=True)
    first = torch.tensor([len(own.labels) for own in objects], device=matches.device).cumsum(0).roll(1)
    if len(first):
        first[0] = 0
    return _Positives(images, classes, priors, matches[images, classes, priors] + first[images])
