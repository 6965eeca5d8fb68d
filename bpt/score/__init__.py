"""What ``bpt test`` does."""
