"""What the guides tell a reader to type, done as they say it."""
