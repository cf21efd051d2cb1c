"""One writer per folder: others are refused while it is held, any exit releases it, nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from linnet.atomic import Created, atomic, remove_torn
from linnet.errors import StateError
from linnet.lock import NAME, exclusive
from tests.holder import files, held


def test_another_process_is_refused_with_the_name_of_the_holder(tmp_path: Path) -> None:
    with held(tmp_path / "a/b") as process:
        named = rf"a/b is in use by process {process.pid} \(-c .*a/b\); wait until it ends, or name another folder"
        with pytest.raises(StateError, match=named), exclusive(tmp_path / "a/b"):
            pass
        assert files(tmp_path / "a/b").keys() == {NAME}


def test_a_kill_releases_it(tmp_path: Path) -> None:
    with held(tmp_path) as process:
        process.kill()
        process.wait(30)
        assert (tmp_path / NAME).is_file()  # stale: it locks nothing
        with exclusive(tmp_path):
            pass
    assert files(tmp_path) == {}


def test_nested_and_from_another_thread(tmp_path: Path) -> None:
    caught: list[BaseException] = []

    def other() -> None:
        try:
            with exclusive(tmp_path):
                pass
        except StateError as error:
            caught.append(error)

    with exclusive(tmp_path), exclusive(tmp_path):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(30)
    assert "another thread of this process is writing" in str(caught[0])
    with exclusive(tmp_path):
        pass


def test_a_forked_child_holds_nothing(tmp_path: Path) -> None:
    code = f"""
import os, sys
from linnet.lock import exclusive
with exclusive({str(tmp_path)!r}):
    if os.fork() == 0:
        print("child", flush=True)
        sys.stdin.read()
    os._exit(0)
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"child\n"
        assert process.wait(30) == 0  # while the child still runs
        with exclusive(tmp_path):
            pass


def test_folders_created_for_the_lock_are_removed_when_empty(tmp_path: Path) -> None:
    with exclusive(tmp_path / "a/b"):
        assert (tmp_path / "a/b" / NAME).is_file()
    assert files(tmp_path) == {}
    with exclusive(tmp_path / "a/b"):
        (tmp_path / "a/note").write_text("keep")
    assert files(tmp_path).keys() == {"a", "a/note"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ValueError, match="cannot be written"), exclusive(tmp_path):
        pass


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("keep")
    with pytest.raises(ValueError, match="a is a file; accepted: a folder"), exclusive(tmp_path / "a/b"):
        pass
    assert files(tmp_path) == {"a": b"keep"}


def test_only_what_this_process_created_is_removed(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    with suppress(ZeroDivisionError), Created(tmp_path):
        for name in ("old", "new"):
            with atomic(tmp_path / name) as file:
                file.write(b"changed")
        (tmp_path / "of another program").write_text("keep")
        raise ZeroDivisionError
    assert files(tmp_path) == {"of another program": b"keep", "old": b"changed"}
    with suppress(ZeroDivisionError), Created(tmp_path) as created:
        with atomic(tmp_path / "new"):
            pass
        created.keep()
        raise ZeroDivisionError
    assert (tmp_path / "new").is_file()


def test_a_torn_file_is_removed_and_one_being_written_is_not(tmp_path: Path) -> None:
    (tmp_path / ".note.0123.tmp").write_bytes(b"half")
    with atomic(tmp_path / "page") as file:
        file.write(b"whole")
        remove_torn(tmp_path)
        assert len(list(tmp_path.glob(".*.tmp"))) == 1
    assert files(tmp_path) == {"page": b"whole"}
