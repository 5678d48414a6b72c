"""
Look at, shape and cut the links between the regions of a running lab.

The shape of a link (delay, jitter, rate, loss) is set at the start and can be changed. Overlays lie on top of it, each
named after who put it there: a fault is undone by removing its overlay, whatever else has changed. If several overlays
set the same value of a link, the latest one wins.

Every change is in effect when its function returns, and lasts until the lab is stopped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from vstream.errors import LabError, UnknownNameError, UnsupportedError
from vstream.lab.links.proxy_process import ProxyProcess
from vstream.lab.links.state import IDEAL, Answer, Backend, Direction, Links, LinkState
from vstream.lab.state import hold_lock
from vstream.lab.status import require_recorded_lab
from vstream.value_class import value_class

_ANSWER_TIMEOUT = 10.0


@value_class
class Traffic:
    """The connections over the links now."""

    connections: Mapping[Direction, int]
    """Open connections of each link that has any, by the region that dialed and the one that it dialed."""
    refused: int
    """Connections refused since the start because the process is not a server of the lab."""


def read_links(name: str) -> Links:
    """The intended links of lab *name*. Raises LabError if there is no such lab."""
    directory, record = require_recorded_lab(name)
    links = ProxyProcess(directory).read_orders()
    return links or Links(
        backend=Backend.NONE, servers={address.server.name: address.region for address in record.servers}
    )


async def shape_links(name: str, states: Mapping[Direction, LinkState]) -> Links:
    """
    Change the shape of links: what a state says, replaces what was said before; the rest stays.

    Raises LabError if the lab does not run, UnknownNameError if it has no such regions, UnsupportedError if it cannot
    do that.
    """

    def change_links(links: Links) -> Links:
        shaped = {pair: state.layer_over(links.base.get(pair, IDEAL)) for pair, state in states.items()}
        return replace(links, base={**links.base, **shaped})

    return await _apply_change(name, change_links, states)


async def restore_started_shape(name: str, pairs: Iterable[Direction]) -> Links:
    """Restore the shape that the lab was started with. Raises LabError as `shape_links` does."""
    ideal = dict.fromkeys(pairs, IDEAL)

    def change_links(links: Links) -> Links:
        base = {pair: state for pair, state in links.base.items() if pair not in ideal}
        return replace(links, base={**base, **{pair: links.started.get(pair, IDEAL) for pair in ideal}})

    return await _apply_change(name, change_links, ideal)


async def put_overlay(name: str, overlay: str, states: Mapping[Direction, LinkState]) -> Links:
    """
    Put *states* over the links as *overlay*, replacing an overlay of that name.

    Raises LabError as `shape_links` does; then nothing has changed.
    """

    def change_links(links: Links) -> Links:
        overlays = {label: below for label, below in links.overlays.items() if label != overlay}
        return replace(links, overlays={**overlays, overlay: dict(states)})

    return await _apply_change(name, change_links, states)


async def remove_overlay(name: str, overlay: str) -> Links:
    """
    Remove *overlay*. It is fine if it does not exist or the lab does not run.

    Raises LabError if there is no such lab, or if its links cannot be changed.
    """
    directory, _ = require_recorded_lab(name)
    proxy = ProxyProcess(directory)
    async with _hold_links(proxy):
        links = read_links(name)
        if overlay not in links.overlays:
            return links
        overlays = {label: below for label, below in links.overlays.items() if label != overlay}
        after = replace(links, overlays=overlays, generation=links.generation + 1)
        proxy.write_orders(after)
        if (answer := await proxy.make_reread(generation=after.generation)) is not None:
            _require_applied(after, answer, name)
        return after


async def read_traffic(name: str) -> Traffic:
    """The traffic over the links of lab *name*. Raises LabError if no proxy carries its links."""
    directory, _ = require_recorded_lab(name)
    answer = await ProxyProcess(directory).make_reread()
    if answer is None:
        raise _make_loss_error(name, read_links(name))
    return Traffic(connections=answer.connections, refused=answer.refused)


async def _apply_change(
    name: str, change_links: Callable[[Links], Links], touched: Mapping[Direction, LinkState]
) -> Links:
    directory, _ = require_recorded_lab(name)
    proxy = ProxyProcess(directory)
    async with _hold_links(proxy):
        before = read_links(name)
        _require_known(name, before, touched)
        answer = proxy.read_answer()
        if answer is None:
            raise _make_loss_error(name, before)
        after = replace(change_links(before), generation=before.generation + 1)
        proxy.write_orders(after)
        try:
            _require_applied(before, await proxy.make_reread(generation=after.generation), name)
        except BaseException:
            # What was not confirmed must not take effect later.
            proxy.write_orders(replace(before, generation=after.generation + 1))
            raise
        return after


def _require_known(name: str, links: Links, touched: Mapping[Direction, LinkState]) -> None:
    pairs = set(links.pairs)
    for sender, receiver in touched:
        if (sender, receiver) not in pairs:
            unknown = next((region for region in (sender, receiver) if region not in links.regions), None)
            raise UnknownNameError(
                f"lab `{name}` has no region `{unknown}`" if unknown else f"`{sender}` has no link to itself",
                hint=f"its regions: {', '.join(links.regions)}",
            )


def _require_applied(links: Links, answer: Answer | None, name: str) -> None:
    if answer is None:
        raise _make_loss_error(name, links)
    if answer.failure is not None:
        raise LabError(f"the links of lab `{name}` were not changed: {answer.failure}")


def _make_loss_error(name: str, links: Links) -> LabError:
    if links.backend is Backend.NONE:
        return UnsupportedError(
            f"lab `{name}` has no links that could be changed: its servers dial each other",
            hint=f"`vstream lab down {name}`, then `vstream lab up --links proxy`; it needs two regions",
        )
    return LabError(f"the link proxy of lab `{name}` is not running", hint="`vstream lab up` starts what is missing")


@asynccontextmanager
async def _hold_links(proxy: ProxyProcess) -> AsyncIterator[None]:
    name = proxy.directory.name
    proxy.directory.create()
    async with hold_lock(proxy.directory.links / "links.lock", patience=_ANSWER_TIMEOUT) as is_held:
        if not is_held:
            raise LabError(f"the links of lab `{name}` are being changed by another process", hint="try again")
        yield
