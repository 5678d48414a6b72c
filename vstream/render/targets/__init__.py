"""Ship a bundle: the same topology as files for hosts, containers, Helm or NACK."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jinja2

from vstream.errors import VstreamError
from vstream.render.environment import limit_template, make_jinja_environment
from vstream.render.targets import helm, hosts, nack
from vstream.topology.bundle import Artifact, Bundle
from vstream.topology.model import Topology

Render = Callable[[Topology, Bundle, jinja2.Environment], tuple[Artifact, ...]]

TARGETS: Mapping[str, Render] = {
    "files": lambda _topology, bundle, _templates: bundle.artifacts,
    "systemd": hosts.render_systemd,
    "compose": hosts.render_compose,
    "helm": helm.render_values,
    "nack": nack.render_resources,
}
"""Ways to ship a bundle. Each raises VstreamError if it cannot express something in the topology."""


def render_target(name: str, topology: Topology, bundle: Bundle, templates: Sequence[Path]) -> tuple[Artifact, ...]:
    """
    The files of *bundle* as target *name* needs them, in a layout of its own.

    *templates* are directories, searched in order for `targets/…`. Raises VstreamError where the topology has what the
    target cannot express, and KeyError for a target that does not exist.
    """
    render, env = TARGETS[name], make_jinja_environment(templates)
    if len(templates) == 1:
        return render(topology, bundle, env)
    try:
        with limit_template():
            return render(topology, bundle, env)
    except (jinja2.TemplateError, ArithmeticError, LookupError, MemoryError, OSError, TypeError, ValueError) as error:
        hint = "compare your templates with those that ship with vstream"
        raise VstreamError(f"a template of `--target {name}`: {type(error).__name__}: {error}", hint=hint) from error
