from __future__ import annotations

import pytest
import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.one_layer import one_layer


def test_exp_by_hand() -> None:
    x = torch.tensor([-1.0, 0, 3], dtype=torch.float64)
    eight = one_layer('type: "Exp" exp_param { base: 2 scale: 2 shift: 1 }', (3,))(x)
    torch.testing.assert_close(eight, torch.tensor([0.5, 2, 128], dtype=torch.float64))
    torch.testing.assert_close(one_layer('type: "Exp"', (3,))(x), x.exp())


def test_log_by_hand() -> None:
    x = torch.tensor([0.0, 1.5, 31.5])
    torch.testing.assert_close(
        one_layer('type: "Log" log_param { base: 2 scale: 2 shift: 1 }', (3,))(x), torch.tensor([0.0, 2, 6])
    )
    torch.testing.assert_close(one_layer('type: "Log"', (3,))(x), torch.tensor([-torch.inf, 0.4054651, 3.4499876]))


def test_a_large_shift_is_no_overflow() -> None:
    x = torch.tensor([-400.0, 0])
    assert one_layer('type: "Exp" exp_param { base: 10 shift: 400 }', (2,))(x).tolist() == [1, torch.inf]


@pytest.mark.parametrize("settings", ["", "scale: 2", "shift: 3", "scale: 2 shift: 3 base: 2"])
def test_the_bottom_is_left_alone(settings: str) -> None:
    x = torch.tensor([1.0, 2.0])
    one_layer(f'type: "Exp" exp_param {{ {settings} }}', (2,))(x)
    one_layer(f'type: "Log" log_param {{ {settings} }}', (2,))(x)
    assert torch.equal(x, torch.tensor([1.0, 2.0]))


@pytest.mark.parametrize("kind", ["Exp", "Log"])
@pytest.mark.parametrize("base", ["0", "-2"])  # of infinity and NaN see graph/test_not_numbers
def test_refusals(kind: str, base: str) -> None:
    body = f'type: "{kind}" top: "y" {kind.lower()}_param {{ §base: {base} }}'
    check_refusal(body, f"base must be above 0, or -1 for e; not {base}", a=(2,))
