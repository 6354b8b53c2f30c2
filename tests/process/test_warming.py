"""What is done once before forking, so that no teammate does it again."""

from __future__ import annotations

import subprocess
import sys

from tests.strict.replies import say
from tests.strict.server import StrictServer

# Prints the number of threads after the warming, then what the first real call still loads.
PROBE = """
import asyncio, sys, threading
from teamd.models import Ask, claude, warming
warming.warm_up()
print(threading.active_count())
before = set(sys.modules)
model = claude.Claude(base_url=None, key_command=None, headers={}, timeout_seconds=20,
                      cache=True, tls=claude.make_tls())
said = [{"role": "user", "content": [{"type": "text", "text": "Hi."}]}]
ask = Ask(model="claude-sonnet-5-5", system="You are 'a', role: b.", tools=[], messages=said,
          max_tokens=10)
asyncio.run(model.reply(ask))
print(*(name for name in set(sys.modules) - before if name.startswith(("anthropic", "anyio"))))
"""


def test_the_first_call_of_a_teammate_loads_nothing_more_and_no_thread_is_started() -> None:
    """Memory that is shared stays shared; and a process with threads must not fork."""
    with StrictServer(lambda _: say("Hi.")) as server:
        done = subprocess.run(
            [sys.executable, "-c", PROBE],
            env=server.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert done.stdout.split("\n") == ["1", "", ""]
