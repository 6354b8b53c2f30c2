"""What a supervisor changes of its own process while it starts."""

from __future__ import annotations

import gc
from contextlib import suppress

from teamd.daemon import few_looks_for_garbage


def test_garbage_is_looked_for_as_usual_again_however_loading_ends() -> None:
    """Teammates are forked from that process, and live for days."""
    usual = gc.get_threshold()
    with suppress(ImportError), few_looks_for_garbage():
        assert gc.get_threshold()[0] > usual[0]
        raise ImportError
    assert gc.get_threshold() == usual
