"""``bpt detect``: find objects in pictures by a trained net."""
