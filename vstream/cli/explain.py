"""`vstream explain`."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    code: Annotated[
        str | None, typer.Argument(help="A code such as VS303, or a name. Without one, all are listed.")
    ] = None,
) -> None:
    """
    Print the manual page of a finding: what is wrong, why it matters, and what to do.

    Examples: `vstream explain`, `vstream explain VS303`
    """
    from difflib import get_close_matches  # noqa: PLC0415

    from vstream.audit.codes import CHAPTER  # noqa: PLC0415
    from vstream.health.doctor.examine import CHAPTER as DOCTOR  # noqa: PLC0415
    from vstream.lint.manual import CHAPTERS  # noqa: PLC0415 - all rules

    chapters = (*CHAPTERS, CHAPTER, DOCTOR)
    pages = {page.code: page for chapter in chapters for page in chapter.pages}
    if code is None:
        for chapter in chapters:
            typer.echo(chapter.title)
            for page in chapter.pages:
                typer.echo(f"  {page.code}  {page.severity.value:<7}  {page.name}")
        return
    wanted = code.strip().lower()
    found = [page for page in pages.values() if wanted in {page.code.lower(), page.name}]
    if not found:
        close = get_close_matches(
            wanted, [one for page in pages.values() for one in (page.code.lower(), page.name)], n=1
        )
        hint = f"did you mean `{close[0].upper() if close[0].upper() in pages else close[0]}`?" if close else ""
        raise typer.BadParameter(
            f"there is no `{code}`; {hint or '`vstream explain` lists all codes'}", param_hint="CODE"
        )
    texts = (f"{page.code} {page.name} ({page.severity.value})\n\n{page.text}" for page in found)
    typer.echo("\n\n".join(texts))
