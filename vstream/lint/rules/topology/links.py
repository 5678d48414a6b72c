"""The links of a lab."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.wording import join_names
from vstream.syntax.quoting import quote_value
from vstream.topology import naming

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from vstream.lint.rules.topology.context import TopologySubject


@rule("VS135", "bad-link", Severity.ERROR)
def bad_link(subject: TopologySubject) -> Iterator[Violation]:
    """
    A link is not between two regions, or is described twice.

    ## Why is this bad?
    A lab would have another network than the one that is written down, and what is
    measured in it would mean something else.
    """
    regions = subject.document.regions
    seen: dict[frozenset[str], str] = {}
    for key in subject.document.links:
        if key == naming.DEFAULT_LINK:
            continue
        ends = naming.link_ends(key, regions)
        message, hint = _problem(key, ends, regions)
        if message is None and (first := seen.setdefault(frozenset(ends[0]), key)) != key:
            message = f"{quote_value(key)} is the same link as {quote_value(first)}"
            hint = "both describe both directions: keep one of them"
        if message is not None:
            yield Violation(at=("links", key), message=message, hint=hint, on_key=True)


def _problem(key: str, ends: Collection[tuple[str, str]], regions: Collection[str]) -> tuple[str | None, str | None]:
    match ends:
        case [(near, far)] if near == far:
            return f"{quote_value(key)} is a link of a region to itself", "links are between regions, as `west-east`"
        case [_]:
            return None, None
        case [] if len(regions) < 2:  # noqa: PLR2004 - a link has two ends
            return f"{quote_value(key)} is no link: there is only one region", "remove it"
        case []:
            slash, dash = naming.LINK_SEPARATORS
            separator = slash if any(dash in region for region in regions) else dash
            pairs = [f"{near}{separator}{far}" for near in regions for far in regions if near != far]
            close = get_close_matches(key, pairs, n=1)
            hint = (
                f"did you mean `{close[0]}`?"
                if close
                else f"write it like `{pairs[0]}`; regions: {join_names(regions)}"
            )
            return f"{quote_value(key)} is not the link of two regions", hint
    meant = " or ".join(f"`{near}` and `{far}`" for near, far in ends)
    return f"{quote_value(key)} can be the link of {meant}", "write `/` between the two regions: it is in no name"
