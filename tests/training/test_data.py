"""The order of examples, how a batch is cut, and how both get there in time."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from training.command import InputError
from training.core.data import EMPTY, Batch, Order, check_filled, cut_batch, prefetch, share, stage
from training.core.settings import Train

pytestmark = pytest.mark.training

LENGTHS = [1 + number % 37 for number in range(101)]


def order(**changes: Any) -> Order:
    return Order(LENGTHS, **({"batch": 8, "seed": 0, "width": None} | changes))


def test_an_epoch_has_every_example_once_and_fills_the_last_batch() -> None:
    made = order()
    assert made.steps_per_epoch == 13
    for epoch in (0, 1):
        batches = [made.rows(step) for step in range(13 * epoch, 13 * (epoch + 1))]
        assert {len(rows) for rows in batches} == {8}
        rows = [row for rows in batches for row in rows]
        assert sorted(rows) == [EMPTY] * 3 + list(range(101))
        assert {made.epoch(step) for step in range(13 * epoch, 13 * (epoch + 1))} == {epoch}


def test_the_order_depends_on_seed_and_epoch_and_on_nothing_before() -> None:
    whole = [order().rows(step) for step in range(26)]
    assert order().rows(20) == whole[20]  # asked first, by a resumed run
    assert whole[:13] != whole[13:]
    assert [order(seed=1).rows(step) for step in range(13)] != whole[:13]


def test_examples_of_like_length_share_a_batch() -> None:
    made = order()
    spread = [
        max(lengths) - min(lengths)
        for step in range(13)
        if (lengths := [LENGTHS[row] for row in made.rows(step) if row != EMPTY])
    ]
    assert sum(spread) / len(spread) < 5  # at random it would be about 29


def test_the_width_holds_the_longest_and_is_fixed_on_request() -> None:
    made = order()
    for step in range(13):
        rows = made.rows(step)
        longest = max(LENGTHS[row] for row in rows if row != EMPTY)
        assert 0 <= made.width(rows) - longest < 8
        assert made.width(rows) % 8 == 0
        assert order(width=64).width(rows) == 64


@pytest.mark.parametrize(("workers", "micro"), [(1, 8), (1, 2), (2, 4), (2, 1), (4, 2), (8, 1)])
def test_the_workers_share_a_batch_without_gap_or_overlap(workers: int, micro: int) -> None:
    rows = list(range(16))
    batch = cut_batch(Train(batch_size=16, micro_batch_size=micro), workers=workers)
    assert batch.micro * batch.accumulate * workers == batch.size == 16
    parts = [
        part for rank in range(workers) for part in share(rows, batch, rank=rank, workers=workers)
    ]
    parts.sort(key=lambda part: part.number)
    assert [part.number for part in parts] == list(range(16 // micro))
    assert [row for part in parts for row in part.rows] == rows


@pytest.mark.parametrize(
    ("settings", "workers", "advice"),
    [
        ({"batch_size": 100_000}, 1, "the largest train.batch_size that works is 3390"),
        ({"batch_size": 4096}, 4, "the largest train.batch_size that works is 3388"),
        (
            {"batch_size": 4096, "micro_batch_size": 32},
            2,
            "the largest train.batch_size that works is 3328",
        ),
        (
            {"batch_size": 1024, "scaling": "weak", "micro_batch_size": 8},
            4,
            "the largest train.batch_size that works is 840",
        ),
        (
            {"batch_size": 4096, "micro_batch_size": 4096},
            1,
            "take fewer workers or a smaller train.micro_batch_size",
        ),
    ],
)
def test_a_batch_of_more_than_all_texts_is_refused_with_the_largest(
    settings: dict[str, Any], workers: int, advice: str
) -> None:
    train = Train(**settings)
    batch = cut_batch(train, workers=workers)
    with pytest.raises(InputError) as caught:
        check_filled(batch, train, texts=3390, workers=workers)
    assert str(caught.value) == (
        f"a batch of {batch.size} is more than the 3390 texts to train on; {advice}"
    )
    if "largest" in advice:
        fits = Train(**settings | {"batch_size": int(advice.split()[-1])})
        check_filled(cut_batch(fits, workers=workers), fits, texts=3390, workers=workers)


def test_weak_scaling_grows_the_batch_and_the_rate_by_its_rule() -> None:
    weak = Train(batch_size=32, learning_rate=1e-3, scaling="weak")
    batch = cut_batch(weak, workers=4)
    assert batch == Batch(size=128, micro=32, accumulate=1, learning_rate=1e-3 * math.sqrt(4))
    strong = cut_batch(Train(batch_size=32, learning_rate=1e-3), workers=4)
    assert strong == Batch(size=32, micro=8, accumulate=1, learning_rate=1e-3)


@pytest.mark.parametrize(
    ("batch_size", "micro", "workers", "scaling", "message"),
    [
        (
            32,
            None,
            3,
            "strong",
            "a batch of 32 cannot be cut evenly over 3 workers; nearest train.batch_size that "
            "can: 30 and 33; nearest numbers of workers: 2 and 4",
        ),
        (
            128,
            5,
            1,
            "strong",
            "over 1 worker with micro-batches of 5; nearest train.batch_size that can: 125 and 130",
        ),
        (
            4,
            None,
            8,
            "strong",
            "nearest train.batch_size that can: 8; nearest numbers of workers: 4",
        ),
        (
            16384,
            16,
            24 * 32,
            "strong",
            "nearest train.batch_size that can: 12288 and 24576; nearest numbers of workers: 512 "
            "and 1024",
        ),
        (12, 5, 4, "weak", "nearest train.batch_size that can: 10 and 15"),
    ],
)
def test_a_batch_that_cannot_be_kept_is_refused_with_the_nearest_that_can(
    batch_size: int, micro: int | None, workers: int, scaling: Any, message: str
) -> None:
    train = Train(batch_size=batch_size, micro_batch_size=micro, scaling=scaling)
    with pytest.raises(InputError) as caught:
        cut_batch(train, workers=workers)
    assert str(caught.value).endswith(message)


def test_steps_are_made_ahead_in_order_and_not_without_bound() -> None:
    made: list[int] = []

    def make(number: int) -> int:
        made.append(number)
        return number

    steps = prefetch(make, start=3, stop=1000)
    assert [next(steps) for _ in range(2)] == [(3, 3), (4, 4)]
    deadline = time.monotonic() + 10
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert 4 <= len(made) <= 6
    steps.close()
    assert "prefetch" not in {thread.name for thread in threading.enumerate()}


def test_what_fails_ahead_is_raised_where_it_is_awaited() -> None:
    steps = prefetch(lambda number: 6 // (2 - number), start=0, stop=9)
    assert [next(steps), next(steps)] == [(0, 3), (1, 6)]
    with pytest.raises(ZeroDivisionError):
        next(steps)


def test_a_staged_file_is_copied_once_and_again_when_it_changed(tmp_path: Path) -> None:
    source, folder = tmp_path / "shared" / "texts.csv", tmp_path / "disk"
    source.parent.mkdir()
    source.write_text("one", encoding="utf-8")
    waiting = stage(source, folder, copies=False)
    assert not waiting.exists()
    local = stage(source, folder, copies=True)
    assert local == waiting
    assert (local.name, local.read_text(encoding="utf-8")) == ("texts.csv", "one")
    before = local.stat().st_mtime_ns
    assert stage(source, folder, copies=True).stat().st_mtime_ns == before
    source.write_text("other", encoding="utf-8")
    assert stage(source, folder, copies=True).read_text(encoding="utf-8") == "other"
    assert not list(folder.rglob(".*"))


def test_what_cannot_be_staged_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot stage .*none.csv to .*: No such file"):
        stage(tmp_path / "none.csv", tmp_path, copies=True)
