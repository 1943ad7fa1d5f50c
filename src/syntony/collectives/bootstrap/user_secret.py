"""The secret of ranks that were given none: a random value in a file of this user's that nobody else can read.

Made by whoever needs it first, and kept: ranks of one user on one machine, or on machines with a common home, know the
same without being told. `$XDG_CACHE_HOME/syntony/secret/secret`, 0600.
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
    """SYNTONY_SECRET, else the user's own; "" where there can be neither (no home, or one that cannot be written)."""
    return os.environ.get("SYNTONY_SECRET") or user_secret()


def user_secret() -> str:
    """The user's own, made where there is none yet; "" where it cannot be kept from others."""
    with private_folder(_NAME) as folder:
        if folder is None:
            return ""
        return _read(folder) or _make(folder) or _read(folder)  # the last: another process was faster


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
    """Written beside, then linked: whoever sees the name sees all of it, and the first one stays."""
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
