"""The downloader against a server on loopback that breaks off, forgets ranges and sends rubbish."""

import hashlib
import io
import os
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from tests.datasets.small_data import voc_object, voc_xml
from visionkl.core.errors import DataError, UsageError
from visionkl.datasets import download
from visionkl.datasets.download import VOC_ARCHIVES, Archive, DownloadError, download_voc, fetch, unpack
from visionkl.datasets.voc import VOC

CONTENT = np.random.default_rng(0).bytes(1_000_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `files`; `behaviours` are used up one a request, and then it behaves well."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"a.tar": CONTENT}
        self.behaviours = []
        self.ranges = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_):
        pass  # a client that goes away in the middle is what some tests are about


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range")
        server.ranges.append(wanted)
        behaviour = server.behaviours.pop(0) if server.behaviours else "good"
        content = server.files.get(self.path.rsplit("/", 1)[-1])
        self.close_connection = True
        if content is None or behaviour == "404":
            self.send_error(404)
            return
        if behaviour == "503":
            self.send_error(503)
            return
        if behaviour == "hang up":
            return
        first = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and behaviour != "no ranges" else 0
        if first >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if first else 200)
        if first:
            begin = 0 if behaviour == "wrong range" else first
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        last = first + behaviour[1] if isinstance(behaviour, tuple) else len(content)
        self.wfile.write(content[first:last])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "_WAIT", 0.0)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


class TestFetching:
    def fetch(self, server, folder, **options):
        return fetch(f"{server.url}/a.tar", MD5, folder, **options)

    def test_a_whole_download(self, server, tmp_path):
        told = []
        path = self.fetch(server, tmp_path, progress=lambda *facts: told.append(facts))
        assert path == tmp_path / "a.tar"
        assert path.read_bytes() == CONTENT
        assert os.listdir(tmp_path) == ["a.tar"]
        assert told[-1] == ("a.tar", len(CONTENT), len(CONTENT))
        assert [done for _, done, _ in told] == sorted({done for _, done, _ in told})

    def test_nothing_is_fetched_twice(self, server, tmp_path):
        self.fetch(server, tmp_path)
        self.fetch(server, tmp_path)
        assert len(server.ranges) == 1

    def test_a_file_with_the_wrong_content_is_fetched_anew(self, server, tmp_path):
        (tmp_path / "a.tar").write_text("rubbish")
        assert self.fetch(server, tmp_path).read_bytes() == CONTENT

    def test_a_cut_connection_is_taken_up_where_it_broke_off(self, server, tmp_path):
        server.behaviours = [("cut after", 300_000), ("cut after", 200_000)]
        told = []
        path = self.fetch(server, tmp_path, progress=lambda *facts: told.append(facts[1:]))
        assert path.read_bytes() == CONTENT
        assert server.ranges == [None, "bytes=300000-", "bytes=500000-"]
        assert {total for _, total in told} == {len(CONTENT)}

    def test_any_number_of_cuts_is_survived_while_something_comes(self, server, tmp_path):
        server.behaviours = [("cut after", 60_000)] * 12
        assert self.fetch(server, tmp_path).read_bytes() == CONTENT
        assert len(server.ranges) == 13

    def test_the_next_call_takes_up_what_the_last_one_left(self, server, tmp_path):
        server.behaviours = [("cut after", 400_000)] + ["hang up"] * 4
        with pytest.raises(
            DownloadError, match=r"a\.tar: .* 4 times in a row; what is there is kept in .*\.part"
        ):
            self.fetch(server, tmp_path)
        assert os.listdir(tmp_path) == ["a.tar.part"]
        assert (tmp_path / "a.tar.part").read_bytes() == CONTENT[:400_000]
        server.ranges.clear()
        assert self.fetch(server, tmp_path).read_bytes() == CONTENT
        assert server.ranges == ["bytes=400000-"]
        assert os.listdir(tmp_path) == ["a.tar"]

    def test_a_part_that_is_complete_already(self, server, tmp_path):
        (tmp_path / "a.tar.part").write_bytes(CONTENT)
        assert self.fetch(server, tmp_path).read_bytes() == CONTENT
        assert server.ranges == [f"bytes={len(CONTENT)}-"]

    def test_a_part_that_is_too_long_is_thrown_away(self, server, tmp_path):
        (tmp_path / "a.tar.part").write_bytes(CONTENT + b"x")
        assert self.fetch(server, tmp_path).read_bytes() == CONTENT

    def test_a_server_without_ranges_starts_again(self, server, tmp_path):
        (tmp_path / "a.tar.part").write_bytes(CONTENT[:1000] + b"x" * 5000)
        server.behaviours = ["no ranges"]
        assert self.fetch(server, tmp_path).read_bytes() == CONTENT

    def test_a_server_that_sends_another_range(self, server, tmp_path):
        (tmp_path / "a.tar.part").write_bytes(CONTENT[:1000])
        server.behaviours = ["wrong range"]
        assert self.fetch(server, tmp_path).read_bytes() == CONTENT

    def test_a_server_that_is_busy_is_asked_again(self, server, tmp_path):
        server.behaviours = ["503", "hang up"]
        assert self.fetch(server, tmp_path).read_bytes() == CONTENT

    def test_a_server_that_stays_busy(self, server, tmp_path):
        server.behaviours = ["503"] * 4
        with pytest.raises(DownloadError, match=r"the server answers 503 .*, 4 times in a row"):
            self.fetch(server, tmp_path)

    def test_a_wrong_checksum(self, server, tmp_path):
        server.files["a.tar"] = CONTENT[:-1] + b"?"
        with pytest.raises(
            DownloadError, match=rf"a\.tar: .* has not the checksum md5:{MD5} and was thrown away"
        ):
            self.fetch(server, tmp_path)
        assert os.listdir(tmp_path) == []

    def test_not_found(self, server, tmp_path):
        with pytest.raises(
            DownloadError, match=r"/b\.tar: the server answers 404 \(Not Found\); give another"
        ):
            fetch(f"{server.url}/b.tar", MD5, tmp_path)
        assert len(server.ranges) == 1
        assert os.listdir(tmp_path) == []

    def test_nobody_there(self, server, tmp_path):
        server.shutdown()
        server.server_close()
        with pytest.raises(DownloadError, match="the server cannot be reached"):
            self.fetch(server, tmp_path)

    @pytest.mark.parametrize("address", ["file:///etc", "ftp://host", "host/folder"])
    def test_other_kinds_of_address(self, tmp_path, address):
        with pytest.raises(UsageError, match="must begin with http:// or https://"):
            download_voc("2007", tmp_path, mirror=address)

    def test_a_disk_that_refuses(self, server, tmp_path):
        (tmp_path / "a.tar.part").mkdir()  # a folder cannot be written to as a file
        with pytest.raises(DataError, match=r"a\.tar\.part: cannot write this file"):
            self.fetch(server, tmp_path)


def tarred(path, members):
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.name = name
            if isinstance(content, bytes):
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


def special(kind, target=""):
    info = tarfile.TarInfo("x")
    info.type, info.linkname = kind, target
    return info


class TestUnpacking:
    def test_files_and_folders(self, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "VOCdevkit").mkdir()
        (tmp_path / "out" / "VOCdevkit" / "mine.txt").write_text("stays")
        members = {"VOCdevkit": special(tarfile.DIRTYPE), "VOCdevkit/a/b.txt": b"hello", "./c.txt": b""}
        unpack(tarred(tmp_path / "a.tar", members), tmp_path / "out")
        assert (tmp_path / "out" / "VOCdevkit" / "a" / "b.txt").read_bytes() == b"hello"
        assert (tmp_path / "out" / "VOCdevkit" / "mine.txt").read_text() == "stays"
        assert sorted(os.listdir(tmp_path / "out")) == ["VOCdevkit", "c.txt"]

    @pytest.mark.parametrize(
        ("name", "content", "says"),
        [
            ("../evil.txt", b"x", "leads out of the folder"),
            ("a/../../evil.txt", b"x", "leads out of the folder"),
            ("/tmp/evil.txt", b"x", "leads out of the folder"),
            ("a\\..\\..\\evil.txt", b"x", "leads out of the folder"),
            ("C:/evil.txt", b"x", "leads out of the folder"),
            ("link", special(tarfile.SYMTYPE, "/etc/passwd"), "neither a file nor a folder"),
            ("link", special(tarfile.LNKTYPE, "good.txt"), "neither a file nor a folder"),
            ("pipe", special(tarfile.FIFOTYPE), "neither a file nor a folder"),
            ("device", special(tarfile.CHRTYPE), "neither a file nor a folder"),
        ],
    )
    def test_dangerous_members_are_refused_and_nothing_is_written(self, tmp_path, name, content, says):
        (tmp_path / "out").mkdir()
        archive = tarred(tmp_path / "a.tar", {"good.txt": b"good", name: content})
        with pytest.raises(DataError, match=rf"a\.tar: the archive holds .*{says}"):
            unpack(archive, tmp_path / "out")
        assert os.listdir(tmp_path / "out") == []
        assert sorted(os.listdir(tmp_path)) == ["a.tar", "out"]

    @pytest.mark.parametrize("keep", [100, 3000])
    def test_a_damaged_archive_leaves_nothing(self, tmp_path, keep):
        (tmp_path / "out").mkdir()
        archive = tarred(tmp_path / "a.tar", {"good.txt": b"good", "long.txt": b"x" * 5000})
        archive.write_bytes(archive.read_bytes()[:keep])
        with pytest.raises(DataError, match=r"a\.tar: this is not a tar archive, or it is damaged"):
            unpack(archive, tmp_path / "out")
        assert os.listdir(tmp_path / "out") == []

    def test_files_of_one_archive_do_not_disturb_those_of_another(self, tmp_path):
        unpack(tarred(tmp_path / "a.tar", {"V/1.txt": b"1"}), tmp_path)
        unpack(tarred(tmp_path / "b.tar", {"V/2.txt": b"2"}), tmp_path)
        assert sorted(os.listdir(tmp_path / "V")) == ["1.txt", "2.txt"]


class TestDownloadVOC:
    @pytest.fixture
    def archives(self, server, monkeypatch, tmp_path):
        """A tiny VOC2007 in two archives on the server."""
        known = []
        for split, id in {"trainval": "000005", "test": "000001"}.items():
            voc = "VOCdevkit/VOC2007"
            members = {
                f"{voc}/ImageSets/Main/{split}.txt": f"{id}\n".encode(),
                f"{voc}/Annotations/{id}.xml": voc_xml(voc_object()).encode(),
            }
            path = tarred(tmp_path / "x.tar", members)
            server.files[f"{split}.tar"] = path.read_bytes()
            known.append(
                Archive("http://nowhere.invalid", f"{split}.tar", hashlib.md5(path.read_bytes()).hexdigest())
            )
            path.unlink()
        monkeypatch.setitem(VOC_ARCHIVES, "2007", tuple(known))
        return server

    def test_from_a_mirror_into_the_default_place(self, archives, tmp_path, monkeypatch):
        monkeypatch.setenv("VISIONKL_DATA", str(tmp_path / "data"))
        told = []
        folder = download_voc(
            2007, mirror=f"{archives.url}/voc/", progress=lambda *facts: told.append(facts[0])
        )
        assert folder == tmp_path / "data" / "VOCdevkit"
        assert [example.id for split in ("trainval", "test") for example in VOC(split=split)] == [
            "000005",
            "000001",
        ]
        assert VOC(split="test")[0].annotation.labels == ("dog",)
        assert told == ["trainval.tar", "test.tar"]
        assert os.listdir(tmp_path / "data") == ["VOCdevkit"]  # archives and parts are gone
        download_voc(2007, mirror=archives.url)
        assert len(archives.ranges) == 2  # nothing is fetched again

    def test_an_archive_that_was_brought_along_is_used_and_kept(self, archives, tmp_path):
        for name in ("trainval.tar", "test.tar"):
            (tmp_path / name).write_bytes(archives.files[name])
        download_voc("2007", tmp_path, mirror=archives.url)
        assert archives.ranges == []
        assert sorted(os.listdir(tmp_path)) == ["VOCdevkit", "test.tar", "trainval.tar"]

    def test_after_a_wrong_checksum_what_came_before_is_kept(self, archives, tmp_path):
        good = archives.files["test.tar"]
        archives.files["test.tar"] = b"rubbish"
        with pytest.raises(DownloadError, match=r"test\.tar: .* has not the checksum"):
            download_voc("2007", tmp_path, mirror=archives.url)
        assert os.listdir(tmp_path) == ["VOCdevkit"]
        assert len(VOC(tmp_path, split="trainval")) == 1
        archives.files["test.tar"] = good
        archives.ranges.clear()
        download_voc("2007", tmp_path, mirror=archives.url)
        assert len(archives.ranges) == 1
        assert len(VOC(tmp_path, split="test")) == 1

    def test_folders_that_cannot_be_written_to(self, archives, tmp_path):
        (tmp_path / "file").write_text("x")
        with pytest.raises(DataError, match=r"file/below: cannot write into this folder"):
            download_voc("2007", tmp_path / "file" / "below", mirror=archives.url)
        assert archives.ranges == []

    def test_a_read_only_folder(self, archives, tmp_path):
        folder = tmp_path / "read only"
        folder.mkdir(mode=0o500)
        if os.access(folder, os.W_OK):
            pytest.skip("this user may write everywhere")
        with pytest.raises(DataError, match="cannot write into this folder"):
            download_voc("2007", folder, mirror=archives.url)

    def test_a_year_that_is_not_offered(self, tmp_path):
        with pytest.raises(
            UsageError, match="'year' parameter of download_voc must be one of '2007', '2012'"
        ):
            download_voc("2010", tmp_path)


def test_the_archives_are_well_formed():
    assert {year: len(archives) for year, archives in VOC_ARCHIVES.items()} == {"2007": 2, "2012": 1}
    for archive in (archive for archives in VOC_ARCHIVES.values() for archive in archives):
        assert len(bytes.fromhex(archive.md5)) == 16
        assert archive.folder.startswith("http")
        assert archive.name.endswith(".tar")
