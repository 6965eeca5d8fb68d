"""Texts in, a typed and frozen configuration out; and the schema of all of bpt's files. No MPI."""
