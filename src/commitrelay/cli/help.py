"""Help: what `--help` prints, made from the declarations of the commands."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from commitrelay import __version__
from commitrelay.cli.command import Command, Option
from commitrelay.cli.style import BOLD, CYAN, DIM, Style, width
from commitrelay.kinds import Choice
from commitrelay.settings import CONFIG_VARIABLE, Declaration

LEFT_COLUMN = 26


def overview(commands: Sequence[Command]) -> str:
    """What `commitrelay --help` prints."""
    style = Style()
    lines = [
        f"{style('commitrelay', BOLD)} {__version__}: the transactional outbox for Python.",
        "Commit it, and it is delivered.",
        "",
        f"{style('Usage', BOLD)}  commitrelay COMMAND [options]",
        "",
        style("Commands", BOLD),
        *(f"  {style(f'{command.name:<9}', CYAN)} {command.summary}" for command in commands),
        "",
        style("Options", BOLD),
        f"  {style('--help', CYAN)}     Show this, or with a command what it takes.",
        f"  {style('--version', CYAN)}  Show the version.",
        "",
        style("Start here", BOLD),
        "  commitrelay demo          see it work: nothing to install, nothing to set up",
        "  commitrelay run --help    see all settings",
    ]
    return "\n".join(lines) + "\n"


def page(command: Command) -> str:
    """What `commitrelay COMMAND --help` prints."""
    style = Style()
    columns = width()
    usage = " ".join(filter(None, ("commitrelay", command.name, command.usage, "[options]")))
    lines = [
        f"{style('Usage', BOLD)}  {usage}",
        "",
        *_paragraphs(command.description, columns),
    ]
    for group, entries in _grouped(command).items():
        lines += ["", style(group, BOLD)]
        for entry in entries:
            lines += _entry(entry, style, columns)
    if command.examples:
        lines += ["", style("Examples", BOLD)]
        for purpose, line in command.examples:
            lines += [f"  {style('# ' + purpose, DIM)}", *_shell(line, columns)]
    return "\n".join(lines) + "\n"


def metavar(entry: Option | Declaration) -> str:
    """`--order strict|relaxed`: what goes after the flag."""
    if entry.kind is None:
        return ""
    if isinstance(entry.kind, Choice) and len(entry.kind.options) <= 4:
        return "|".join(entry.kind.options)
    return entry.kind.metavar


def variables(entry: Option | Declaration) -> str:
    """The environment variables that an entry reads."""
    if isinstance(entry, Option):
        return CONFIG_VARIABLE if entry.name == "config" else ""
    return f"{entry.variable}, DATABASE_URL" if entry.name == "database" else entry.variable


def default_text(entry: Option | Declaration) -> str:
    return entry.shown_default if isinstance(entry, Option) else entry.default_text


def _grouped(command: Command) -> dict[str, list[Option | Declaration]]:
    """Arguments first, then the settings by group, then the command's own options."""
    groups: dict[str, list[Option | Declaration]] = {}
    for option in command.options:
        if option.positional or option.group not in ("Output", "General"):
            groups.setdefault("Argument" if option.positional else option.group, []).append(option)
    for item in command.settings:
        groups.setdefault(item.group, []).append(item)
    for option in command.all_options:
        if not option.positional and option.group in ("Output", "General"):
            groups.setdefault(option.group, []).append(option)
    return groups


def _entry(entry: Option | Declaration, style: Style, columns: int) -> list[str]:
    value = metavar(entry)
    left = entry.flag if not value or entry.flag == value else f"{entry.flag} {value}"
    notes = [
        f"{label}: {text}"
        for label, text in (("default", default_text(entry)), ("env", variables(entry)))
        if text
    ]
    indent = " " * (LEFT_COLUMN + 2)
    room = columns - len(indent)
    text = textwrap.wrap(entry.help, room)
    # A note breaks between its parts rather than inside one.
    joined = ", ".join(notes)
    lines = [joined] if len(joined) + 2 <= room else notes
    text += [style(f"[{line}]", DIM) for line in lines if line]
    painted = style(entry.flag, CYAN) + left[len(entry.flag) :]
    if len(left) > LEFT_COLUMN - 2:
        return [f"  {painted}", *(indent + line for line in text)]
    gap = " " * (LEFT_COLUMN - len(left))
    return [f"  {painted}{gap}{text[0]}", *(indent + line for line in text[1:])]


def _paragraphs(text: str, columns: int) -> list[str]:
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        lines += ["", *textwrap.wrap(" ".join(paragraph.split()), columns)]
    return lines[1:]


def _shell(line: str, columns: int) -> list[str]:
    """A command line, broken with backslashes where it is too long."""
    glued = line.replace(" --", "\n--").replace(" ", "\0").replace("\n", " ")
    wrapped = textwrap.wrap(glued, columns - 8, break_on_hyphens=False, break_long_words=False)
    first, *rest = (part.replace("\0", " ") for part in wrapped)
    lines = [f"  {first}", *(f"      {part}" for part in rest)]
    return [part + " \\" for part in lines[:-1]] + lines[-1:]
