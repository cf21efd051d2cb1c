"""One writer per folder: a lock that ends with the process that holds it.

    with exclusive(folder):                    # StateError if another process, or another thread, has it
        ...                                    # write in folder

The lock is an flock of FOLDER/.lock, so `kill -9` releases it, and a .lock file that was left behind locks nothing. The
folder is created if it is missing. On release the .lock file goes, and so do the folders created for it that are still
empty: a command that is refused leaves nothing behind. Without flock (Windows, some network drives) nothing is locked.
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
LONGEST = 120  # letters of a command in a message
ATTEMPTS = 100  # a lock file that is removed by its last holder while it is being opened is opened again


class _Held(NamedTuple):
    file: int
    thread: int


_held: dict[str, _Held] = {}  # by real path


@contextmanager
def exclusive(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the folder for this thread; inside itself, in the same thread, it does nothing."""
    folder, key = Path(folder), os.path.realpath(folder)
    there = _held.get(key)
    if there is not None and there.thread == threading.get_ident():
        yield
        return
    if there is not None:
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
            with suppress(OSError):  # not empty: there is something to keep
                path.rmdir()


def _acquire(folder: Path) -> int:
    """The open lock file; after the lock is taken, the file must still be the one in the folder."""
    for _ in range(ATTEMPTS):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # the last holder has just removed the folder that it had created
            continue
        except (FileExistsError, NotADirectoryError):
            there = next(path for path in (folder, *folder.parents) if path.exists())
            raise ValueError(f"{there} is a file; accepted: a folder, so name another one") from None
        except OSError as error:
            raise ValueError(f"{folder} cannot be written ({error.strerror}); name another folder") from None
        try:
            if not try_lock(file):
                raise StateError(f"{folder} is in use by {_owner(file)}; wait until it ends, or name another folder")
            if _same(folder / NAME, file):
                _sign(file)
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)
    raise StateError(f"{folder} is created and removed by other processes all the time; name another folder")


def try_lock(file: int) -> bool:
    """Lock an open file until it is closed; False when somebody else has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (ENOLCK, ENOSYS, EOPNOTSUPP):  # else a file system that has no locks
            raise
    return True


def _release(path: Path, file: int) -> None:
    if _same(path, file):  # removed while it is locked: whoever has opened it meanwhile sees that it is gone
        with suppress(OSError):
            path.unlink()
    os.close(file)


def _same(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except OSError:
        return False


def _sign(file: int) -> None:
    """Who holds it, for the message of whoever comes next; a full disk does not matter."""
    command = " ".join([Path(sys.argv[0]).name or "python", *sys.argv[1:]]).replace("__main__.py", "linnet")
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n{gethostname()}\n{command}\n".encode(errors="replace"))


def _owner(file: int) -> str:
    text = os.read(file, 4096).decode(errors="replace").splitlines()
    if len(text) != 3 or not text[0].isdigit():
        return "another process"
    pid, host, command = text
    where = "" if host == gethostname() else f" on {host}"
    return f"process {pid}{where} ({command if len(command) <= LONGEST else command[: LONGEST - 3] + '...'})"


def _forget() -> None:
    """In a forked child, which holds nothing: its copy of the lock would outlive the parent."""
    for held in _held.values():
        os.close(held.file)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
