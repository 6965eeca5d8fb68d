"""Single: base class of objects that cannot be copied or pickled."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex

from bpt.base.errors import UserError


class Single:
    """Base class whose ``copy.copy``, ``copy.deepcopy`` and ``pickle.dumps`` raise a UserError.

    Python's own copies would share memory with the original: writing to one would change the other.
    """

    _no_copy: ClassVar[str]
    """The error message: what the object is, and what to do instead of a copy."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:  # copy calls it, too
        raise UserError(self._no_copy)
