"""One writer per folder: a lock that ends with the process that holds it.

    with exclusive(folder):                    # StateError if another process or thread holds it
        ...                                    # write in folder

The lock is an flock on FOLDER/.lock, so `kill -9` releases it and a stale .lock file locks nothing. A missing folder is
created. On release the .lock file is removed together with any folders created for it that are still empty: a command
that is refused leaves nothing behind. Without flock (Windows, some network drives) nothing is locked.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import ENOLCK, ENOSYS, EOPNOTSUPP
from pathlib import Path
from socket import gethostname
from typing import NamedTuple

from .errors import StateError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
LONGEST = 120  # characters of a command that an error message shows
ATTEMPTS = 100  # retries when the last holder removes the lock file while it is being opened


class _Held(NamedTuple):
    file: int
    thread: int


_held: dict[str, _Held] = {}  # by real path


@contextmanager
def exclusive(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the folder for this thread; nested use in the same thread does nothing."""
    folder, key = Path(folder), os.path.realpath(folder)
    holder = _held.get(key)
    if holder is not None and holder.thread == threading.get_ident():
        yield
        return
    if holder is not None:
        raise StateError(f"another thread of this process is writing {folder}; name another folder")
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        file = _acquire(folder)
        _held[key] = _Held(file, threading.get_ident())
        try:
            yield
        finally:
            del _held[key]
            _release(folder / NAME, file)
    finally:
        for path in missing:  # innermost first
            with suppress(OSError):  # not empty
                path.rmdir()


def _acquire(folder: Path) -> int:
    """Return the locked file, having checked that it is still the one in the folder."""
    for _ in range(ATTEMPTS):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # the last holder has just removed the folder it created
            continue
        except (FileExistsError, NotADirectoryError):
            blocking = next(path for path in (folder, *folder.parents) if path.exists())
            raise ValueError(f"{blocking} is a file; accepted: a folder; choose another path") from None
        except OSError as error:
            raise ValueError(f"{folder} cannot be written ({error.strerror}); name another folder") from None
        try:
            if not try_lock(file):
                raise StateError(f"{folder} is in use by {_holder(file)}; wait until it ends, or name another folder")
            if _same(folder / NAME, file):
                _sign(file)
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)
    raise StateError(f"{folder} is repeatedly created and removed by other processes; name another folder")


def try_lock(file: int) -> bool:
    """Lock an open file until it is closed; return False if it is locked elsewhere."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (ENOLCK, ENOSYS, EOPNOTSUPP):  # a file system without locks
            raise
    return True


def _release(path: Path, file: int) -> None:
    if _same(path, file):  # removed while locked, so that a process that has just opened it sees that it is gone
        with suppress(OSError):
            path.unlink()
    os.close(file)


def _same(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except OSError:
        return False


def _sign(file: int) -> None:
    """Write the holder into the file for other processes' error messages; a full disk does not matter."""
    command = " ".join([Path(sys.argv[0]).name or "python", *sys.argv[1:]]).replace("__main__.py", "linnet")
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n{gethostname()}\n{command}\n".encode(errors="replace"))


def _holder(file: int) -> str:
    text = os.read(file, 4096).decode(errors="replace").splitlines()
    if len(text) != 3 or not text[0].isdigit():
        return "another process"
    pid, host, command = text
    where = "" if host == gethostname() else f" on {host}"
    return f"process {pid}{where} ({command if len(command) <= LONGEST else command[: LONGEST - 3] + '...'})"


def _forget() -> None:
    """Drop all locks in a forked child, whose copies would outlive the parent."""
    for held in _held.values():
        os.close(held.file)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
