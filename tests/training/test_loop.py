"""The loop with one and several workers: equal batches and losses, exact resume, agreed stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training import ranks
from tests.training.tiny import EXAMPLES, train_tiny
from training.core.loop import schedule
from training.core.store import FolderStore

pytestmark = pytest.mark.training


def train(folder: Path, world: int = 1, **options: Any) -> list[dict[str, Any]]:
    """What each worker of a run tells."""
    return ranks.run(world, train_tiny, folder, options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """An uninterrupted run, by the number of its workers."""
    return {
        world: train(tmp_path_factory.mktemp("whole"), world, micro=2)[0] for world in (1, 2, 4)
    }


def test_any_number_of_workers_gives_the_same_losses(whole: dict[int, dict[str, Any]]) -> None:
    losses = [list(whole[world]["losses"].values()) for world in (1, 2, 4)]
    assert len(losses[0]) == 12
    assert len(set(losses[0])) == 12
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)


def test_any_cut_of_a_batch_gives_the_same_losses(tmp_path: Path) -> None:
    # Labels weigh differently, so a mean of the parts' means would be another number. Without
    # dropout, whose masks depend on the cut.
    def losses(world: int, micro: int) -> list[float]:
        folder = tmp_path / f"{world}-{micro}"
        return list(train(folder, world, micro=micro, dropout=0.0)[0]["losses"].values())

    expected = losses(1, 8)
    for world, micro in ((1, 1), (1, 4), (2, 2), (2, 4)):
        assert losses(world, micro) == pytest.approx(expected, rel=1e-5)


def test_the_optimizer_follows_the_schedule(whole: dict[int, dict[str, Any]]) -> None:
    assert whole[1]["rate"] == pytest.approx(0.05 * schedule(11, steps=12, warm_up=0.1))


def test_any_number_of_workers_and_cut_gives_the_same_batches(tmp_path: Path) -> None:
    def batches(world: int, micro: int) -> list[set[int]]:
        seen = [told["seen"] for told in train(tmp_path / f"{world}-{micro}", world, micro=micro)]
        each = 8 // world // micro
        return [
            {row for rows in seen for part in rows[step * each : (step + 1) * each] for row in part}
            for step in range(12)
        ]

    expected = batches(1, 8)
    assert set().union(*expected[:6]) - {-1} == set(range(EXAMPLES))
    assert batches(1, 1) == batches(2, 4) == batches(4, 1) == expected


@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_stopped_run_goes_on_to_the_same_bits(
    whole: dict[int, dict[str, Any]], tmp_path: Path, world: int
) -> None:
    first = train(tmp_path, world, micro=2, stop=("step", world - 1, 7))
    assert {told["stopped"] for told in first} == {True}
    (step,) = {told["step"] for told in first}
    assert step == 8
    second = train(tmp_path, world, micro=2)
    assert {told["from"] for told in second} == {8}
    assert {told["weights"] for told in second} == {whole[world]["weights"]}
    assert FolderStore(tmp_path).steps() == [12, 10]  # 5 and the stop at 8 have made room
    losses = first[0]["losses"] | second[0]["losses"]
    assert losses == whole[world]["losses"]


def test_another_number_of_workers_goes_on_to_the_same_losses(
    whole: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    train(tmp_path, 2, micro=2, stop=("step", 0, 6))
    rest = train(tmp_path, 1, micro=2)[0]
    assert rest["from"] == 7
    for step, loss in rest["losses"].items():
        assert loss == pytest.approx(whole[2]["losses"][step], rel=1e-5)


@pytest.mark.parametrize(
    ("phase", "rank", "at", "steps"),
    [
        ("start", 1, 0, {0}),
        ("data", 1, 6, set(range(3, 8))),  # data are made ahead
        ("step", 0, 3, {4}),
        ("step", 1, 3, {4}),
        ("checkpoint", 0, 5, {6, 7}),  # written beside the steps
    ],
)
def test_a_signal_to_one_worker_stops_all_with_one_checkpoint(
    tmp_path: Path, phase: str, rank: int, at: int, steps: set[int]
) -> None:
    told = train(tmp_path, 2, stop=(phase, rank, at))
    assert [one["stopped"] for one in told] == [True, True]
    (step,) = {one["step"] for one in told}
    assert step in steps
    assert FolderStore(tmp_path).steps()[0] == step
    assert len({one["weights"] for one in told}) == 1


def test_a_file_stops_the_run_before_its_first_step(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    told = train(tmp_path, 2, stop=("file", 0, 0))
    assert [(one["stopped"], one["step"]) for one in told] == [(True, 0), (True, 0)]


def test_a_killed_worker_ends_the_others_and_the_newest_checkpoint_serves(
    whole: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    workers = ranks.start(2, kill_myself_at, tmp_path, 8)
    codes = [worker.code() for worker in workers]
    assert codes[1] == -9
    assert codes[0] not in (0, None)
    assert FolderStore(tmp_path).steps() == [5]
    rest = train(tmp_path, 2, micro=2)
    assert {one["from"] for one in rest} == {5}
    assert {one["weights"] for one in rest} == {whole[2]["weights"]}


def kill_myself_at(folder: Path, step: int) -> Any:
    """Train until the second worker is gone without a word."""
    import os
    import signal

    from tests.training import tiny

    class Killing(tiny.Tiny):
        def loss(self, forward: Any, batch: Any) -> Any:
            if os.environ["RANK"] == "1" and len(self.seen) and self.step == step * 2:
                os.kill(os.getpid(), signal.SIGKILL)
            self.step += 1
            return super().loss(forward, batch)

        step = 0

    tiny.Tiny = Killing  # type: ignore[misc]
    return train_tiny(folder, {"micro": 2})


@pytest.mark.case("T02")
def test_fixed_width_gives_one_shape(tmp_path: Path) -> None:
    # 43 examples of 1 to 19 words do not divide by 8; twelve steps are two epochs.
    told = train(tmp_path / "fixed", width=24)[0]
    assert told["shapes"] == {(8, 24)}
    near = train(tmp_path / "near")[0]
    assert near["shapes"] <= {(8, 8), (8, 16), (8, 24)}
    assert len(near["shapes"]) > 1
    for step, loss in told["losses"].items():
        assert loss == pytest.approx(near["losses"][step], rel=1e-5)
