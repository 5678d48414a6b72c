"""
`vstream chaos`: inject and heal faults.

The commands of faults, such as `kill-region`, are made from what `vstream/scenario/fault_types.py` declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vstream.chaos import faults, inject
from vstream.chaos.faults.pause import Pause
from vstream.chaos.journal import OpenFault, read_journal
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.lab_options import choose_lab
from vstream.cli.views import chaos as view
from vstream.cli.views import console
from vstream.cli.views.json_output import print_json
from vstream.cli.views.progress import show_readiness
from vstream.errors import UnknownNameError
from vstream.lab.state import lab_directory
from vstream.scenario.fault_types import FAULTS, USAGE, Effect, FaultOption, FaultSpec, FaultType, OptionType, Target
from vstream.servers import target_servers
from vstream.servers.find_servers import find_and_trust_servers
from vstream.servers.target_servers import TargetServers, make_target
from vstream.timing import SECOND_NS
from vstream.topology import units
from vstream.value_class import value_class

Timeout = Annotated[float, typer.Option(help="Seconds until all must be healthy again.", min=1)]
_HEAL_AT_ONCE = 0.0
"""`hold` of faults that do not stay, such as a restart: servers come back as soon as they are gone."""
_END_COUNT = 2

_SETTINGS: Mapping[str, tuple[Any, Any]] = {
    "topology": (options.ServedTopology, options.DEFAULT_FILE),
    "force": (
        Annotated[
            bool, typer.Option("--yes-really", help="Proceed even if the fault removes quorum beyond its target.")
        ],
        False,
    ),
    "timeout": (Timeout, inject.HEAL_TIMEOUT),
    "lab": (options.LabName, None),
    "output_format": (options.TextOrJson, "text"),
}
"""What every fault takes."""
_HOLD = Annotated[
    str | None,
    typer.Option("--for", help="Heal after this long, such as 20s, or at Ctrl-C. Without it: `chaos heal`."),
]
_SYSTEM_CONTEXT = Annotated[
    str | None, typer.Option("--system-context", help="A nats CLI context of the system account; a lab needs none.")
]
_TARGETS: Mapping[Target, str] = {
    Target.REGIONS: "The region; several may be named.",
    Target.SERVERS: "The server, such as west-1; several may be named.",
    Target.MACHINES: "A region or a server; several may be named.",
    Target.STREAM: "A physical stream, or a virtual one with --region: its write stream.",
    Target.SIDES: 'The sides, as "west | central,east".',
    Target.LINK: "The two regions.",
}
"""The help of the argument."""


@value_class
class _Settings:
    """The options that are not of the fault itself."""

    topology: Path
    force: bool
    timeout: float
    lab: str | None
    output_format: str
    hold: str | None = None
    system_context: str | None = None


def make_command(declared: FaultType) -> Callable[..., None]:
    """The function of its command, for Typer: its parameters are in its signature."""

    def command(**values: Any) -> None:
        targets = values.pop("targets", None) or ()
        texts = {option.name: values.pop(option.name) for option in declared.options}
        spec = FaultSpec(
            type=declared, targets=_read_targets(declared, targets), options=_read_options(declared, texts)
        )
        _inject(spec, _Settings(**values))

    examples = ", ".join(f"`vstream chaos {example}`" for example in declared.examples)
    command.__doc__ = f"{declared.help}\n\nExample{'s' if len(declared.examples) > 1 else ''}: {examples}"
    command.__signature__ = Signature(list(_list_parameters(declared)))  # type: ignore[attr-defined]  # Typer reads it
    command.__annotations__ = {}
    return command


def _inject(spec: FaultSpec, settings: _Settings) -> None:
    hold = None if settings.hold is None else read_seconds(settings.hold, "--for")
    if hold is None and not spec.type.command_stays_open:
        hold = _HEAL_AT_ONCE
    topology = options.check_topology_file(settings.topology).require()
    target = make_target(topology, find_and_trust_servers(topology, settings.lab), settings.system_context)
    if not spec.type.works_outside_labs:
        target.require_lab()  # before anything is asked of servers that are not one
    injection = run(faults.resolve(spec, target, topology, needs_successor=not settings.force))
    report = view.FaultReport(spec.command, is_json=settings.output_format == "json")
    try:
        with show_readiness() as show:
            request = inject.InjectionRequest(
                target=target,
                topology=topology,
                command=spec.command,
                is_forced=settings.force,
                timeout=settings.timeout,
                on_impact=report.print_impact,
                on_restarted=report.print_restarted,
                on_progress=show,
            )
            if hold is None:
                report.print_injected(run(inject.inject(request, injection)))
            else:
                on_injected, on_healed = report.print_injected, report.print_healed
                run(inject.inject_for(request, injection, seconds=hold, on_injected=on_injected, on_healed=on_healed))
    finally:
        report.finish()


def _list_parameters(declared: FaultType) -> list[Parameter]:
    parameters = []
    if declared.target is not Target.NOTHING:
        text, metavar = _TARGETS[declared.target], USAGE[declared.target]
        if declared.defaults_to_all:
            text = f"{text} All, if left out."
        kind: Any = str if declared.target is Target.STREAM else list[str]
        annotation = Annotated[kind, typer.Argument(help=text, metavar=metavar)]
        parameters.append(_parameter("targets", annotation, [] if declared.defaults_to_all else Parameter.empty))
    parameters += [_option_parameter(option) for option in declared.options]
    if declared.command_stays_open:
        parameters.append(_parameter("hold", _HOLD, None))
    if declared.effect is Effect.META_LEADER and declared.works_outside_labs:
        parameters.append(_parameter("system_context", _SYSTEM_CONTEXT, None))
    return parameters + [_parameter(name, annotation, default) for name, (annotation, default) in _SETTINGS.items()]


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _option_parameter(option: FaultOption) -> Parameter:
    flag = f"--{option.name.replace('_', '-')}"
    flags = (flag, "-r") if option.name == "region" else (flag,)
    info = typer.Option(*flags, help=option.help)
    if option.type is OptionType.FLAG:
        return _parameter(option.name, Annotated[bool, info], False)
    kind: Any = Literal["reset", "drop"] if option.type is OptionType.CUT else str
    if option.is_required:
        return _parameter(option.name, Annotated[kind, info], Parameter.empty)
    return _parameter(option.name, Annotated[kind | None, info], None)


def _read_targets(declared: FaultType, targets: str | list[str] | tuple[()]) -> tuple[str, ...]:
    if isinstance(targets, str):
        return (targets,)
    if declared.target is Target.SIDES and any("|" in target for target in targets):
        return tuple(",".join(name.strip() for name in side.split(",")) for side in " ".join(targets).split("|"))
    if declared.target is Target.LINK and len(targets) != _END_COUNT:
        raise typer.BadParameter("name the two regions of the link", param_hint="REGION REGION")
    return tuple(targets)


def _read_options(declared: FaultType, texts: Mapping[str, Any]) -> dict[str, Any]:
    readers: Mapping[OptionType, Callable[[str], int | float]] = {
        OptionType.LINK_TIME: units.parse_link_time,
        OptionType.RATE: units.parse_rate,
        OptionType.SHARE: units.parse_share,
    }
    values = {}
    for option in declared.options:
        value, flag = texts[option.name], f"--{option.name.replace('_', '-')}"
        if value is None or value is False or (option.type is OptionType.CUT and value == "reset"):
            continue
        if option.type is OptionType.DURATION:
            value = round(read_seconds(value, flag) * SECOND_NS)
        elif option.type in readers:
            try:
                value = readers[option.type](value)
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint=flag) from error
        values[option.name] = value
    if declared.requires_option and not values:
        flags = [f"--{option.name}" for option in declared.options]
        raise typer.BadParameter(f"say what to change: {', '.join(flags[:-1])} or {flags[-1]}")
    return values


def read_seconds(text: str, flag: str) -> float:
    """The time that was given for *flag*. Raises BadParameter."""
    try:
        nanoseconds = units.parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=flag) from error
    if text == units.UNLIMITED:
        raise typer.BadParameter("give a time, such as 20s", param_hint=flag)
    return nanoseconds / SECOND_NS


app = typer.Typer(
    help="Inject faults into a lab: each is announced first, confirmed, and undone by name. "
    "On servers that are not a lab only leaders can be moved.",
    no_args_is_help=True,
)
for _declared in FAULTS.values():
    app.command(_declared.name)(make_command(_declared))


@app.command("resume")
def resume(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Paused regions or servers; all, if left out.", metavar="REGION|SERVER", show_default=False
        ),
    ] = None,
    timeout: Timeout = inject.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output_format: options.TextOrJson = "text",
) -> None:
    """
    Resume paused servers, and wait until all are healthy. What one command paused is resumed together.

    Examples: `vstream chaos resume west-1`, `vstream chaos resume`
    """
    target, open_faults = _open_faults(lab)
    paused = {
        server: fault.id for fault in open_faults if isinstance(fault.fault, Pause) for server in fault.fault.servers
    }
    chosen = [] if targets else list(paused.values())
    for name in targets or ():
        ids = [paused[server] for server in paused if name in {server, target.servers.get(server)}]
        if not ids:
            hint = f"paused: {', '.join(paused)}" if paused else "nothing is paused"
            raise UnknownNameError(f"`{name}` is not paused", hint=hint)
        chosen += ids
    _heal(lab, chosen, timeout, output_format)


@app.command("status")
def status(lab: options.LabName = None, output_format: options.TextOrJson = "text") -> None:
    """
    List the open faults of a lab.

    Example: `vstream chaos status --format json`
    """
    target, open_faults = _open_faults(lab)
    states = [(fault, fault.fault.is_over(target, fault.id)) for fault in open_faults]
    if output_format == "json":
        print_json("chaos-status", {"faults": [{**view.fault_as_dict(fault), "over": over} for fault, over in states]})
    elif states:
        console.stdout().print(view.render_faults(states))
    else:
        console.print_note("no open faults")


@app.command("heal")
def heal(
    fault: Annotated[
        str | None, typer.Argument(help="The id of a fault; all, if left out.", metavar="[FAULT-ID]")
    ] = None,
    timeout: Timeout = inject.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output_format: options.TextOrJson = "text",
) -> None:
    """
    Undo one open fault, or all, even after vstream was killed, and wait until all servers are healthy.

    Examples: `vstream chaos heal`, `vstream chaos heal f2`
    """
    _heal(lab, None if fault is None else (fault,), timeout, output_format)


def _heal(lab: str | None, ids: Sequence[str] | None, timeout: float, output_format: str) -> None:
    target, _ = _open_faults(lab)
    with show_readiness() as show:
        healed = run(inject.heal(target, ids, timeout=timeout, on_progress=show))
    if output_format == "json":
        undone = [view.fault_as_dict(fault) for fault in healed.faults]
        print_json("chaos-heal", {"healed": undone, "healthy_after_seconds": view.healthy_after_seconds(healed)})
    else:
        console.stdout().print(view.heal_line(healed))


def _open_faults(lab: str | None) -> tuple[TargetServers, Sequence[OpenFault]]:
    """The lab that is meant, and what its journal says: healing needs no topology."""
    name = choose_lab(lab)
    open_faults = read_journal(lab_directory(name)).faults
    return target_servers.load_and_trust_lab(name), open_faults
