"""Shards: what goes in comes out, in pieces, from any process."""

import pickle

import numpy as np
import pytest

from visionkl.core.errors import DataError
from visionkl.parallel.shards import ShardedArrays, map_rows, write_rows, write_shard

RNG = np.random.default_rng(0)
PICTURES = [
    [RNG.integers(0, 999, (rows, cols, 2)).astype(np.uint16) for rows, cols in sizes]
    for sizes in ([(3, 4), (1, 2)], [], [(5, 5)], [(0, 3), (2, 2), (1, 1)])
]


def test_arrays_come_back_from_several_shards(tmp_path):
    shards = [
        write_shard(tmp_path / f"{i}.bin", part, np.uint16)
        for i, part in enumerate((PICTURES[:1], PICTURES[1:]))
    ]
    arrays = ShardedArrays(pickle.loads(pickle.dumps(shards)))
    assert len(arrays) == len(PICTURES)
    for number, picture in enumerate(PICTURES):
        assert len(arrays[number]) == len(picture)
        for mine, theirs in zip(arrays[number], picture, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(IndexError):
        arrays[len(PICTURES)]


def test_a_shard_that_was_cut_or_removed_is_named(tmp_path):
    shard = write_shard(tmp_path / "a.bin", PICTURES, np.uint16)
    (tmp_path / "a.bin").write_bytes((tmp_path / "a.bin").read_bytes()[:-1])
    with pytest.raises(DataError, match=r"a\.bin.*instead of"):
        pickle.loads(pickle.dumps(shard))[0]
    (tmp_path / "a.bin").unlink()
    with pytest.raises(DataError, match=r"a\.bin.*missing"):
        pickle.loads(pickle.dumps(shard))[0]


def test_a_shard_of_nothing_is_no_problem(tmp_path):
    assert len(write_shard(tmp_path / "a.bin", [], np.uint8)) == 0


class TestRows:
    MATRIX = np.arange(20, dtype=np.float32).reshape(5, 4)

    def blocks_from(self, first, fail_at=None):
        self.first = first
        for row in range(first, 5, 2):
            if row == fail_at:
                raise KeyboardInterrupt
            yield self.MATRIX[row : row + 2]

    def test_an_interrupted_matrix_is_gone_on_with(self, tmp_path):
        path = tmp_path / "rows.bin"
        with pytest.raises(KeyboardInterrupt):
            write_rows(path, (5, 4), np.float32, lambda first: self.blocks_from(first, fail_at=2))
        assert [entry.name for entry in tmp_path.iterdir()] == ["rows.bin.part"]
        with (tmp_path / "rows.bin.part").open("ab") as file:
            file.write(b"part of a row")
        written = write_rows(path, (5, 4), np.float32, self.blocks_from)
        assert self.first == 2
        np.testing.assert_array_equal(written, self.MATRIX)
        assert [entry.name for entry in tmp_path.iterdir()] == ["rows.bin"]
        assert not written.flags.writeable

    def test_a_matrix_that_is_there_is_not_made_again(self, tmp_path):
        write_rows(tmp_path / "x", (5, 4), np.float32, self.blocks_from)
        again = write_rows(tmp_path / "x", (5, 4), np.float32, lambda first: pytest.fail("made again"))
        np.testing.assert_array_equal(again, self.MATRIX)

    def test_a_file_of_another_size_is_refused(self, tmp_path):
        write_rows(tmp_path / "x", (5, 4), np.float32, self.blocks_from)
        with pytest.raises(DataError, match="has 80 bytes instead of 96"):
            map_rows(tmp_path / "x", (6, 4), np.float32)
