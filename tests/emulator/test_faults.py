"""Faults of a delivery, one after the other in one account; docs/faults.md is what they came to.

`--renew-snapshots` writes the page. Without it, the test fails where a run and the page differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from botocore.exceptions import ClientError

from operations.emulator import Emulator
from tests.emulator.test_delivery import ROOT, archive
from tests.support.faults import NOBODY, Row, Stage, plain, staged
from tests.support.middleman import Call, Reply, refusal

pytestmark = pytest.mark.emulator

PAGE = ROOT / "docs" / "faults.md"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault: how it is brought about, and how many executions of which kinds it leaves.

    `either` holds what may be told, where it depends on which execution is quicker.
    """

    happens: str
    play: Callable[[Stage], None]
    ends: tuple[str, ...] = ("SUCCEEDED",)
    serves: str = "the new model"
    named: bool = True
    either: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("faults")
    with (
        Emulator(
            run_directory=folder / "emulator",
            model_server_python=ROOT / ".venv-training" / "bin" / "python",
            settle_seconds=0.2,
        ) as emulator,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in emulator.environment().items():
            patch.setenv(name, value)
        with staged(emulator, folder / "cdk.out") as made:
            yield made


def torn(stage: Stage) -> None:
    stage.publish(package=archive("torn", torn=True))


def five_times(stage: Stage) -> None:
    event = stage.event_of(stage.publish())
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(stage.start, [event] * 4))


def in_mid_update(stage: Stage) -> None:
    stage.until_under_way(stage.publish())
    stage.publish()


def two_at_once(stage: Stage) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: stage.publish(), range(2)))


def deploy_before(stage: Stage) -> None:
    stage.deploy(ContainerStartupHealthCheckTimeoutInSeconds=600)
    assert stage.busy
    stage.publish()


def deploy_during(stage: Stage) -> None:
    stage.until_under_way(stage.publish())
    with pytest.raises(ClientError, match="IN_PROGRESS state and can not be updated"):
        stage.deploy(ContainerStartupHealthCheckTimeoutInSeconds=700)


def killed_before(stage: Stage) -> None:
    stage.middleman.at("UpdateStack", lambda call: call.kill())
    stage.publish()


def killed_after(stage: Stage) -> None:
    def kill(call: Call) -> None:
        call.forward()
        call.kill()

    stage.middleman.at("UpdateStack", kill)
    stage.publish()


def refused(call: Call) -> Reply:
    return refusal("AccessDenied", "User is not authorized to perform: iam:PassRole")


def cloudformation_refuses(stage: Stage) -> None:
    stage.middleman.at("UpdateStack", refused, times=3)
    stage.publish()


def throttled(stage: Stage) -> None:
    for operation in ("DescribeStacks", "DescribeStackEvents", "UpdateStack"):
        stage.middleman.at(operation, lambda call: refusal("Throttling", "Rate exceeded"))
    stage.publish()


def lying_ping(stage: Stage) -> None:
    program = "def predict_fn(texts, model):\n    raise KeyError('no such layer')\n"
    stage.publish(package=archive("liar", more=program))


def rolls_back_silently(stage: Stage) -> Callable[[Call], None]:
    """SageMaker goes back to what served, once CloudFormation has called the update complete."""
    sagemaker = stage.account.sagemaker
    endpoint = stage.account.endpoint_name
    config = sagemaker.describe_endpoint_config(
        EndpointConfigName=sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointConfigName"]
    )
    variant = config["ProductionVariants"][0]
    model = sagemaker.describe_model(ModelName=variant["ModelName"])
    name = f"before-{model['ModelName']}"[:63].rstrip("-")
    sagemaker.create_model(
        ModelName=name,
        PrimaryContainer=model["PrimaryContainer"],
        ExecutionRoleArn=model["ExecutionRoleArn"],
    )
    sagemaker.create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=[variant | {"ModelName": name}]
    )

    def trouble(call: Call) -> None:
        if stage.busy:
            stage.middleman.at("DescribeEndpoint", trouble)
            return
        sagemaker.update_endpoint(EndpointName=endpoint, EndpointConfigName=name)
        for _ in stage.patiently("the endpoint did not go back"):
            if sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointStatus"] == "InService":
                return

    return trouble


def silent(stage: Stage) -> None:
    stage.middleman.at("DescribeEndpoint", rolls_back_silently(stage))
    stage.publish()


def roll_back_fails(stage: Stage) -> None:
    trouble = rolls_back_silently(stage)

    def and_then_refuse(call: Call) -> None:
        trouble(call)
        if not stage.middleman.pending:
            stage.middleman.at("UpdateStack", refused, times=3)

    stage.middleman.at("DescribeEndpoint", and_then_refuse)
    stage.publish()


def mended(stage: Stage) -> None:
    stage.start({**stage.model(stage.former).manifest, "intent": "roll-back"})


FAULTS = {
    "the first endpoint fails": Fault(
        happens="CloudFormation takes the endpoint away again", play=torn, serves=NOBODY
    ),
    "the same event five times at once": Fault(
        happens="one execution rolls out, four find that there is nothing to do",
        play=five_times,
        ends=("SUCCEEDED",) * 5,
    ),
    "an event in mid-update": Fault(
        happens="it waits for its turn, then replaces the model before it",
        play=in_mid_update,
        ends=("SUCCEEDED",) * 2,
    ),
    "two models at once": Fault(
        happens="the newer one serves in the end, whichever goes first",
        play=two_at_once,
        ends=("SUCCEEDED",) * 2,
        either=(
            "serves",
            "was left out; why: older-than-served: created (time), what serves was created (time)",
        ),
    ),
    "a model comes during `cdk deploy`": Fault(
        happens="the deploy goes first, with the model that serves; the new one waits",
        play=deploy_before,
    ),
    "`cdk deploy` during a roll-out": Fault(
        happens="CloudFormation refuses the deploy, and says so to who deploys", play=deploy_during
    ),
    "the function is killed before `UpdateStack`": Fault(
        happens="it is asked again, and updates", play=killed_before
    ),
    "the function is killed after `UpdateStack`": Fault(
        happens="it is asked again, and finds its own update", play=killed_after
    ),
    "CloudFormation refuses the update": Fault(
        happens="the execution fails; its event is in the dead-letter queue",
        play=cloudformation_refuses,
        ends=("FAILED",),
        serves="the former model",
    ),
    "CloudFormation throttles": Fault(happens="every call is made again", play=throttled),
    "the new fleet never gets healthy": Fault(
        happens="CloudFormation rolls back; these bytes are not tried again",
        play=torn,
        serves="the former model",
    ),
    "SageMaker rolls back in silence": Fault(
        happens="the endpoint names another configuration than the stack: it is put back",
        play=silent,
        serves="the former model",
    ),
    "the roll-back itself fails": Fault(
        happens="the endpoint serves on, and the parameter is wrong until a person acts",
        play=roll_back_fails,
        ends=("FAILED",),
        serves="the former model",
        named=False,
    ),
    "the person then goes back to the former model": Fault(
        happens="the parameter names it again", play=mended, serves="the former model"
    ),
    "the ping lies": Fault(
        happens="the texts fail in the bake, and SageMaker goes back by its alarm",
        play=lying_ping,
        serves="the former model",
    ),
}
rows: dict[str, Row] = {}


@pytest.mark.case("L07")
@pytest.mark.case("L08")
@pytest.mark.case("M23")
@pytest.mark.parametrize("title", FAULTS)
def test_after_a_fault_one_model_serves_and_a_person_knows(stage: Stage, title: str) -> None:
    fault = FAULTS[title]
    fault.play(stage)
    assert tuple(stage.ended(len(fault.ends))) == fault.ends
    assert stage.middleman.pending == []
    serves = stage.serving()
    expected = {"the new model": stage.newest, "the former model": stage.former, NOBODY: NOBODY}
    assert serves == expected[fault.serves]
    assert (stage.named() == serves) is fault.named
    failed = stage.messages(stage.account.queue)
    assert [one["detail"]["status"] for one in failed] == [
        status for status in fault.ends if status == "FAILED"
    ]
    told = [one["Message"] for one in stage.messages(stage.inbox)]
    assert told
    assert stage.untold(told) == []
    stage.former = serves
    headlines = sorted({headline(message) for message in told})
    assert not fault.either or set(headlines) <= set(fault.either)
    rows[title] = Row(
        title=title,
        happens=fault.happens,
        serves=fault.serves
        if fault.named
        else f"{fault.serves}, which the parameter does not name",
        told="<br>or ".join(fault.either) or "<br>".join(headlines),
    )


def headline(message: str) -> str:
    """What became of the model, and why where it does not serve."""
    first, why, *_ = message.splitlines()
    outcome = first.partition(": ")[2]
    return outcome if outcome == "serves" else plain(f"{outcome}; {why}")[:240]


def test_the_page_is_what_the_faults_came_to(request: pytest.FixtureRequest) -> None:
    lines = [
        "| fault | what happens | what serves then | what a person is told |",
        "|---|---|---|---|",
    ]
    lines += [str(row) for row in rows.values()]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- faults -->\n")
    table, _, after = rest.partition("<!-- end -->\n")
    if request.config.getoption("--renew-snapshots"):
        made = "\n".join(lines)
        PAGE.write_text(f"{before}<!-- faults -->\n{made}\n<!-- end -->\n{after}", encoding="utf-8")
    elif len(rows) == len(FAULTS):
        assert table.splitlines() == lines, "renew the page with --renew-snapshots, and read it"
    else:
        assert set(lines) <= set(table.splitlines())
