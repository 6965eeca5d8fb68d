"""What ``bpt plan`` does."""
