"""How long each CUDA kernel should take, on paper: `python benchmarks/roofline.py > table.md`.

A kernel needs at least the time in which its bytes come from memory, its numbers are fetched from the caches,
and its operations are done, whichever is longest, and a few microseconds for each launch. The counts below
are those of the sources in `visionkl/backend/gpu`. None of it was measured: it is there so that a first run
on hardware can be judged. A kernel that takes more than three times as long deserves a look.

Two jobs are counted: a picture of 500 × 375 pixels searched with a model of 6 components and 48 parts of
6 × 6 cells (10 levels an octave, codes of 2 blocks and 256 codewords), and 100 000 rows of 3 000 numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

MICROSECONDS_A_LAUNCH = 4.0


@dataclass(frozen=True)
class Gpu:
    """Peaks of a GPU, from its data sheet; what the level-2 cache gives is a usual measurement."""

    name: str
    memory: float  # bytes a second
    cache: float  # bytes a second from level 2
    single: float  # float32 operations a second; a fused multiply-add counts as two
    double: float


GPUS = (
    Gpu("A100", 1.555e12, 5.0e12, 19.5e12, 9.7e12),
    Gpu("RTX 4090", 1.008e12, 5.0e12, 82.6e12, 1.29e12),
)


@dataclass(frozen=True)
class Work:
    """What a kernel does in a job."""

    kernel: str
    memory: float  # bytes
    cache: float = 0.0
    single: float = 0.0  # operations; a division or a cosine counts as many
    double: float = 0.0
    launches: int = 1

    def seconds(self, gpu: Gpu) -> float:
        """Least time on a GPU."""
        bound = max(
            self.memory / gpu.memory,
            self.cache / gpu.cache,
            self.single / gpu.single,
            self.double / gpu.double,
        )
        return bound + self.launches * MICROSECONDS_A_LAUNCH * 1e-6


@dataclass(frozen=True)
class Level:
    """A picture of the pyramid and the cells that are made of it."""

    pixels: int
    cell_size: int
    cells: int
    is_new: bool  # whether the picture was made for this level


def pyramid_levels(cols: int, rows: int, interval: int = 10, cell_size: int = 8) -> list[Level]:
    """List the levels of a pyramid, as `visionkl.features.pyramid` makes them."""
    levels = []
    for start in range(interval):
        width, height = cols * 2 ** (-start / interval), rows * 2 ** (-start / interval)
        levels.append(_level(width, height, cell_size // 2, is_new=True))
        halvings = 0
        while min(width, height) >= 5 * cell_size or not halvings:
            levels.append(_level(width, height, cell_size, is_new=halvings > 0))
            width, height, halvings = width / 2, height / 2, halvings + 1
    return levels


def _level(width: float, height: float, cell_size: int, *, is_new: bool) -> Level:
    cells = round(width / cell_size) * round(height / cell_size)
    return Level(round(width) * round(height), cell_size, cells, is_new)


def picture_work(cols: int = 500, rows: int = 375) -> list[Work]:
    """Count what is done to find objects in a picture, all levels together."""
    levels = pyramid_levels(cols, rows)
    n = len(levels)
    pixels = sum(level.pixels for level in levels if level.is_new)
    n_pictures = sum(level.is_new for level in levels)
    cells = sum(level.cells for level in levels)
    votes = sum(level.cells * 18 * (2 * level.cell_size) ** 2 for level in levels)
    n_parts, positions, n_blocks, n_words, size, taps = 48, 36, 2, 256, 16, 9
    places = cells  # of parts: nearly all cells
    # Roots are sought on all levels but the first octave's; on some, placements pass the threshold.
    n_components, n_roots, n_placed, boxes = 6, n - 10, 10, 2000
    return [
        Work("shrink", 2 * 24 * pixels, 9 * 24 * pixels, double=2 * 9 * 3 * pixels, launches=n_pictures),
        Work("hog_gradients", (24 + 8) * pixels, 5 * 24 * pixels, 9 * 6 * pixels, 3 * 5 * pixels, n_pictures),
        Work("hog_histograms", 8 * pixels + 72 * cells, 4 * votes / 18, 3 * votes, launches=n),
        Work("hog_energies", 76 * cells, single=27 * cells, launches=n),
        Work("hog_normalise", (72 + 128) * cells, 32 * 40 * cells, 32 * 15 * cells, 32 * 4 * 10 * cells, n),
        Work("nearest_words", (2 * 128 + 8 * n_blocks) * cells, single=3 * n_blocks * n_words * size * cells,
             launches=4 * n_blocks * n),
        Work("look_up (int16 tables)", (n_blocks + 4 * n_parts) * places,
             2 * n_parts * positions * n_blocks * places, positions * n_blocks * n_parts * places,
             launches=n),
        Work("dense filters (products)", 4 * (32 * 7 + n_parts * 2 * 6) * places,
             single=2 * 32 * positions * n_parts * places, launches=14 * n),
        Work("best_down", 4 * 1.5 * n_parts * places, 4 * taps * n_parts * places / 2,
             4 * taps * n_parts * places / 2, launches=4 * n),
        Work("add_across", 4 * n_parts * places / 2, 4 * taps * n_parts * places / 4,
             4 * taps * n_parts * places / 4, launches=4 * n),
        Work("envelope_down (without a radius)", (8 + 24) * n_parts * places,
             double=30 * 2 * n_parts * places, launches=2 * n),
        Work("choosing places (CuPy's own)", 4 * (2 * n_components + 4) * places, launches=8 * n_roots),
        Work("place_parts and the like", 8 * 12 * n_parts / n_components * boxes,
             4 * 81 * n_parts / n_components * boxes, 8 * 81 * n_parts / n_components * boxes,
             launches=11 * n_placed),
        Work("boxes (CuPy's own)", 8 * 4 * 20 * (1 + n_parts / n_components) * boxes,
             launches=50 + 20 * n_components),
        Work("compare_boxes, take_off (2 000 boxes)", boxes**2 / 8, double=15 * boxes**2, launches=2),
        Work("sift (step 3, 4 scales)", 4 * 4 * (2 * 4 + 64) * cols * rows, 4 * 4 * 15 * 16 * cols * rows,
             4 * 2 * 15 * 16 * cols * rows, launches=4 * 6),
    ]  # fmt: skip


def rows_work(n: int = 100_000, d: int = 3000) -> list[Work]:
    """Count what is done to many rows."""
    d_in, n_blocks, n_words, lanes, others = 128, d // 8, 256, 16, 1000
    n_stumps = 20_000
    numbers = n * d
    return [
        Work("Fourier map: product (128 inputs)", 4 * (n * d_in + numbers), single=2 * d_in * numbers),
        Work("Fourier map: waves_f32", 8 * numbers, single=25 * numbers),
        Work("waves_and_slopes_f32", 12 * numbers, single=45 * numbers),
        Work("spectrum_f32 (order 1)", 16 * numbers, single=90 * numbers),
        Work(
            f"add_pairs_f32, chi2 with {others} rows",
            4 * (n + others) * d * others / 64,
            single=14 * numbers * others,
        ),
        Work("add_pairs_f32, intersection", 4 * (n + others) * d * others / 64, single=2 * numbers * others),
        Work("code_scores_u8", n * n_blocks, 4 * n * n_blocks, n * n_blocks, n * n_blocks / 4),
        Work("scatter_u8", n * n_blocks + 12 * n * n_blocks / 64, 13 * n * n_blocks, double=2 * n * n_blocks),
        Work("line_scores_u8 (16 lanes)", n * n_blocks, 5 * lanes * n * n_blocks, lanes * n * n_blocks),
        Work(
            "scatter_lines_u8 (16 lanes)",
            n * n_blocks + 4 * lanes * n,
            9 * lanes * n * n_blocks,
            2 * lanes * n * n_blocks,
        ),
        Work("multiply_decoded_u8", n * n_blocks, 4 * numbers, 2 * numbers),
        Work(
            "nearest_words (blocks of 8)", 12 * numbers, single=3 * n_words * numbers, launches=4 * n_blocks
        ),
        Work(
            "stumps_f32 (20 000)",
            4 * numbers + n * n_stumps / 8,
            cache=12 * n * n_stumps,
            single=4 * n * n_stumps,
        ),
        Work(
            f"agreements_f32 (20 000 bits, {others} rows)",
            (n + others) * n_stumps / 8 + 4 * n * others,
            cache=2 * n * others * n_stumps / 8,
            single=4 * n * others * n_stumps / 64,
        ),
        Work(
            f"weigh_f32 (20 000 bits, {others} rows)",
            (n + others) * n_stumps / 8 + 4 * n * others,
            cache=(2 + 8) * n * others * n_stumps / 8,
            double=n * others * n_stumps / 8,
        ),
        Work("posteriors_f32 (256 Gaussians)", 3 * 8 * n * 256, single=30 * n * 256),
        Work("add_relevant (product, 256 × 161)", 4 * n * (256 + 161), single=2 * n * 256 * 161),
    ]


def table(title: str, work: list[Work]) -> list[str]:
    """Write a table."""
    lines = [
        f"## {title}",
        "",
        "| kernel | memory MB | cache MB | float32 GFlop | float64 GFlop | launches | ",
    ]
    lines[-1] += " | ".join(f"{gpu.name} ms" for gpu in GPUS) + " |"
    lines.append("|" + "---|" * (6 + len(GPUS)))
    for one in work:
        counts = (one.memory / 1e6, one.cache / 1e6, one.single / 1e9, one.double / 1e9)
        shown = [f"{count:.3g}" if count else "–" for count in counts]
        times = [f"{1e3 * one.seconds(gpu):.3g}" for gpu in GPUS]
        lines.append("| " + " | ".join([one.kernel, *shown, str(one.launches), *times]) + " |")
    return [*lines, ""]


def main() -> None:
    """Print both tables."""
    print("\n".join(table("A picture of 500 × 375 pixels", picture_work())))
    print("\n".join(table("100 000 rows of 3 000 numbers", rows_work())))
    total = [sum(one.seconds(gpu) for one in detection_chain()) for gpu in GPUS]
    named = ", ".join(f"{1e3 * time:.1f} ms on {gpu.name}" for time, gpu in zip(total, GPUS, strict=True))
    launches = sum(one.launches for one in detection_chain())
    print(f"The whole chain from a picture to boxes, on codes: {named}, for {launches} launches.")


def detection_chain() -> list[Work]:
    """List what a search on codes is made of."""
    left_out = ("dense", "envelope", "sift")
    return [one for one in picture_work() if not one.kernel.startswith(left_out)]


if __name__ == "__main__":
    main()
