"""Single: what cannot be copied or pickled, and says what to do instead."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex

from bpt.base.errors import UserError


class Single:
    """Refuses ``copy.copy``, ``copy.deepcopy`` and ``pickle.dumps`` by a UserError.

    Python's own copies would share the memory of the original: what is written to one would change the other.
    """

    _no_copy: ClassVar[str]
    """Return what the object is, and what to do instead of a copy."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:  # copies, too, are made by it
        raise UserError(self._no_copy)
