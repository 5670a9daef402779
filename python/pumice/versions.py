"""What a function is, as a hash: results kept for another one aren't taken for its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .content_hash import NoContent, content_of
from .errors import BadOption

__all__ = ["version_of"]


def version_of(function: Callable[..., Any]) -> str:
    """A hash over what a function is made of and bound to.

    That is its code without comments, defaults, outer variables, the object of a method, the arguments of a partial, and the
    globals it names, each with what it is made of as far as that is the user's own. Installed packages count by name. Raises
    BadOption where a part has no content to make a hash of.
    """
    try:
        return content_of(function).hex()[:16]
    except NoContent as error:
        raise BadOption(
            f"Results can't be kept for this function, as it can't be told from others: {error}. "
            'Say which one it is by version=..., such as @pumice.task(version="1"), and change that with what it does.'
        ) from error
