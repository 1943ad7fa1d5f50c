"""The default secret of ranks: a random value in a file that only this user can read.

The first process that needs it creates it, and it is kept. So ranks of one user on one machine, or on machines with a
common home directory, share it automatically. `$XDG_CACHE_HOME/syntony/secret/secret`, mode 0600.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress

from syntony.base.files.cache_folder import private_folder

_NAME = "secret"
_FORM = re.compile(rb"[0-9a-f]{64}")


def given_secret() -> str:
    """SYNTONY_SECRET, else the user's own; "" if there is neither (no home directory, or not writable)."""
    return os.environ.get("SYNTONY_SECRET") or user_secret()


def user_secret() -> str:
    """The user's own secret, created if missing; "" if it cannot be kept private."""
    with private_folder(_NAME) as folder:
        if folder is None:
            return ""
        return _read(folder) or _make(folder) or _read(folder)  # the last read: another process was faster


def _read(folder: int) -> str:
    try:
        file = os.open(_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return ""
    try:
        found = os.fstat(file)
        alone = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
        content = os.read(file, 65) if alone else b""
    finally:
        os.close(file)
    return content.decode() if _FORM.fullmatch(content) else ""


def _make(folder: int) -> str:
    """Writes a temporary file and links it into place: readers see a complete file, and the first writer wins."""
    secret, beside = secrets.token_hex(32), f"{_NAME}.{secrets.token_hex(8)}"
    try:
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            os.write(file, secret.encode())
            os.fsync(file)
        finally:
            os.close(file)
        os.link(beside, _NAME, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        return ""
    finally:
        with suppress(OSError):
            os.unlink(beside, dir_fd=folder)
    return secret
