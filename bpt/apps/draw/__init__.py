"""What ``bpt draw`` does: the picture of a net."""
