"""Which names a function's code looks up."""

from __future__ import annotations

import types

__all__ = ["names_in"]


def names_in(code: types.CodeType) -> set[str]:
    """Names of globals and attributes that a code object and those inside it use."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_in(constant)
    return names
