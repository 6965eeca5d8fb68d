"""``bpt explain``: show by Grad-CAM which regions of an input support a class."""
