"""The user's own key, which marks the results that are kept from run to run: `~/.config/pumice/results.key`."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .errors import BadOption
from .result_store import read_plain, write_once

__all__ = ["key_file", "user_key"]

_BYTES = 32
_TEXT = re.compile(rb"[0-9a-f]{64}\n?")


def key_file() -> Path:
    """Where the key is: in the folder of `XDG_CONFIG_HOME`, if that is an absolute path, else in `~/.config`."""
    named = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".config") / "pumice" / "results.key"


def user_key() -> bytes:
    """The key, made at its first use. Raises BadOption where there can be none, or where others may know it."""
    try:
        path = key_file()
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Of several programs that make it at once, the first one's stays.
            write_once(path, f"{os.urandom(_BYTES).hex()}\n".encode())
        return _read(path)
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody knows where the user's home is
        raise BadOption(
            f"store= marks what it keeps with a key of yours, which can't be read or made: {error}. "
            "Name a folder that is yours alone by XDG_CONFIG_HOME."
        ) from error


def _read(path: Path) -> bytes:
    text, found = read_plain(path, 2 * _BYTES + 2)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise BadOption(
            f"{path} marks kept results as yours, and others can read or write it: its owner must be user {os.geteuid()} "
            f"and its mode 600, and they are {found.st_uid} and {found.st_mode & 0o777:o}. If nobody else has used it, say: "
            f"chmod 600 {path}. Else remove it: another key is made, and what was kept with this one is read by "
            "allow_pickle=True only."
        )
    if not _TEXT.fullmatch(text):
        raise BadOption(
            f"{path} should hold 64 hexadecimal digits. Copy it again from where it is whole, or remove it: another key "
            "is made, and what was kept with this one is read by allow_pickle=True only."
        )
    return bytes.fromhex(text.decode())
