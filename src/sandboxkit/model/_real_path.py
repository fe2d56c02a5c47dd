"""
From a path as people write it to the real path a spec names.
"""

from __future__ import annotations

import errno
import os

__all__ = ["real_path"]


def real_path(path: str | os.PathLike[str], *, base: str | None = None, expand_home: bool = False) -> str:
    """
    *path* from the root, without symbolic links.

    What does not exist stays as it is: whether it must is for the box to say.

    Args:
        path: A host path.
        base: The directory a relative path starts from; None is the working directory.
        expand_home: Whether a leading `~` is a home directory.

    Raises:
        ValueError: It holds a NUL byte, is a loop of symbolic links, or starts at the
            home of a user that does not exist.
    """
    text = os.fspath(path)
    if "\0" in text:
        raise ValueError("a path cannot hold a NUL byte")
    if not text:
        raise ValueError("a path cannot be empty; write '.' for the directory itself")
    if expand_home and text.startswith("~"):
        text = os.path.expanduser(text)
        if text.startswith("~"):
            raise ValueError(
                f"{text!r} starts at a home directory that is not known; write './{text}' for a file of this name"
            )
    try:
        text = os.path.realpath(os.path.join(base or os.getcwd(), text))
        os.stat(text)
    except UnicodeEncodeError as exc:
        raise ValueError(f"{text!r} holds characters that no file name can have") from exc
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise ValueError(f"{text!r} is a loop of symbolic links; name the directory itself") from exc
        if exc.errno == errno.ENAMETOOLONG:
            raise ValueError(f"{text[:80]!r}… is longer than a path can be") from exc
        if not os.path.isabs(text):
            raise ValueError(f"{text!r} starts at the working directory, which is gone") from exc
    return text
