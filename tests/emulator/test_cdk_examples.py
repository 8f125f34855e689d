"""Examples, deployed by the real CDK CLI to an emulated account of their own, and taken away again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from operations import leftovers
from operations.emulator import Emulator
from operations.rehearsal.account import Account
from operations.rehearsal.progress import Progress
from tests.emulator.test_examples import adapted

pytestmark = pytest.mark.emulator

ROOT = Path(__file__).parents[2]
OBJECTS = 1500


@pytest.fixture(scope="module")
def bootstrapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    folder = tmp_path_factory.mktemp("examples")
    with Emulator(
        run_directory=folder / "emulator",
        model_server_python=ROOT / ".venv-training" / "bin" / "python",
        settle_seconds=0.2,
    ) as running:
        account = Account(running, environment="dev", prefix="", logs=folder)
        with Progress(1).step("bootstrap") as step:
            account.cdk(step, "bootstrap", f"aws://000000000000/{running.region}")
        yield running


def fill(emulator: Emulator, bucket: str) -> None:
    """Versions, a delete marker, many objects and an upload that never ended."""
    s3 = emulator.client("s3")
    for text in (b"one", b"two", b"three"):
        s3.put_object(Bucket=bucket, Key="thrice", Body=text)
    s3.delete_object(Bucket=bucket, Key="thrice")
    s3.create_multipart_upload(Bucket=bucket, Key="unfinished")
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda number: s3.put_object(Bucket=bucket, Key=f"many/{number}", Body=b"x"),
                range(OBJECTS),
            )
        )


@pytest.mark.case("S01")
@pytest.mark.parametrize("example", ["two-queues", "no-nat", "imported-vpc"])
def test_an_example_is_deployed_and_destroyed(
    bootstrapped: Emulator, example: str, tmp_path: Path
) -> None:
    settings = tmp_path / f"{example}.toml"
    text = (ROOT / "config" / "examples" / f"{example}.toml").read_text(encoding="utf-8")
    settings.write_text(adapted(bootstrapped, text), encoding="utf-8")
    prefix = f"ultracluster-{example}"
    account = Account(bootstrapped, environment=str(settings), prefix=prefix, logs=tmp_path)
    progress = Progress(2)
    with progress.step("deploy") as step:
        account.cdk(step, "deploy", "--all", "--require-approval", "never")
    assert account.outputs("cluster")["ClusterName"] == prefix
    assert account.served_model() == "none"
    if example == "two-queues":
        fill(bootstrapped, account.outputs("storage")["DataBucket"])
    kept = account.outputs("storage")["FileSystemId"]
    with progress.step("destroy") as step:
        account.cdk(step, "destroy", "--all", "--force")
    found = leftovers.find(bootstrapped.client, prefix=prefix)
    unexpected = [str(item) for item in found if not item.expected]
    if example == "imported-vpc":
        # `lustre.keep`: the file system and its security group outlive the stack.
        assert any(kept in item for item in unexpected)
        bootstrapped.client("fsx").delete_file_system(FileSystemId=kept)
    else:
        assert unexpected == []
