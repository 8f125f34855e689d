"""Wrong combinations of the endpoint's options, each told with what is allowed."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.unit.test_rules import AWS, NETWORK, QUEUE, errors, told, warnings
from ultracluster.catalog import load_catalog
from ultracluster.environment import load_environment
from ultracluster.rules import Level
from ultracluster.serving_process import ServingProcess, serving_process
from ultracluster.settings import Endpoint, SettingsError

AWS_IMAGES = "763104351884.dkr.ecr.us-west-2.amazonaws.com"
ARM = "pytorch-inference-arm64"
TAG = "2.6.0-cpu-py312-ubuntu22.04-sagemaker"
SECOND_ZONE = NETWORK + 'second_az_id = "usw2-az1"\n'


def image(uri: str, *, torch: str = "2.6.0", python: str = "3.12") -> str:
    return f'[endpoint.image]\nuri = "{uri}"\ntorch = "{torch}"\npython = "{python}"\n'


@pytest.mark.parametrize(
    ("more", "message"),
    [
        pytest.param(
            '[endpoint]\ninstance_type = "ml.c5.xlarge"\n',
            "the image is arm64 and needs ml.FAMILY.SIZE, .* c6g, c6gd, .*catalog as of 2026",
            marks=pytest.mark.case("M01"),
        ),
        pytest.param(
            '[endpoint]\ninstance_type = "ml.m7g.xlarge"\n',
            "got 'ml.m7g.xlarge'; the image is arm64",
            marks=pytest.mark.case("M01"),
        ),
        (
            '[endpoint]\ninstance_type = "ml.c7g.medium"\n',
            "got 'ml.c7g.medium'; this family has ml.c7g.large, ml.c7g.xlarge",
        ),
        pytest.param(
            image(f"{AWS_IMAGES}/huggingface-pytorch-inference:2.6.0"),
            "uri: got 'huggingface-pytorch-inference', whose images are for x86; .*"
            "pytorch-inference-arm64, pytorch-inference-graviton",
            marks=pytest.mark.case("M01"),
        ),
        pytest.param(
            image(f"{AWS_IMAGES}/{ARM}:2.6-cpu-py312-ubuntu22.04-sagemaker"),
            f"uri: got the tag '2.6-cpu-.* is not known to have; nearest: {re.escape(TAG)}.*"
            r"add the tag to \[serving_images.images.pytorch-inference-arm64\] of catalog.toml",
            marks=pytest.mark.case("M02"),
        ),
        (
            image(f"{AWS_IMAGES}/{ARM}:{TAG}", torch="2.7.0"),
            "torch: got '2.7.0'; the image has 2.6.0",
        ),
        (
            image(f"{AWS_IMAGES}/{ARM}:{TAG}", python="3.11"),
            "python: got '3.11'; the image has 3.12",
        ),
        (image("pytorch:latest"), "uri: got 'pytorch:latest'; allowed: ACCOUNT.dkr.ecr"),
        (image(f"{AWS_IMAGES}/{'r' * 256}:1"), "allowed: ACCOUNT.dkr.ecr"),
        (image(f"{AWS_IMAGES}/own/:1"), "allowed: ACCOUNT.dkr.ecr"),
        (image(f"{AWS_IMAGES}/own:-1"), "allowed: ACCOUNT.dkr.ecr"),
        (image(f"{AWS_IMAGES}/own:é"), "allowed: ACCOUNT.dkr.ecr"),
        (
            image("111122223333.dkr.ecr.eu-west-1.amazonaws.com/own:1"),
            "got an image of eu-west-1; the endpoint pulls from us-west-2",
        ),
        ('[endpoint.image]\nuri = "x"\n', "endpoint.image.torch: missing; add it"),
        ('[endpoint]\nimage = "x"\n', "endpoint.image: got 'x'; it should be a table"),
        pytest.param(
            '[endpoint]\ninstance_type = "ml.c7g.large"\nlargest_package_mib = 3072\n',
            r"got 3072; not one worker fits into ml.c7g.large \(3072 MiB x 1.25 and 256 MiB .*"
            r"512 MiB for the server, of 4 GiB\)",
            marks=pytest.mark.case("M19"),
        ),
        pytest.param(
            '[endpoint]\ninstance_type = "ml.c7g.2xlarge"\nworkers = 8\n',
            "endpoint.workers: got 8; ml.c7g.2xlarge holds 2 ",
            marks=pytest.mark.case("M19"),
        ),
        (
            '[endpoint]\ninstance_type = "ml.c6g.4xlarge"\nbf16 = true\n',
            "bf16: got true; the processor of ml.c6g.4xlarge has no bfloat16",
        ),
        pytest.param(
            "[endpoint]\nstartup_seconds = 300\n",
            "startup_seconds: got 300; a package of 4096 MiB may take 384: raise it",
            marks=[pytest.mark.case("M08"), pytest.mark.case("M09")],
        ),
        pytest.param(
            "[endpoint]\ndownload_seconds = 400\n",
            "download_seconds: got 400; a package of 4096 MiB may take 469",
            marks=pytest.mark.case("M09"),
        ),
        pytest.param(
            "[endpoint]\nstartup_seconds = 59\n",
            "startup_seconds: got 59; input should be greater than or equal to 60",
            marks=pytest.mark.case("M08"),
        ),
        pytest.param(
            "[endpoint]\nstartup_seconds = 3601\n",
            "startup_seconds: got 3601; input should be less than or equal to 3600",
            marks=pytest.mark.case("M08"),
        ),
        pytest.param(
            "[endpoint]\nmax_request_bytes = 6291457\n",
            "max_request_bytes: got 6291457; input should be less than or equal to 6291456",
            marks=pytest.mark.case("M20"),
        ),
        ('[endpoint]\ntraffic = "canary"\n', "traffic: got 'canary' with one instance"),
        (
            '[endpoint]\ntraffic = "canary"\ninstance_count = 3\nstep_instances = 2\n',
            "step_instances: got 2 of 3 instances; allowed for canary: 1 to 1",
        ),
        (
            '[endpoint]\ntraffic = "linear"\ninstance_count = 20\n',
            "step_instances: got 1 of 20 instances; allowed for linear: 2 to 10",
        ),
        (
            '[endpoint]\ntraffic = "linear"\ninstance_count = 4\n'
            "[endpoint.scaling]\nmax_count = 15\nrequests_per_minute = 9\n",
            "step_instances: got 1 of 4 to 15 instances; allowed for linear: 2 to 2",
        ),
        (
            '[endpoint]\ntraffic = "linear"\ninstance_count = 2\n'
            "[endpoint.scaling]\nmax_count = 20\nrequests_per_minute = 9\n",
            "allowed for linear: none: a tenth of 20 is more than half of 2, so take a canary",
        ),
        (
            '[endpoint]\ntraffic = "linear"\ninstance_count = 10\nstep_minutes = 6\n',
            "step_minutes: got pauses of 64 minutes together with the bake; at most 60",
        ),
        ("[endpoint]\nbake_minutes = 61\n", "bake_minutes: got 61; .* equal to 60"),
        (
            "[endpoint]\ninstance_count = 2\n"
            "[endpoint.scaling]\nmax_count = 2\nrequests_per_minute = 9\n",
            "scaling.max_count: got 2 with an instance_count of 2, the least",
        ),
        (
            "[endpoint.scaling]\nmax_count = 2\n",
            "endpoint.scaling.requests_per_minute: missing",
        ),
        pytest.param(
            "[endpoint]\nvpc = true\n",
            "network.second_az_id: missing; endpoint.vpc needs a private subnet in a second zone",
            marks=pytest.mark.case("M22"),
        ),
        (
            '[endpoint.capture]\nkey_arn = "arn:aws:kms:us-west-2:111122223333:alias/data"\n',
            "key_arn: got 'arn:aws:kms:us-west-2.*:key/ID",
        ),
        (
            '[endpoint.capture]\nkey_arn = "arn:aws:kms:eu-west-1:111122223333:key/1"\n',
            "key_arn: got 'arn:aws:kms:eu-west-1.*it should be a KMS key of us-west-2",
        ),
        ('[endpoint.capture]\nprefix = "/kept/"\n', "capture.prefix: got '/kept/'"),
        ("[endpoint.alarms]\nerror_percent = 0\n", "error_percent: got 0; input should be greater"),
    ],
)
def test_refused(tmp_path: Path, more: str, message: str) -> None:
    assert re.search(message, errors(tmp_path, more=more)), errors(tmp_path, more=more)


def test_all_wrong_options_are_told_at_once(tmp_path: Path) -> None:
    message = errors(
        tmp_path,
        more='[endpoint]\ninstance_type = "ml.c6g.large"\nbf16 = true\ntraffic = "linear"\n'
        "largest_package_mib = 5120\nstartup_seconds = 60\nvpc = true\n"
        "[endpoint.scaling]\nmax_count = 1\nrequests_per_minute = 9\n",
    )
    for start in ("largest_package_mib:", "bf16:", "startup_seconds:", "traffic:"):
        assert f"  endpoint.{start} " in message
    assert "network.second_az_id: missing" in message
    assert "endpoint.scaling.max_count: got 1" in message


@pytest.mark.parametrize(
    "more",
    [
        image("111122223333.dkr.ecr.us-west-2.amazonaws.com/own@sha256:" + "a" * 64),
        image(f"{AWS_IMAGES}/{ARM}@sha256:" + "a" * 64),
        '[endpoint]\ninstance_count = 3\ntraffic = "canary"\n',
        '[endpoint]\ninstance_count = 20\ntraffic = "linear"\nstep_instances = 10\n',
        "[endpoint]\nstartup_seconds = 3600\ndownload_seconds = 3600\n",
        '[endpoint]\ninstance_type = "ml.c6g.4xlarge"\nbf16 = false\n',
        "[endpoint.capture]\n",
    ],
)
def test_accepted(tmp_path: Path, more: str) -> None:
    assert warnings(tmp_path, more=more) == ""


def test_two_zones_are_enough_for_a_vpc(tmp_path: Path) -> None:
    assert warnings(tmp_path, network=SECOND_ZONE, more="[endpoint]\nvpc = true\n") == ""


def test_more_threads_than_vcpus_are_told(tmp_path: Path) -> None:
    more = "[endpoint]\nworkers = 4\nthreads = 16\n"
    assert "endpoint.threads: 4 worker(s) with 16 thread(s)" in warnings(tmp_path, more=more)


def test_a_bake_that_no_alarm_can_ring_in_is_told(tmp_path: Path) -> None:
    found = warnings(tmp_path, more="[endpoint]\nbake_minutes = 2\n")
    assert "endpoint.bake_minutes: got 2; the alarms" in found


def test_the_quota_of_a_roll_out_is_a_note(tmp_path: Path) -> None:
    more = "[endpoint.scaling]\nmax_count = 8\nrequests_per_minute = 9\n"
    notes = told(tmp_path, more=more)[Level.NOTE]
    assert "'ml.c7g.4xlarge for endpoint usage' must be 16 or more" in notes


@pytest.mark.case("M02")
def test_the_end_of_an_image_s_patches_is_told(tmp_path: Path) -> None:
    start = f"endpoint.image: {TAG} of {ARM} is patched until 2026-06-30 (catalog as of"
    assert start in told(tmp_path)[Level.WARNING]
    assert start in told(tmp_path, more=image(f"{AWS_IMAGES}/{ARM}:{TAG}"))[Level.WARNING]
    own = image("111122223333.dkr.ecr.us-west-2.amazonaws.com/own:1")
    assert "patches" not in told(tmp_path, more=own)[Level.WARNING]


@pytest.mark.case("M02")
def test_a_tag_of_the_user_s_own_catalog_is_known_with_its_patch_end(tmp_path: Path) -> None:
    tag = "2.9.0-cpu-py313-ubuntu24.04-sagemaker"
    row = '{ torch = "2.9.0", python = "3.13", patched_until = "2027-06-30" }'
    (tmp_path / "catalog.toml").write_text(f'[serving_images.images.{ARM}]\n"{tag}" = {row}\n')
    more = image(f"{AWS_IMAGES}/{ARM}:{tag}", torch="2.9.0", python="3.13")
    assert "endpoint.image" not in told(tmp_path, more=more)[Level.WARNING]
    assert "got the tag" not in errors(tmp_path, more=more)


@pytest.mark.parametrize(
    "text",
    [
        '[serving_images.images.own]\n"1" = { torch = "2.9.0" }\n',
        "[serving_instances.families]\nx9g = { bf16 = true }\n",
    ],
)
def test_a_row_without_its_fields_is_one_clear_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "catalog.toml").write_text(text)
    assert "has wrong fields" in errors(tmp_path)


@pytest.mark.case("M02")
def test_the_default_image_is_a_row_of_its_own_table() -> None:
    catalog = load_catalog()
    default = catalog.graviton_image()
    images = catalog.graviton_images(default.repository)
    assert images is not None
    row = images[default.tag]
    assert (row.torch, row.python, row.patched_until) == (
        default.torch,
        default.python,
        default.patched_until,
    )


@pytest.mark.parametrize("region", ["ap-northeast-3", "us-gov-west-1", "eu-west-1", "cn-north-1"])
def test_regions_have_an_image(tmp_path: Path, region: str) -> None:
    message = errors(tmp_path, aws=f'[aws]\nregion = "{region}"\n')
    assert "endpoint.image" not in message


def test_a_region_without_a_known_account_says_where_to_add_it(tmp_path: Path) -> None:
    message = errors(tmp_path, aws='[aws]\nregion = "xx-nowhere-1"\n')
    assert "[serving_images.accounts] of catalog.toml" in message


def process(instance: str, **settings: object) -> ServingProcess:
    row = load_catalog().serving_instance(instance)
    assert row is not None
    return serving_process(Endpoint(instance_type=instance, **settings), row)  # type: ignore[arg-type]


@pytest.mark.case("M19")
@pytest.mark.parametrize(
    ("instance", "mib", "workers", "threads"),
    [
        ("ml.c7g.4xlarge", 4096, 4, 4),
        ("ml.c7g.4xlarge", 5120, 4, 4),
        ("ml.c7g.large", 512, 1, 2),
        ("ml.c8g.medium", 512, 1, 1),
        ("ml.m8g.xlarge", 3072, 1, 4),
        ("ml.c7g.16xlarge", 461, 16, 4),
        ("ml.c7g.2xlarge", 5120, 2, 4),
        ("ml.c7g.12xlarge", 5120, 12, 4),
    ],
)
def test_workers_and_threads_follow_from_vcpus_and_memory(
    instance: str, mib: int, workers: int, threads: int
) -> None:
    made = process(instance, largest_package_mib=mib)
    assert (made.workers, made.threads) == (workers, threads)
    row = load_catalog().serving_instance(instance)
    assert row is not None
    assert made.workers * (mib * 1.25 + 256) + 512 <= row.memory_gib * 1024


def test_the_environment_says_all_that_was_set() -> None:
    made = process(
        "ml.c6g.2xlarge", workers=1, threads=2, response_seconds=20, max_request_bytes=2048
    )
    assert made.environment == {
        "SAGEMAKER_PROGRAM": "inference.py",
        "SAGEMAKER_MODEL_SERVER_WORKERS": "1",
        "SAGEMAKER_TS_MIN_WORKERS": "1",
        "SAGEMAKER_TS_MAX_WORKERS": "1",
        "SAGEMAKER_TS_RESPONSE_TIMEOUT": "20",
        "TS_MAX_REQUEST_SIZE": "2048",
        "TS_MAX_RESPONSE_SIZE": "2048",
        "OMP_NUM_THREADS": "2",
        "DNNL_DEFAULT_FPMATH_MODE": "STRICT",
        "LRU_CACHE_CAPACITY": "1024",
        "THP_MEM_ALLOC_ENABLE": "1",
    }
    assert process("ml.c7g.2xlarge").environment["DNNL_DEFAULT_FPMATH_MODE"] == "BF16"
    assert process("ml.c7g.2xlarge", bf16=False).environment["DNNL_DEFAULT_FPMATH_MODE"] == "STRICT"


@pytest.mark.case("M21")
def test_whatever_the_environment_is_called_its_endpoint_has_a_name(tmp_path: Path) -> None:
    """Names are refused, never cut: two that begin alike stay two."""
    draw = random.Random(21)
    alphabet = "abcxyz019-_. äß漢A"
    seen: dict[str, str] = {}
    for number in range(150):
        length = draw.choice((1, 5, 19, 20, 21, 64, 300))
        letters = alphabet[: draw.choice((6, 10, len(alphabet)))]
        name = "".join(draw.choice(letters) for _ in range(length))
        folder = tmp_path / str(number)
        folder.mkdir()
        text = f'name = "{name}"\n' + AWS + NETWORK + QUEUE
        (folder / "team.toml").write_text(text, encoding="utf-8")
        try:
            settings = load_environment("team", folder).settings
        except SettingsError as error:
            assert "name: got" in str(error)
            continue
        endpoint = settings.prefix
        assert re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", endpoint)
        assert seen.setdefault(endpoint, name) == name
    assert len(seen) > 10
