"""Which samples a step has: a function of seed and step, for any number of workers."""

from __future__ import annotations

import numpy as np
import pytest

from training.bert_pretraining.order import Stream, permute
from training.command import InputError
from training.core.data import cut_batch, share
from training.core.settings import Train

pytestmark = pytest.mark.training


@pytest.mark.parametrize("count", [1, 2, 3, 10, 97, 1024, 10_007, 250_000])
def test_a_permutation_has_every_number_once(count: int) -> None:
    found = permute(np.arange(count), count, key="1/0")
    assert np.array_equal(np.sort(found), np.arange(count))


def test_a_permutation_is_computed_a_number_at_a_time() -> None:
    whole = permute(np.arange(5000), 5000, key="k")
    places = np.array([4999, 0, 17, 17])
    assert np.array_equal(permute(places, 5000, key="k"), whole[places])


def test_the_order_looks_random() -> None:
    count = 100_000
    orders = [permute(np.arange(count), count, key=f"0/{epoch}") for epoch in range(3)]
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert abs(np.corrcoef(orders[one], orders[other])[0, 1]) < 0.015
        assert np.mean(orders[one] == orders[other]) < 1e-3
    for order in orders:
        assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.015
        assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < 0.015
        # Neighbours in the order come from all over: a quarter of the steps go a quarter away.
        far = np.mean(np.abs(np.diff(order)) > count / 4)
        assert far == pytest.approx(9 / 16, abs=0.02)


def test_every_epoch_has_every_sample_once_and_no_batch_is_short() -> None:
    stream = Stream(103, batch=10, seed=3, width=8)
    rows = [row for step in range(103) for row in stream.rows(step)]
    for epoch in range(10):
        part = rows[epoch * 103 : (epoch + 1) * 103]
        assert sorted(part) == list(range(103))
    assert len({tuple(rows[at : at + 103]) for at in range(0, 1030, 103)}) == 10
    assert [stream.epoch(step) for step in (0, 10, 11, 102)] == [0, 0, 1, 9]
    assert len(stream.rows(10)) == 10
    assert stream.rows(10).count(-1) == 0
    assert list(Stream(103, batch=10, seed=4, width=8).rows(0)) != rows[:10]


@pytest.mark.parametrize(
    ("batch", "micro", "worlds"),
    [
        (65_536, 16, (64, 512, 1024, 4096)),
        (65_536, 1, (65_536,)),
        (960_000, 16, (1875, 60_000)),
    ],
)
def test_batches_are_equal_for_any_number_of_workers_up_to_60_000(
    batch: int, micro: int, worlds: tuple[int, ...]
) -> None:
    stream = Stream(57_000_001, batch=batch, seed=12_349, width=128)
    step = 59_000  # in some later epoch
    whole = np.array(list(stream.rows(step)))
    assert len(np.unique(whole)) == batch
    for world in worlds:
        cut = cut_batch(Train(batch_size=batch, micro_batch_size=micro), workers=world)
        assert cut.micro * cut.accumulate * world == batch
        rows = stream.rows(step)
        for rank in {0, 1 % world, world // 2, world - 1}:
            for one in share(rows, cut, rank=rank, workers=world):
                expected = whole[one.number * micro : (one.number + 1) * micro]
                assert one.rows == expected.tolist()


@pytest.mark.parametrize(
    ("batch", "workers", "message"),
    [
        (16_384, 1536, "nearest numbers of workers: 1024 and 2048"),
        (65_536, 60_000, "nearest numbers of workers: 32768 and 65536"),
        (65_536, 24 * 32, "nearest train.batch_size that can: 65280 and 66048"),
    ],
)
def test_a_batch_that_cannot_be_cut_names_the_nearest_counts(
    batch: int, workers: int, message: str
) -> None:
    """The reference cuts on with what is left, or divides by zero."""
    with pytest.raises(InputError) as error:
        cut_batch(Train(batch_size=batch), workers=workers)
    assert message in str(error.value)


def test_weak_scaling_keeps_the_share_of_each_of_60_000_workers() -> None:
    train = Train(batch_size=16, scaling="weak", learning_rate=1e-4)
    cut = cut_batch(train, workers=60_000)
    assert (cut.size, cut.micro, cut.accumulate) == (960_000, 16, 1)
    assert cut.learning_rate == pytest.approx(1e-4 * 60_000**0.5)
