"""The nets that the recordings upgrade."""

from __future__ import annotations

NAMES = ("v0_net", "v0_deploy", "v1_deploy", "v1_train_val", "v2_inputfields_bn")
