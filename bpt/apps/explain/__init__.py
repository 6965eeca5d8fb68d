"""Grad-CAM: ``bpt explain``."""
