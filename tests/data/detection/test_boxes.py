from __future__ import annotations

import math

import pytest
import torch

from bpt.data.detection.boxes import BoxCode, areas, coverage, decode, encode, jaccard

UNIT = torch.tensor([[0.0, 0, 1, 1]])
RIGHT_HALF = torch.tensor([[0.5, 0, 1, 1]])
BESIDE = torch.tensor([[1.0, 0, 2, 1]])
TURNED = torch.tensor([[0.6, 0.6, 0.2, 0.9]])


def test_overlaps_by_hand() -> None:
    quarter = torch.tensor([[0.25, 0.0, 0.75, 1.0]])
    others = torch.cat((UNIT, RIGHT_HALF, BESIDE, TURNED))
    assert areas(others).tolist() == [1, 0.5, 1, 0]
    # Of the box in the middle one half lies in the right half of the image; both together cover three quarters.
    torch.testing.assert_close(jaccard(quarter, others), torch.tensor([[0.5, 0.25 / 0.75, 0, 0]]))
    torch.testing.assert_close(coverage(quarter, others), torch.tensor([[1, 0.5, 0, 0]]))
    torch.testing.assert_close(coverage(others, quarter)[:, 0], torch.tensor([0.5, 0.5, 0, 0]))


def test_codes_by_hand() -> None:
    prior, box = torch.tensor([0.25, 0.25, 0.75, 0.5]), torch.tensor([0.5, 0.25, 1.0, 0.75])
    # Centres (0.5, 0.375) and (0.75, 0.5), sizes (0.5, 0.25) and (0.5, 0.5).
    wanted = {
        BoxCode.CORNER: [0.25, 0, 0.25, 0.25],
        BoxCode.CORNER_SIZE: [0.5, 0, 0.5, 1],
        BoxCode.CENTER_SIZE: [0.5, 0.5, 0, math.log(2)],
    }
    variances = torch.tensor([0.1, 0.1, 0.2, 0.2])
    for code, offsets in wanted.items():
        torch.testing.assert_close(encode(code, box, prior, None), torch.tensor(offsets))
        torch.testing.assert_close(encode(code, box, prior, variances), torch.tensor(offsets) / variances)


@pytest.mark.parametrize("code", BoxCode)
def test_decode_undoes_encode(code: BoxCode) -> None:
    generator = torch.Generator().manual_seed(1)
    corner, size = torch.rand(2, 5, 4, generator=generator).split(2, 2)
    boxes, priors = torch.cat((corner, corner + size + 0.1), 2)
    variances = torch.rand(5, 4, generator=generator) + 0.1
    for given in (None, variances):
        torch.testing.assert_close(decode(code, encode(code, boxes, priors, given), priors, given), boxes)
