"""Pictures of every kind come out upright, RGB and 8-bit; the rest gets one sentence."""

import os

import numpy as np
import pytest
from PIL import Image

from visionkl.core.errors import DataError
from visionkl.core.image import image_size, read_image, read_mask

# Damaged files make Pillow warn before it fails; that is what is being tested here.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")

# An asymmetric picture: every one of its eight orientations looks different.
COLOURS = np.array(
    [[[255, 0, 0], [0, 255, 0], [0, 0, 255]], [[255, 255, 0], [0, 255, 255], [255, 0, 255]]], dtype=np.uint8
)


# What a camera stores under each orientation so that the upright picture is COLOURS; worked out by hand from
# the EXIF standard, which says where row 0 and column 0 of the stored picture lie in the scene.
STORED = {
    1: COLOURS,  # row 0 is the top, column 0 the left
    2: COLOURS[:, ::-1],  # top, right
    3: COLOURS[::-1, ::-1],  # bottom, right
    4: COLOURS[::-1],  # bottom, left
    5: COLOURS.transpose(1, 0, 2),  # left, top
    6: COLOURS[:, ::-1].transpose(1, 0, 2),  # right, top
    7: COLOURS[::-1, ::-1].transpose(1, 0, 2),  # right, bottom
    8: COLOURS[::-1].transpose(1, 0, 2),  # left, bottom
}


def saved(folder, picture, name, **options):
    path = folder / name
    picture.save(path, **options)
    return path


def exif_with_orientation(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


class TestOrientation:
    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_pictures_come_out_upright(self, tmp_path, orientation):
        stored = Image.fromarray(np.ascontiguousarray(STORED[orientation]))
        path = saved(tmp_path, stored, "a.png", exif=exif_with_orientation(orientation))
        np.testing.assert_array_equal(read_image(path), COLOURS)
        assert image_size(path) == (3, 2)

    @pytest.mark.parametrize("orientation", [0, 9, 700])
    def test_an_orientation_that_does_not_exist_changes_nothing(self, tmp_path, orientation):
        path = saved(tmp_path, Image.fromarray(COLOURS), "a.png", exif=exif_with_orientation(orientation))
        np.testing.assert_array_equal(read_image(path), COLOURS)
        assert image_size(path) == (3, 2)

    def test_a_turned_jpeg(self, tmp_path):
        picture = Image.new("RGB", (40, 20))
        path = saved(tmp_path, picture, "a.jpg", exif=exif_with_orientation(6))
        assert read_image(path).shape == (40, 20, 3)
        assert image_size(path) == (20, 40)

    @pytest.mark.parametrize("block", [b"Exif\0\0", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0rubbish"])
    def test_a_damaged_exif_block_does_not_cost_the_picture(self, tmp_path, block):
        path = saved(tmp_path, Image.new("RGB", (9, 7), (200, 10, 10)), "a.jpg", exif=block, quality=100)
        assert read_image(path).shape == (7, 9, 3)
        assert image_size(path) == (9, 7)

    def test_a_turned_16_bit_picture(self, tmp_path):
        grey = np.array([[0, 257], [514, 65535]], dtype=np.uint16)
        path = saved(tmp_path, Image.fromarray(grey), "a.png", exif=exif_with_orientation(3))
        np.testing.assert_array_equal(read_image(path)[:, :, 0], [[255, 2], [1, 0]])


class TestKindsOfPixels:
    def test_colour_is_taken_as_it_is(self, tmp_path):
        image = read_image(saved(tmp_path, Image.fromarray(COLOURS), "a.png"))
        np.testing.assert_array_equal(image, COLOURS)
        assert image.dtype == np.uint8
        assert image.flags.writeable

    def test_grey(self, tmp_path):
        path = saved(tmp_path, Image.new("L", (3, 2), 77), "a.png")
        np.testing.assert_array_equal(read_image(path), np.full((2, 3, 3), 77))

    def test_black_and_white(self, tmp_path):
        path = saved(tmp_path, Image.new("1", (3, 2), 1), "a.png")
        np.testing.assert_array_equal(read_image(path), np.full((2, 3, 3), 255))

    def test_transparent_pixels_become_white_and_half_transparent_ones_lighter(self, tmp_path):
        pixels = np.array([[[200, 0, 0, 0], [200, 0, 0, 255], [200, 0, 0, 51]]], dtype=np.uint8)
        picture = Image.fromarray(pixels)
        image = read_image(saved(tmp_path, picture, "a.png"))
        np.testing.assert_array_equal(image[0, :2], [[255, 255, 255], [200, 0, 0]])
        np.testing.assert_allclose(image[0, 2], 0.2 * np.array([200, 0, 0]) + 0.8 * 255, atol=1)

    def test_grey_with_alpha(self, tmp_path):
        picture = Image.fromarray(np.array([[[10, 0], [10, 255]]], dtype=np.uint8), "LA")
        image = read_image(saved(tmp_path, picture, "a.png"))
        np.testing.assert_array_equal(image[0], [[255, 255, 255], [10, 10, 10]])

    @pytest.mark.parametrize("suffix", ["png", "gif"])
    def test_palette_with_a_transparent_colour(self, tmp_path, suffix):
        picture = Image.new("P", (2, 1))
        picture.putpalette([0, 0, 255, 0, 128, 0] + [0] * 750)
        picture.putpixel((1, 0), 1)
        image = read_image(saved(tmp_path, picture, f"a.{suffix}", transparency=0))
        np.testing.assert_array_equal(image[0], [[255, 255, 255], [0, 128, 0]])

    def test_palette_with_a_table_of_alphas(self, tmp_path):
        picture = Image.new("P", (2, 1))
        picture.putpalette([0, 0, 255, 0, 128, 0] + [0] * 750)
        picture.putpixel((1, 0), 1)
        image = read_image(saved(tmp_path, picture, "a.png", transparency=bytes([255, 0])))
        np.testing.assert_array_equal(image[0], [[0, 0, 255], [255, 255, 255]])

    def test_palette_without_transparency(self, tmp_path):
        picture = Image.fromarray(COLOURS).quantize(8)
        np.testing.assert_array_equal(read_image(saved(tmp_path, picture, "a.png")), COLOURS)

    @pytest.mark.parametrize("suffix", ["png", "tif"])
    def test_16_bit_grey_keeps_its_upper_byte(self, tmp_path, suffix):
        grey = np.array([[0, 257, 65535, 128 * 257]], dtype=np.uint16)
        image = read_image(saved(tmp_path, Image.fromarray(grey), f"a.{suffix}"))
        np.testing.assert_array_equal(image[0, :, 0], [0, 1, 255, 128])
        np.testing.assert_array_equal(image[..., 0], image[..., 2])

    def test_16_bit_grey_that_is_dark_stays_dark(self, tmp_path):
        path = saved(tmp_path, Image.fromarray(np.full((2, 2), 200, dtype=np.uint16)), "a.png")
        np.testing.assert_array_equal(read_image(path), np.full((2, 2, 3), 1))

    def test_16_bit_colour(self, tmp_path):
        cv2 = pytest.importorskip("cv2")
        path = tmp_path / "a.png"
        cv2.imwrite(str(path), COLOURS[:, :, ::-1].astype(np.uint16) * 257)
        np.testing.assert_array_equal(read_image(path), COLOURS)

    @pytest.mark.parametrize(
        ("values", "expected"),
        [([0, 100, 255], [0, 100, 255]), ([0, 257, 65535], [0, 1, 255]), ([-5, 10, 2**20], [0, 0, 255])],
    )
    def test_32_bit_integers(self, tmp_path, values, expected):
        path = saved(tmp_path, Image.fromarray(np.array([values], dtype=np.int32)), "a.tif")
        np.testing.assert_array_equal(read_image(path)[0, :, 1], expected)

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ([0.0, 0.5, 1.0], [0, 128, 255]),
            ([0.4, 100.0, 255.0], [0, 100, 255]),
            ([np.nan, 7.0, np.inf], [0, 0, 255]),
        ],
    )
    def test_floats(self, tmp_path, values, expected):
        path = saved(tmp_path, Image.fromarray(np.array([values], dtype=np.float32)), "a.tif")
        np.testing.assert_array_equal(read_image(path)[0, :, 1], expected)

    @pytest.mark.parametrize("suffix", ["tif", "jpg"])
    def test_cmyk(self, tmp_path, suffix):
        picture = Image.new("CMYK", (16, 16), (0, 255, 255, 0))  # no cyan, full magenta and yellow: red
        image = read_image(saved(tmp_path, picture, f"a.{suffix}"))
        np.testing.assert_allclose(image.astype(int), np.full((16, 16, 3), [255, 0, 0]), atol=3)

    def test_of_an_animation_the_first_frame_is_taken(self, tmp_path):
        frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
        path = saved(tmp_path, frames[0], "a.gif", save_all=True, append_images=frames[1:])
        np.testing.assert_array_equal(read_image(path), np.full((4, 4, 3), [255, 0, 0]))


def noise(size=64):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8))


def complaint_of(read, path):
    """What reading complains about, or the path itself if it succeeds; any other error gets through."""
    try:
        read(path)
    except DataError as error:
        return str(error)
    return str(path)


class TestFilesThatAreNoPictures:
    @pytest.mark.parametrize("kept", [0.3, 0.9])
    @pytest.mark.parametrize(
        ("suffix", "options"),
        [("jpg", {}), ("jpg", {"progressive": True}), ("png", {}), ("gif", {}), ("tif", {})],
    )
    def test_a_truncated_picture_is_never_half_decoded(self, tmp_path, suffix, options, kept):
        path = saved(tmp_path, noise(), f"a.{suffix}", **options)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * kept)])
        with pytest.raises(DataError, match=rf"a\.{suffix}: ") as caught:
            read_image(path)
        assert "\n" not in str(caught.value)

    def test_a_jpeg_that_lost_only_its_last_bytes(self, tmp_path):
        path = saved(tmp_path, noise(), "a.jpg")
        path.write_bytes(path.read_bytes()[:-40])
        with pytest.raises(DataError, match="damaged"):
            read_image(path)

    @pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "bmp", "tif", "webp", "ppm"])
    def test_any_prefix_of_a_file_is_a_picture_or_a_data_error(self, tmp_path, suffix):
        path = saved(tmp_path, noise(8), f"a.{suffix}")
        whole = path.read_bytes()
        for length in range(0, len(whole), max(1, len(whole) // 25)):
            path.write_bytes(whole[:length])
            for read in (read_image, image_size):
                assert str(path) in complaint_of(read, path)

    @pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
    def test_a_file_with_flipped_bytes_is_a_picture_or_a_data_error(self, tmp_path, suffix):
        rng = np.random.default_rng(1)
        path = saved(tmp_path, noise(16), f"a.{suffix}")
        whole = np.frombuffer(path.read_bytes(), dtype=np.uint8)
        for _ in range(40):
            spoilt = whole.copy()
            spoilt[rng.integers(0, len(whole), 4)] = rng.integers(0, 256, 4)
            path.write_bytes(spoilt.tobytes())
            assert str(path) in complaint_of(read_image, path)

    @pytest.mark.parametrize("read", [read_image, image_size, read_mask])
    @pytest.mark.parametrize(
        ("content", "says"), [(b"this is prose, not a picture", "not a picture"), (b"", "the file is empty")]
    )
    def test_text_and_empty_files(self, tmp_path, read, content, says):
        path = tmp_path / "a.jpg"
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"a\.jpg: .*{says}"):
            read(path)

    @pytest.mark.parametrize("read", [read_image, image_size, read_mask])
    def test_folders_and_missing_files(self, tmp_path, read):
        with pytest.raises(DataError, match="this is a folder, not a picture"):
            read(tmp_path)
        with pytest.raises(DataError, match=r"none\.jpg: there is no such file"):
            read(tmp_path / "none.jpg")
        (tmp_path / "file").write_text("x")
        with pytest.raises(DataError, match=r"a\.jpg: the file cannot be read \(Not a directory\)"):
            read(tmp_path / "file" / "a.jpg")

    def test_a_file_that_may_not_be_read(self, tmp_path):
        path = saved(tmp_path, noise(), "a.png")
        path.chmod(0)
        if os.access(path, os.R_OK):
            pytest.skip("this user may read everything")
        with pytest.raises(DataError, match="cannot be read"):
            read_image(path)

    def test_a_picture_with_too_many_pixels(self, tmp_path, monkeypatch):
        path = saved(tmp_path, noise(), "a.png")
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 64 * 64 // 3)
        with pytest.raises(DataError, match="too many pixels"):
            read_image(path)


class TestMasks:
    def test_palette_indices_come_out_as_they_are(self, tmp_path):
        numbers = np.array([[0, 1, 20], [15, 255, 7]], dtype=np.uint8)
        picture = Image.fromarray(numbers, "L")
        picture = picture.convert("P")
        picture.putdata(numbers.ravel().tolist())
        picture.putpalette([value for i in range(256) for value in (255 - i, 3, 9)])
        mask = read_mask(saved(tmp_path, picture, "a.png"))
        np.testing.assert_array_equal(mask, numbers)
        assert mask.dtype == np.uint8

    def test_grey_masks(self, tmp_path):
        np.testing.assert_array_equal(
            read_mask(saved(tmp_path, Image.new("L", (2, 1), 9), "a.png")), [[9, 9]]
        )

    def test_a_colour_picture_is_no_mask(self, tmp_path):
        with pytest.raises(DataError, match=r"a\.png: a mask must be a palette or grey picture"):
            read_mask(saved(tmp_path, noise(), "a.png"))
