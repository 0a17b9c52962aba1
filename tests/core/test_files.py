"""Files appear whole or not at all; run folders are never overwritten."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from visionkl.core import files
from visionkl.core.errors import DataError, VisionklError
from visionkl.core.files import atomic_write, fresh_folder, writable_folder, write_whole


def test_a_file_appears_when_the_block_ends(tmp_path):
    with atomic_write(tmp_path / "a.txt") as file:
        file.write("grün\r\n")
        assert not (tmp_path / "a.txt").exists()
    assert (tmp_path / "a.txt").read_bytes() == "grün\r\n".encode()


def test_bytes(tmp_path):
    with atomic_write(tmp_path / "a.bin", "wb") as file:
        file.write(b"\x00\xff")
    assert (tmp_path / "a.bin").read_bytes() == b"\x00\xff"


@pytest.mark.parametrize("interruption", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, interruption):
    (tmp_path / "a.txt").write_text("old")

    def write_half():
        with atomic_write(tmp_path / "a.txt") as file:
            file.write("half")
            raise interruption

    with pytest.raises(interruption):
        write_half()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_rights_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_text("")
    with atomic_write(tmp_path / "atomic"):
        pass
    assert stat.S_IMODE((tmp_path / "atomic").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "plain").stat().st_mode
    )


def test_a_missing_folder_and_a_folder_in_the_way_are_named(tmp_path):
    with (
        pytest.raises(DataError, match=r"nowhere/a\.txt: cannot write this file"),
        atomic_write(tmp_path / "nowhere/a.txt"),
    ):
        pass
    (tmp_path / "taken").mkdir()
    with pytest.raises(DataError, match="taken: cannot write this file"), atomic_write(tmp_path / "taken"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_writable_folder_is_made_with_its_parents_and_left_empty(tmp_path):
    folder = writable_folder(tmp_path / "a" / "b")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []
    assert writable_folder(folder) == folder


def test_a_folder_below_a_file_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="file/out: cannot write into this folder"):
        writable_folder(tmp_path / "file" / "out")
    with pytest.raises(DataError, match="file/out: cannot make this folder"):
        fresh_folder(tmp_path / "file" / "out")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(DataError, match="cannot write into this folder"):
            writable_folder(tmp_path)
    finally:
        tmp_path.chmod(0o755)


def test_run_folders_are_fresh_even_when_many_are_made_at_once(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: fresh_folder(tmp_path / "run"), range(20)))
    assert {folder.name for folder in folders} == {"run", *(f"run-{n}" for n in range(2, 21))}


@pytest.mark.parametrize("content", ["text", b"bytes"])
def test_a_file_is_written_in_one_go_or_the_older_one_stays(tmp_path, monkeypatch, content):
    path = tmp_path / "a"
    write_whole(path, content)
    assert path.read_bytes() in (b"text", b"bytes")

    def fail(*arguments, **settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fdopen", fail)
    for target, older in ((path, "the older one is still there"), (tmp_path / "b", "nothing was written")):
        with pytest.raises(VisionklError, match="this picture cannot be written .*" + older) as error:
            write_whole(target, content * 2, "picture")
        assert error.value.exit_code == 1
    assert path.read_bytes() in (b"text", b"bytes")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]
