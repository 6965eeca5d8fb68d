"""Optimizers: update rules, learning-rate policies, gradients."""
