"""What ``bpt simulate`` does."""
