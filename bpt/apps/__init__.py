"""The features of the commands beyond training, one a folder."""
