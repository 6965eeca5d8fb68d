"""What ``bpt check`` does."""
