"""The differential fuzzer: the same random requests to two API servers, and every answer compared.

    python -m tests.support.differential --sequences 5000 --seed 7

`steps` says what a request is, `generation` invents sequences of them (hypothesis), `normalize` removes from an answer
what may rightly differ between two servers, `duel` sends a sequence to both and stops at the first difference. Anything
left is a bug of the embedded server or an entry in docs/embedded-server.md.
"""

from __future__ import annotations

from tests.support.differential.duel import Difference, Duel
from tests.support.differential.steps import Step

__all__ = ["Difference", "Duel", "Step"]
