"""``bpt new``: make a network, a solver and lists that are ready to train from a folder of pictures.

``labelled_folder.py`` finds and decodes the pictures, ``split_pictures.py`` divides them, ``starter_net.py`` chooses
the network, and ``starter_files.py`` writes all of it.
"""
