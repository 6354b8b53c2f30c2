"""The commands with their help and examples; a command's module is imported when it is called."""

from __future__ import annotations

from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click


# By command words. A test parses each example.
EXAMPLES: Final = {
    "help": ("teamctl help limits", "teamctl help docker     # searches all topics"),
    "demo": ("teamctl demo", "teamctl demo --keep"),
    "init": ("teamctl init", "teamctl --team website init     # the settings of one team"),
    "trust": ("teamctl trust", "teamctl trust --list"),
    "doctor": ("teamctl doctor", "teamctl doctor --json"),
    "chat": (
        "teamctl chat",
        'teamctl chat "Have the failing tests fixed." --timeout 600',
    ),
    "spawn": (
        'teamctl spawn alice coder "Write the tests of parse.py." --wait',
        "teamctl spawn bob reviewer - < task.md     # reads the task from a file",
    ),
    "team": ("teamctl team --watch", "teamctl team --hosts     # with those of other hosts"),
    "ps": ("teamctl ps", "teamctl ps --json"),
    "show": ("teamctl show alice", "teamctl show alice --json"),
    "top": ("teamctl top", "teamctl top --readonly"),
    "web": ("teamctl web --open", "teamctl web --readonly"),
    "wait": ("teamctl wait alice bob", "teamctl wait --all --timeout 600"),
    "send": (
        'teamctl send alice "The API docs are in docs/api.md."',
        'teamctl send alice "Go on." --id order-66 --wait --timeout 60',
    ),
    "broadcast": ('teamctl broadcast "Stop pushing to main."', "git log -3 | teamctl broadcast -"),
    "inbox": ("teamctl inbox", "teamctl inbox alice     # only looks: nothing is taken"),
    "tasks": ("teamctl tasks", "teamctl tasks --all --json"),
    "task": ('teamctl task add "Write the tests."', "teamctl task show 1"),
    "task add": (
        'teamctl task add "Write the tests." --role coder',
        'teamctl task add "Release it." --blocked-by 1 --owner alice',
    ),
    "task show": ("teamctl task show 1", "teamctl task show 1 --json"),
    "task update": (
        "teamctl task update 1 --status completed",
        'teamctl task update 2 --check "pytest -q"',
    ),
    "task claim": ("teamctl task claim 1", "teamctl task claim 1 --for alice"),
    "requests": ("teamctl requests", "teamctl requests --json"),
    "approve": (
        "teamctl approve 0a1b",
        'teamctl approve 0a1b --feedback "Yes, but keep the old name."',
    ),
    "reject": (
        'teamctl reject 0a1b --reason "Not on a Friday."',
        'teamctl reject 0a1b --reason "Use git mv."',
    ),
    "interrupt": ("teamctl interrupt alice", 'teamctl interrupt alice "Leave the tests alone."'),
    "pause": ("teamctl pause alice", "teamctl pause bob"),
    "transcript": (
        "teamctl transcript alice -n 5",
        "teamctl transcript --all --since 10m --follow",
    ),
    "logs": ("teamctl logs alice --lines 20", "teamctl logs teamd --follow"),
    "events": ("teamctl events --since 10m", "teamctl events --follow --json | jq .kind"),
    "diff": ("teamctl diff alice", "teamctl diff alice --json"),
    "merge": ("teamctl merge alice", 'teamctl merge alice --squash --message "Parse dates"'),
    "discard": ("teamctl discard alice", "teamctl discard alice --force"),
    "push": ("teamctl push alice", "teamctl push team/main --remote upstream"),
    "pr": ("teamctl pr alice", 'teamctl pr alice --base main --title "Parse dates"'),
    "queue": ("teamctl queue", "teamctl queue add alice"),
    "queue add": ("teamctl queue add alice", "teamctl queue add alice --json"),
    "queue remove": ("teamctl queue remove 1", "teamctl queue remove 1 --json"),
    "usage": ("teamctl usage", "teamctl usage --json | jq .total"),
    "resume": ("teamctl resume alice", "teamctl resume alice --usd 2.50"),
    "trace": ("teamctl trace order-66", "teamctl trace 0660e308 --json"),
    "shutdown": ("teamctl shutdown alice", "teamctl shutdown --all --timeout 30"),
    "rm": ("teamctl rm alice", "teamctl rm alice --purge"),
    "start": ("teamctl start", "teamctl start --foreground     # for a service manager"),
    "stop": ("teamctl stop", "teamctl stop --timeout 60"),
    "restart": ("teamctl restart", "teamctl --team website restart"),
    "status": ("teamctl status", "teamctl status --json"),
    "reload": ("teamctl reload", "teamctl --team website reload"),
    "hosts": ("teamctl hosts", "teamctl hosts init h2"),
    "hosts init": (
        "teamctl hosts init h2 h3     # this host has the broker",
        "teamctl hosts init h2 --name h1 --listen 0.0.0.0:4222",
    ),
    "hosts join": ("teamctl hosts join h2.token", "teamctl --team web hosts join h2.token"),
    "hosts add": ("teamctl hosts add h4", "teamctl --team web hosts add h4"),
    "hosts remove": ("teamctl hosts remove h2", "teamctl --team web hosts remove h2"),
    "hosts forget": ("teamctl hosts forget h2", "teamctl --team web hosts forget h2"),
    "teams": ("teamctl teams", "teamctl teams --json"),
    "create": ("teamctl create website", "teamctl create staging     # a second one"),
    "delete": ("teamctl delete website", "teamctl delete website --force"),
    "prune": ("teamctl prune --dry-run", "teamctl prune --older-than 30"),
}


# What `teamctl --help` shows, without loading the commands' modules.
GROUPS: Final = {
    "First steps": {
        "demo": "Watch a team build and test a small program; no key, no network.",
        "init": "Write a commented team.toml here.",
        "doctor": "Check machine, settings and key, and say how to fix them.",
        "trust": "Let a team.toml loosen limits on agents.",
        "help": "Explain a topic or search all, such as limits or docker; list them.",
    },
    "Give work": {
        "chat": "Talk to the agent that leads the team.",
        "spawn": "Start or wake a teammate.",
        "send": "Send a message to a teammate.",
        "broadcast": "Send a message to every teammate.",
        "wait": "Wait until teammates are idle.",
    },
    "Watch": {
        "team": "Show the members of the team and their states.",
        "top": "Show the team on the whole screen, and answer requests.",
        "web": "Show the team as a page in the browser.",
        "show": "Show all about one teammate.",
        "transcript": "Show a teammate's conversation.",
        "usage": "Show tokens and cost, and how much of the limits is used.",
        "events": "Show all events of the team, for scripts.",
        "logs": "Show the log of a teammate, or of teamd.",
        "trace": "Show where a message is, by its id; list the latest.",
        "ps": "List the processes of the team.",
    },
    "Answer": {
        "inbox": "Read your mail, or look at a teammate's.",
        "requests": "List the open requests, such as plans.",
        "approve": "Approve a request, by its id or its teammate.",
        "reject": "Reject a request, by its id or its teammate.",
    },
    "Steer": {
        "interrupt": "Interrupt a teammate's turn, and give it the next text.",
        "pause": "Pause a teammate until it is resumed.",
        "resume": "Let a paused teammate continue.",
        "shutdown": "Ask a teammate to end, or all of them.",
        "rm": "Remove a teammate from the team.",
    },
    "Take the work": {
        "tasks": "Show the task board.",
        "task": "Add, show, change or claim a task.",
        "diff": "Show a teammate's changes in its working copy.",
        "merge": "Merge a teammate's commits into your branch.",
        "discard": "Reset a teammate's working copy to its base.",
        "queue": "Show the merge queue, add to it, or remove from it.",
        "push": "Push a teammate's branch to a remote of yours.",
        "pr": "Push a teammate's branch, and open a pull request.",
    },
    "Run teams": {
        "start": "Start teamd in the background.",
        "stop": "End teamd and all teammates; the next start resumes them.",
        "restart": "Stop teamd if it runs, then start it.",
        "status": "Show whether teamd runs, and who needs you.",
        "reload": "Read team.toml again, and say what changed.",
        "teams": "List the teams of this project.",
        "create": "Create a team, and start its teamd.",
        "delete": "End a team, and delete its files.",
        "hosts": "Show the other hosts of the team, or set them up.",
        "prune": "Remove old logs, and the files of names that left the team.",
    },
}
COMMANDS: Final = {name: line for group in GROUPS.values() for name, line in group.items()}

# What people type, and the command that does it.
MEANT: Final = {
    **dict.fromkeys(("agents", "list", "ls", "members"), "`teamctl team` lists the teammates"),
    **dict.fromkeys(("new", "run"), "`teamctl spawn NAME ROLE PROMPT` starts a teammate"),
    **dict.fromkeys(("end", "kill"), "`teamctl shutdown NAME` ends a teammate, --force at once"),
    **dict.fromkeys(("attach", "talk"), "`teamctl chat` talks to the agent that leads the team"),
    **dict.fromkeys(
        ("mail", "message", "msg", "tell"), "`teamctl send NAME TEXT` sends a teammate a message"
    ),
    **dict.fromkeys(("cost", "costs", "spend"), "`teamctl usage` shows what the team costs"),
    **dict.fromkeys(("answer", "questions"), "`teamctl requests` lists what waits for you"),
    **dict.fromkeys(("board", "todo"), "`teamctl tasks` shows the board"),
    **dict.fromkeys(("config", "settings"), "`teamctl init` writes a team.toml to edit"),
    "down": "`teamctl stop` ends teamd and all teammates",
    "history": "`teamctl transcript NAME` shows a conversation",
    "log": "`teamctl logs NAME` shows the log of a teammate",
    "remove": "`teamctl rm NAME` removes a teammate from the team",
    "ui": "`teamctl top` is for the terminal, `teamctl web` for the browser",
    "up": "`teamctl start` starts teamd",
    "version": "`teamctl --version` prints it",
}

# The commands of `teamd`, which `teamctl` has, too.
SERVICE: Final = frozenset({"start", "stop", "restart", "status", "reload"})

# Files with more than one command; `command` is the one with the file's name.
SHARED: Final = {
    "diff": ("merge", "discard"),
    "interrupt": ("pause",),
    "push": ("pr",),
    "requests": ("approve", "reject"),
    "send": ("broadcast",),
    "spawn": ("resume", "shutdown"),
    "teams": ("create", "delete"),
}


def load(name: str) -> click.Command:
    """Import a command of `COMMANDS` and return it."""
    if name in SERVICE:
        service: click.Group = import_module("teamd.__main__").program
        return copy(service.commands[name])  # its examples are others
    home = next((file for file, others in SHARED.items() if name in others), None)
    module = import_module(f"{__name__}.{home or name}")
    found: click.Command = getattr(module, name if home else "command")
    return found
