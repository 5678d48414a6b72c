"""`vstream lint --explain`."""

from __future__ import annotations

from dataclasses import asdict
from difflib import get_close_matches

import typer

from vstream.audit.codes import CHAPTER as AUDIT
from vstream.cli.views.json_output import print_json
from vstream.codes import RETIRED
from vstream.health.doctor.examine import CHAPTER as DOCTOR
from vstream.lint.manual import CHAPTERS


def explain(code: str, *, is_json: bool) -> None:
    """
    Print the manual page of a finding by its code or name: what is wrong, why it matters, and what to do.

    For `list`, print all codes; as JSON, all pages. Raises BadParameter if there is none such.
    """
    chapters = (*CHAPTERS, AUDIT, DOCTOR)
    pages = {page.code: page for chapter in chapters for page in chapter.pages}
    word = code.strip().lower()
    if word == "list" and not is_json:
        for chapter in chapters:
            typer.echo(chapter.title)
            for page in chapter.pages:
                typer.echo(f"  {page.code}  {page.severity.value:<7}  {page.name}")
        return
    retired = RETIRED.get(word.upper())
    chosen = [page for page in pages.values() if word in {page.code.lower(), page.name, "list"}]
    if not chosen and retired is None:
        names = [name for page in pages.values() for name in (page.code.lower(), page.name)]
        close = next(iter(get_close_matches(word, names, n=1)), None)
        hint = f"did you mean `{close.upper() if close.upper() in pages else close}`? " if close else ""
        raise typer.BadParameter(
            f"there is no `{code}`; {hint}`vstream lint --explain list` lists all codes", param_hint="--explain"
        )
    if is_json:
        documents = [{**asdict(page), "severity": page.severity.value} for page in chosen]
        print_json("lint-explain", {"pages": documents, "retired": retired})
    elif retired is not None:
        typer.echo(f"{word.upper()} is retired: {retired}")
    else:
        texts = (f"{page.code} {page.name} ({page.severity.value})\n\n{page.text}" for page in chosen)
        typer.echo("\n\n".join(texts))
