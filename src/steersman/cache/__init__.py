"""The cache: what is known of a cluster, never wrong, only ever a little behind.

    list + watch ──► reflector ──► store ──► handlers(old, new, initial)     in order, once per change
                       │             └────► snapshot()                      what one reconcile reads
                list_watch_state (pure: what to do next)

`SharedInformerFactory` shares one list+watch per kind and selection. The promises are in `interfaces`: per object,
handlers see its states in order; a snapshot does not change, except for own writes, which it shows at once; nothing is
lost over reconnects, 410, compaction or a server that lags. `single_object` follows single names where a collection
may not be read. `static` is the same store without a watch, for offline commands and tests.
"""

from steersman.cache.factory import SharedInformerFactory
from steersman.cache.interfaces import (
    EventHandler,
    HandlerRegistration,
    Informer,
    InformerFactory,
    LabelMatcher,
    Snapshot,
    SourceHealth,
)
from steersman.cache.static import StaticCache

__all__ = [
    "EventHandler",
    "HandlerRegistration",
    "Informer",
    "InformerFactory",
    "LabelMatcher",
    "SharedInformerFactory",
    "Snapshot",
    "SourceHealth",
    "StaticCache",
]
