from commitrelay.cli.command import Command

COMMAND = Command("demo", "x", "x", lambda r: 0)
