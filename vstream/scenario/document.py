"""
The scenario language as it is written: pydantic models, and from them the JSON Schema.

Shape only. What spans several places (unknown regions, windows that no step opens,
options that a fault does not have) is checked by `vstream.lint.rules.scenarios`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, create_model, field_validator
from pydantic_core import PydanticCustomError

from vstream.formatting import quote_value
from vstream.scenario import fields
from vstream.scenario.fault_types import FAULT_OPTIONS, FAULTS, OptionType, Target
from vstream.syntax.schema import Language
from vstream.topology.document import describe_fields, finish_schema
from vstream.topology.fields import LinkTime, Name, RegionNames, Share, Text
from vstream.topology.fields import Rate as LinkRate

if TYPE_CHECKING:
    from vstream.syntax.yaml import Path


def yaml_key(name: str) -> str:
    """How a field is written: `kill_region` as `kill-region`, `for_` as `for`."""
    return name.rstrip("_").replace("_", "-")


class _Closed(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True, alias_generator=yaml_key)


_MAY_BE_EMPTY = {
    *(declared.field for declared in FAULTS.values() if declared.may_lack_target),
    "heal",
    "resync",
    "converge",
    "try_",
}


class _Written(_Closed):
    @field_validator("*", mode="before")
    @classmethod
    def _refuse_empty(cls, value: object, info: ValidationInfo) -> object:
        """A key with nothing behind it is a mistake, not the same as no key."""
        if value is None and info.field_name not in _MAY_BE_EMPTY:
            raise PydanticCustomError("scenario", "nothing is written here", {"hint": "write something, or remove it"})
        return value


class LabDocument(_Written):
    """The servers that the scenario runs on."""

    versions: fields.Versions = {}
    """nats-server for all servers (`2.15.1`), or by region or server, `*` for the others. Default: what `vstream lab up` takes."""
    links: Literal["proxy", "none"] | None = None
    """What carries the links between regions. Default: `proxy` if there are any."""
    templates: Text | None = None
    """A directory, relative to this file, of templates that replace built-in ones: another layout of streams."""


class PublishDocument(_Written):
    """How publishers publish."""

    rate: fields.Rate | None = None
    """Messages in each region, such as `100/s`. Default: `50/s`."""
    size: fields.Sizes | None = None
    """Bytes of payload, such as `64B` or `64B..1KiB`. Default: `128B`."""
    keys: fields.Keys | None = None
    """How many different values `{key}` takes. Default: 50."""
    retry: Literal["none", "same-id"] | None = None
    """same-id: again, with the same `Nats-Msg-Id`, until acknowledged or given up. Default: none."""
    timeout: fields.Lasting | None = None
    """How long to wait for an answer before the outcome counts as unknown. Default: `2s`."""
    give_up: fields.Lasting | None = None
    """When `same-id` stops trying. Default: `60s`."""


class PublishersDocument(PublishDocument):
    """An open-loop publisher in each of several regions: a slow answer does not slow it down."""

    stream: Text | None = None
    """The virtual stream. Default: all."""
    subject: Text | None = None
    """May hold `{region}`, `{key}` and `{n}`, the message's number. Default: derived from the stream's first subject."""
    regions: RegionNames = "all"


class ReadersDocument(_Written):
    """A reader in each of several regions."""

    by: Literal["consumer", "direct", "sequence"]
    """consumer: a pull consumer; direct: Direct Get of the last message of a random key; sequence: Direct Get by sequence."""
    stream: Text | None = None
    """The virtual stream. Default: all."""
    regions: RegionNames = "all"
    rate: fields.Rate | None = None
    """Reads in each region, for a consumer fetches. Default: `10/s`."""
    timeout: fields.Lasting | None = None
    """Default: `2s`."""


class WorkloadDocument(PublishDocument):
    """What clients do meanwhile. Values here are the defaults of all publishers."""

    publishers: list[PublishersDocument] | None = None
    """Default: one in every region for each virtual stream."""
    readers: list[ReadersDocument] | None = None
    """Default: a consumer and a direct reader in every region for each virtual stream."""


class _Step(_Written):
    """One step: one action, its options, and a name. Steps run one after the other."""

    wait: fields.Lasting | None = None
    """Let the load run for this long."""
    heal: fields.Faults | None = None
    """Undo all open faults, or those with these names, and wait until the servers are healthy."""
    resync: fields.Nothing | None = None
    """What `vstream repair sources` does."""
    converge: fields.MaybeLasting = None
    """Wait until every read stream holds everything of the write streams, at most this long. Default: `60s`."""
    try_: fields.AllRegions | None = None
    """Try every client operation once in these regions."""
    run: fields.Command | None = None
    """What `vstream region` or `vstream` does with this: `drain west`, `drain west --undo`, `failover west`, `failover west --also east`, `failback west`, `repair meta`."""

    as_: Name | None = None
    """The step's name: expectations use it as a window, `heal` as a fault."""
    at: fields.Time | None = None
    """When the step begins, counted from the start of the load, but not before the previous step has ended."""
    for_: fields.Lasting | None = None
    """Heal the fault after this long; the next step waits for that. Without it, the fault stays open until `heal`."""


_TARGET_TYPES: Mapping[tuple[Target, bool], Any] = {
    (Target.NOTHING, False): fields.Nothing,
    (Target.REGIONS, False): fields.Regions,
    (Target.REGIONS, True): fields.AllRegions,
    (Target.SERVERS, False): fields.ServerNames,
    (Target.MACHINES, False): fields.Machines,
    (Target.MACHINES, True): fields.AllMachines,
    (Target.STREAM, False): Text,
    (Target.SIDES, False): fields.Sides,
    (Target.LINK, False): fields.Ends,
}
"""By what a fault is for, and whether that may be everything."""

_OPTION_TYPES: Mapping[OptionType, Any] = {
    OptionType.DURATION: fields.Lasting,
    OptionType.LINK_TIME: LinkTime,
    OptionType.RATE: LinkRate,
    OptionType.SHARE: Share,
    OptionType.CUT: Literal["reset", "drop"],
    OptionType.TEXT: Text,
    OptionType.VERSION: fields.ServerVersion,
    OptionType.FLAG: bool,
}


def _make_fault_fields() -> dict[str, Any]:
    """The fields of a step that the declared faults, and their options, are written in."""
    step_fields: dict[str, tuple[Any, str]] = {}
    for declared in FAULTS.values():
        step_fields[declared.field] = (_TARGET_TYPES[declared.target, declared.defaults_to_all], declared.help)
    for option in FAULT_OPTIONS.values():
        step_fields[option.name] = (_OPTION_TYPES[option.type], option.help)
    declared_fields = {}
    for name, (annotation, text) in step_fields.items():
        declared_fields[name] = (annotation | None, Field(default=None, description=text))
    return declared_fields


if TYPE_CHECKING:

    class StepDocument(_Step):
        """A step with the fields of every fault."""

        def __getattr__(self, name: str) -> Any:
            """The fields that follow from `vstream.scenario.fault_types`."""

else:
    StepDocument = create_model(
        "StepDocument", __base__=_Step, __module__=__name__, __doc__=_Step.__doc__, **_make_fault_fields()
    )


class ExpectDocument(_Written):
    """
    What must hold, in one window or over the whole run.

    Bounds are texts such as `">= 99.9%"`, `"<= 60s"`, `"== 0"`. For each region by itself, or a map of regions and bounds.
    """

    in_: Name | None = None
    """The window: the name of a step. Without it, the whole run."""
    stream: Text | None = None
    """Only for this virtual stream."""
    published: fields.ShareBounds = ()
    """Share of publishes that were acknowledged."""
    read: fields.ShareBounds = ()
    """Share of reads that were answered."""
    delivered: fields.CountBounds = ()
    """Messages that consumers received."""
    control_plane: fields.ShareBounds = ()
    """Share of time in which requests that need the meta leader were answered."""
    publish_time: fields.TimeBounds = ()
    """Median time of acknowledged publishes."""
    publish_gap: fields.TimeBounds = ()
    """The longest time in which publishes failed and none was acknowledged."""
    read_time: fields.TimeBounds = ()
    """Median time of answered reads."""
    propagation: fields.TimePairs = ()
    """Median time from publishing in a region until a consumer in another has it: `west -> east: "<= 100ms"`."""
    visible: fields.CountPairs = ()
    """Messages acknowledged in a region in the window that another had stored before it ended: `west -> east: 0`."""
    works: fields.OperationResults = ()
    """Of a `try` step: which operations work, in all its regions or by region."""
    converged: fields.TimeBound | None = None
    """Duration of the `converge` step."""
    lost: fields.CountBound | None = None
    """Acknowledged messages that a read stream lacks at the end. Expected to be 0 unless a bound or `any` is given."""
    duplicated: fields.CountBound | None = None
    """Copies beyond the first. Expected to be 0 unless a bound is given."""
    unexpected: fields.CountBound | None = None
    """Stored messages that nobody published. Expected to be 0 unless a bound is given."""
    reordered: fields.CountBound | None = None
    """Messages that overtook an earlier one of the same origin. Expected to be 0 unless a bound is given."""
    diverged: fields.CountBound | None = None
    """Messages that one stream holds and another does not, without being lost: that nobody acknowledged. Expected to be 0
    unless something, or `any`, is said of it; or of `lost`, that some may be."""
    same_order: fields.SameOrder | None = None
    """All read streams hold the same sequence. Expected of all but `virtual` streams unless stated otherwise."""


BARE = sorted(yaml_key(name) for name in _MAY_BE_EMPTY)
"""Steps that may be written without a colon."""


def _as_bare(value: object) -> object:
    """`- heal` for `- heal:`."""
    if not isinstance(value, str):
        return value
    if value not in BARE:
        raise PydanticCustomError(
            "scenario",
            "{step} is not a step",
            {"step": quote_value(value), "hint": "a step is an action and what it is for, such as `wait: 20s`"},
        )
    return {value: None}


Step = Annotated[StepDocument, BeforeValidator(_as_bare)]


class ScenarioDocument(_Closed):
    """A scenario: servers, what clients do, what is broken when, and what is expected of it."""

    scenario: fields.Edition
    """The version of this language."""
    name: Name
    description: str = ""
    """One line for `vstream scenario list`, more below it."""
    seed: fields.Seed = 1
    """The seed of everything random in the workload."""
    topology: fields.TopologySource
    """The file of the topology, relative to this one; or the topology itself."""
    lab: LabDocument = LabDocument()
    workload: WorkloadDocument = WorkloadDocument()
    steps: Annotated[list[Step], Field(min_length=1)]
    expect: list[ExpectDocument] = []


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a scenario file, for editors."""
    schema = ScenarioDocument.model_json_schema(by_alias=True)
    describe_fields(schema, ScenarioDocument, globals())
    steps = schema["properties"]["steps"]
    steps["items"] = {"anyOf": [steps["items"], {"enum": list(BARE)}]}
    for model in schema["$defs"].values():
        for key, value in model.get("properties", {}).items():
            if key not in {yaml_key(name) for name in _MAY_BE_EMPTY}:
                _without_null(value)
    return finish_schema(schema, "vstream scenario")


def _without_null(schema: dict[str, Any]) -> None:
    """Pydantic's schema of an optional field allows null, which `_Written` refuses."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        del schema["anyOf"]
        schema.update(choices[0])
    elif choices:
        schema["anyOf"] = choices
    if schema.get("default", 0) is None:
        del schema["default"]


STARTER: Final = "`vstream scenario show walkthrough` prints one"
_STEP_PATH_LENGTH = 3
_LISTS: Final = (("steps",), ("topology",))


def _is_needed(path: Path) -> bool:
    """What expectations and `heal` name hangs on `as`, and everything on the steps and the topology."""
    return path in _LISTS or (path[0] == "steps" and len(path) == _STEP_PATH_LENGTH and path[-1] == "as")


LANGUAGE: Final = Language(
    noun="scenario",
    model=ScenarioDocument,
    starter=STARTER,
    is_needed=_is_needed,
    mark="scenario",
    other_kinds={
        "regions": (
            "this is a topology, not a scenario",
            "name a scenario, whose `topology` names this file; `vstream scenario list` lists shipped ones",
        )
    },
    missing={
        "scenario": "write `scenario: 1`, the version of the scenario language",
        "name": "name the scenario: its captures and reports carry the name",
        "topology": "name the file of the topology, or write the topology below it",
        "steps": "add a step, such as `- kill-region: west`",
        "by": "say how it reads: `consumer`, `direct` or `sequence`",
    },
)
