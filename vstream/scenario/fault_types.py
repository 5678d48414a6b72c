"""
Every fault, declared once: its name, target, options and documentation.

The steps of scenarios, the commands of `vstream chaos`, the JSON Schema and the table in docs/chaos.md follow from
these declarations. How a fault is injected and undone is in `vstream.chaos.faults`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Final

from vstream.topology.units import spell_nanoseconds, spell_rate
from vstream.value_class import value_class

OptionValue = str | int | float | bool


class Target(Enum):
    """What the value of an action names."""

    NOTHING = "nothing"
    REGIONS = "regions"
    SERVERS = "servers"
    MACHINES = "regions or servers"
    STREAM = "a physical stream, or with `region` a virtual one"
    SIDES = "regions on each side"
    LINK = "two regions"
    COMMAND = "a command, and the region that it changes"


class Effect(Enum):
    """What a fault takes away."""

    SERVERS = "servers"
    """The processes of the servers that it names."""
    LINKS = "links"
    """Links carry nothing."""
    LINK_QUALITY = "link quality"
    """Links carry less, or later."""
    META_LEADER = "meta leader"
    OTHER = "other"
    """What no check of scenarios asks for: the leader of a stream, a disk, the speed of servers."""


class OptionType(Enum):
    """How the value of an option is written."""

    DURATION = "duration"
    """Nanoseconds, above 0."""
    LINK_TIME = "link time"
    """Nanoseconds; 0 means none."""
    RATE = "rate"
    """Bits per second."""
    SHARE = "share"
    """0 to 1."""
    CUT = "cut"
    TEXT = "text"
    VERSION = "version"
    FLAG = "flag"


@value_class
class FaultOption:
    """One option of faults. *name* is its field of a step; commands write it with dashes."""

    name: str
    type: OptionType
    help: str
    is_required: bool = False

    def format(self, value: OptionValue) -> str:
        """*value* as people write it."""
        if self.type in {OptionType.DURATION, OptionType.LINK_TIME}:
            return spell_nanoseconds(int(value))
        if self.type is OptionType.RATE:
            return spell_rate(int(value))
        if self.type is OptionType.SHARE:
            return f"{float(value) * 100:g}%"
        return str(value)


REGION = FaultOption(name="region", type=OptionType.TEXT, help="The region, where the stream is a virtual one.")
HOW = FaultOption(
    name="how",
    type=OptionType.CUT,
    help="reset: connections are closed. drop: packets are silently discarded. Default: reset.",
)
ONE_WAY = FaultOption(name="one_way", type=OptionType.FLAG, help="Cut only what the first side sends.")
RTT = FaultOption(name="rtt", type=OptionType.LINK_TIME, help="Round-trip time, such as 140ms.")
JITTER = FaultOption(
    name="jitter", type=OptionType.LINK_TIME, help="Maximum jitter added to the round trip, such as 20ms."
)
LOSS = FaultOption(name="loss", type=OptionType.SHARE, help="Packet loss each way, such as 5%.")
RATE = FaultOption(name="rate", type=OptionType.RATE, help="Bits per second each way, such as 200mbit.")
LOSE = FaultOption(
    name="lose", type=OptionType.DURATION, help="How long writes have not reached the disk, such as 5s. Default: 2s."
)
TO = FaultOption(
    name="to", type=OptionType.VERSION, help="The nats-server version to run, such as 2.15.1.", is_required=True
)
LAME_DUCK = FaultOption(
    name="lame_duck",
    type=OptionType.FLAG,
    help="Move clients away before each server stops: up to two minutes for each server with clients.",
)


@value_class
class FaultType:
    """One kind of fault."""

    name: str
    target: Target
    effect: Effect
    help: str
    """One or two sentences: for `--help` and the JSON Schema."""
    examples: tuple[str, ...]
    """Commands, without `vstream chaos`."""
    what_happens: str
    """For the table in docs/chaos.md."""
    what_to_expect: str
    """The same: what was measured."""
    options: tuple[FaultOption, ...] = ()
    stays_open: bool = True
    """Whether a step of a scenario leaves it open until it is healed. Else `runner.runner` heals it when the step has injected it."""
    command_stays_open: bool = True
    """Whether a command leaves it open until it is healed, and takes `--for`. Else `cli.chaos.commands` heals it at once."""
    defaults_to_all: bool = False
    """Whether it takes everything if no target is named."""
    requires_option: bool = False
    """Whether it needs at least one of its options."""
    works_outside_labs: bool = False
    is_generated: bool = True
    """Whether random scenarios have it. Not if streams need not survive it: see `vstream.scenario.generate`."""

    @property
    def field(self) -> str:
        """Its field of a step."""
        return self.name.replace("-", "_")

    @property
    def usage(self) -> str:
        """The command line: its name, and its target."""
        target = USAGE.get(self.target, "")
        options = [
            f"--{option.name.replace('_', '-')} {option.name.upper()}" for option in self.options if option.is_required
        ]
        return " ".join([self.name, *([f"[{target}]" if self.defaults_to_all else target] if target else []), *options])

    @property
    def may_lack_target(self) -> bool:
        """Whether a step needs no target."""
        return self.defaults_to_all or self.target is Target.NOTHING


USAGE: Final[Mapping[Target, str]] = {
    Target.REGIONS: "REGION",
    Target.SERVERS: "SERVER",
    Target.MACHINES: "REGION|SERVER",
    Target.STREAM: "STREAM",
    Target.SIDES: "SIDE | SIDE",
    Target.LINK: "REGION REGION",
}
"""The argument of a command, by its fault's kind of target."""


@value_class
class FaultSpec:
    """
    One fault to inject.

    *targets* are what it is for: regions, servers, one stream, or for `partition` one
    comma-separated text per side, for `link` the two regions. None stands for all.
    An option that is missing has its default.
    """

    type: FaultType
    targets: tuple[str, ...] = ()
    options: Mapping[str, OptionValue] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """The fault as a command of `vstream chaos`: `partition west | central,east --how drop`."""
        separator = " | " if self.type.target is Target.SIDES else " "
        words = [self.type.name, *([separator.join(self.targets)] if self.targets else [])]
        for option in self.type.options:
            value = self.options.get(option.name, False)
            flag = f"--{option.name.replace('_', '-')}"
            if value is True:
                words.append(flag)
            elif value is not False:
                words.append(f"{flag} {option.format(value)}")
        return " ".join(words)


KILL_REGION = FaultType(
    name="kill-region",
    target=Target.REGIONS,
    effect=Effect.SERVERS,
    help="Kill every server of a region, as `kill -9`. Their files stay.",
    examples=("kill-region west", "kill-region west --for 20s"),
    what_happens="SIGKILL to each server of the region, its member of the stretch cluster among them",
    what_to_expect="Its writes fail, all others work. Back: servers 2 to 4 s after `heal`, writes there after one more election "
    "(4 s)",
)
RESTART_REGION = FaultType(
    name="restart-region",
    target=Target.REGIONS,
    effect=Effect.SERVERS,
    help="Kill every server of a region and start them again at once.",
    examples=("restart-region west",),
    what_happens="the same, and started at once",
    what_to_expect="As above, without the time between",
    stays_open=False,
    command_stays_open=False,
)
KILL_SERVER = FaultType(
    name="kill-server",
    target=Target.SERVERS,
    effect=Effect.SERVERS,
    help="Kill a server, as `kill -9`.",
    examples=("kill-server west-1 --for 20s",),
    what_happens="SIGKILL to one",
    what_to_expect="With three replicas: nothing, or one election where it led. With one replica: its streams are unavailable",
)
KILL_LEADER = FaultType(
    name="kill-leader",
    target=Target.STREAM,
    effect=Effect.OTHER,
    help="Kill the server that leads a stream, and see who leads it next.",
    examples=("kill-leader foo --region west", "kill-leader foo-read-east --for 20s"),
    what_happens="SIGKILL to the server that leads it",
    what_to_expect="Another led it after 6.2 s; meanwhile writes to it fail",
    options=(REGION,),
)
KILL_META_LEADER = FaultType(
    name="kill-meta-leader",
    target=Target.NOTHING,
    effect=Effect.META_LEADER,
    help="Kill the server that leads the JetStream meta group, and see who leads it next.",
    examples=("kill-meta-leader --for 20s",),
    what_happens="SIGKILL to the server that leads the meta group",
    what_to_expect="Another led it after 3.4 s; meanwhile no stream can be created or changed, reads and writes work",
)
PAUSE = FaultType(
    name="pause",
    target=Target.MACHINES,
    effect=Effect.SERVERS,
    help="Freeze the process of a server, or of a region's servers: connections stay open, nothing answers.",
    examples=("pause west-1 --for 20s",),
    what_happens="SIGSTOP: connections stay open, nothing answers",
    what_to_expect="Clients wait for timeouts, which is worse than a dead server. `resume` to healthy: 0.1 s",
)
DISK_FULL = FaultType(
    name="disk-full",
    target=Target.MACHINES,
    effect=Effect.OTHER,
    help="Make every disk write of some servers fail. Healing restarts them: until then they refuse what they could not "
    "write. Linux only.",
    examples=("disk-full west --for 20s",),
    what_happens="every write of the servers fails",
    what_to_expect="See below. `heal` restarts them. Linux only",
    is_generated=False,
)
POWER_LOSS = FaultType(
    name="power-loss",
    target=Target.MACHINES,
    effect=Effect.SERVERS,
    help="Kill servers so that what they stored in the last seconds is lost. As it takes data, the command needs "
    "--yes-really.",
    examples=("power-loss west --lose 5s --yes-really --for 10s",),
    what_happens="killed, and what was stored in the last seconds is gone",
    what_to_expect="See below. Always needs `--yes-really`",
    options=(LOSE,),
    stays_open=False,
    is_generated=False,
)
PARTITION = FaultType(
    name="partition",
    target=Target.SIDES,
    effect=Effect.LINKS,
    help="Cut the links between sides: `west | central,east`. Regions that are not named keep their links.",
    examples=('partition "west | central,east" --for 30s', "partition west east --how drop"),
    what_happens="the links between sides are cut",
    what_to_expect="Writes and Direct Get go on in every region; the side without the majority of all servers creates and changes "
    "no streams. `heal` to healthy: 7.5 s, on a busy machine",
    options=(HOW, ONE_WAY),
)
ISOLATE = FaultType(
    name="isolate",
    target=Target.REGIONS,
    effect=Effect.LINKS,
    help="Cut a region off from all others.",
    examples=("isolate west --for 30s",),
    what_happens="the links of a region to all others are cut",
    what_to_expect="the same",
    options=(HOW,),
)
LINK = FaultType(
    name="link",
    target=Target.LINK,
    effect=Effect.LINK_QUALITY,
    help="Make the link between two regions slow or lossy, until it is healed. `vstream lab link` changes it for good.",
    examples=("link west east --rtt 140ms --loss 5% --for 1m",),
    what_happens="the link is as the options say until it is healed",
    what_to_expect="`link west east --rtt 80ms`: messages between them are 40 ms late each way",
    options=(RTT, JITTER, RATE, LOSS),
    requires_option=True,
)
STEP_DOWN = FaultType(
    name="step-down",
    target=Target.STREAM,
    effect=Effect.OTHER,
    help="Make the leader of a stream hand over, by the API. Also on servers that are not a lab.",
    examples=("step-down foo --region west",),
    what_happens="the API asks the leader to hand over",
    what_to_expect="Another leads after 0.1 s",
    options=(REGION,),
    stays_open=False,
    command_stays_open=False,
    works_outside_labs=True,
)
STEP_DOWN_META = FaultType(
    name="step-down-meta",
    target=Target.NOTHING,
    effect=Effect.META_LEADER,
    help="Make the JetStream meta leader hand over, by the API. Also on servers that are not a lab.",
    examples=("step-down-meta", "step-down-meta --system-context acme-sys"),
    what_happens="the same for the meta group",
    what_to_expect="Another leads after 0.1 s",
    stays_open=False,
    command_stays_open=False,
    works_outside_labs=True,
)
ROLLING_RESTART = FaultType(
    name="rolling-restart",
    target=Target.REGIONS,
    effect=Effect.SERVERS,
    help="Restart one server after the other, in all regions or some; each waits until all are healthy and every "
    "stream has caught up.",
    examples=("rolling-restart", "rolling-restart west --lame-duck"),
    what_happens="SIGTERM to one server after the other; the next waits until all are healthy and every stream has caught up",
    what_to_expect="Nine servers in 17 to 21 s. Under load nothing acknowledged was lost or duplicated. Sourcing may rest 26 to "
    "37 s longer: see below",
    options=(LAME_DUCK,),
    stays_open=False,
    command_stays_open=False,
    defaults_to_all=True,
)
UPGRADE = FaultType(
    name="upgrade",
    target=Target.MACHINES,
    effect=Effect.SERVERS,
    help="A rolling restart in which each server is started with another nats-server. It stays: there is nothing to heal.",
    examples=("upgrade --to 2.15.1", "upgrade west --to 2.15.1"),
    what_happens="a rolling restart in which each server is started with another nats-server",
    what_to_expect="Nine servers from 2.12.8 to 2.15.1 in 28 s. It stays: a heal or a `lab up` starts them with the new one, too",
    options=(TO, LAME_DUCK),
    stays_open=False,
    command_stays_open=False,
    defaults_to_all=True,
    is_generated=False,
)

FAULTS: Final[Mapping[str, FaultType]] = {
    declared.name: declared for declared in tuple(globals().values()) if isinstance(declared, FaultType)
}
"""Every fault of this file, by name."""

FAULT_OPTIONS: Final[Mapping[str, FaultOption]] = {
    option.name: option for declared in FAULTS.values() for option in declared.options
}
"""By field of a step."""
