"""Real all-reduces between network namespaces: what they send, and that nothing stays behind."""

from __future__ import annotations

import functools
import os
import subprocess

import pytest

import tests.training.ranks  # noqa: F401  its fork server has imported torch
from benchmarks import scaling
from benchmarks.links import linked_nodes, run_on, steps, why_not
from training.command import InputError
from training.scaling.ring import ring_bytes

pytestmark = pytest.mark.training

PAYLOAD = 8 << 20
TIMES = 3


@pytest.fixture(scope="module", autouse=True)
def able() -> None:
    if reason := why_not():
        pytest.skip(f"no linked nodes on this machine: {reason}")


def namespaces() -> str:
    return subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("count", [2, 4])
def test_every_node_sends_what_the_ring_model_says(count: int) -> None:
    work = functools.partial(steps, accumulate=0, micro_seconds=0.0, payload=PAYLOAD, times=TIMES)
    with linked_nodes(count, bits_per_second=None) as nodes:
        results = run_on(nodes, work)
    # Headers and acknowledgements come on top: a third of a percent.
    expected = pytest.approx(ring_bytes(count, payload=PAYLOAD), rel=0.02)
    assert [sent / TIMES for _, sent in results] == [expected] * count


def fail() -> None:
    raise RuntimeError("broken on purpose")


def test_nothing_stays_behind_after_a_failure() -> None:
    names: list[str] = []
    with (
        pytest.raises(InputError, match="no answer from worker 0 of 2"),
        linked_nodes(2, bits_per_second=1_000_000) as nodes,
    ):
        names += [node.namespace for node in nodes]
        assert all(name in namespaces() for name in names)
        run_on(nodes, fail)
    assert not any(name in namespaces() for name in names)
    assert names[0].rpartition("-")[0] not in namespaces()


def test_the_benchmark_compares_real_steps_with_the_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scaling, "cases", lambda: [("all-reduce alone", 2, 0)])
    monkeypatch.setattr(scaling, "PAYLOAD", 1 << 20)
    assert scaling.main(["--mbps", "1000", "--times", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    _, title, nodes, measured, modelled, ratio, _ = lines[4].split("|")
    assert (title.strip(), nodes.strip()) == ("all-reduce alone", "2")
    shown = float(measured.split()[0]) / float(modelled.split()[0])
    assert shown == pytest.approx(float(ratio), rel=0.2)  # of times with three digits
    assert "within 15%" in lines[-1]


def test_the_benchmark_refuses_what_it_cannot_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scaling.main(["--mbps", "0"]) == 2
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert scaling.main([]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "error: --mbps 0 --times 5: give 1 or more of each",
        "error: network namespaces need root",
    ]
