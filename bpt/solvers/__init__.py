"""The training loop and what belongs to it: update rules, learning-rate policies, snapshots, testing."""
