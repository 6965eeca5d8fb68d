"""``bpt detect``: which objects a trained net finds in pictures, and where."""
