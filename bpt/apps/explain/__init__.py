"""What ``bpt explain`` does: Grad-CAM."""
