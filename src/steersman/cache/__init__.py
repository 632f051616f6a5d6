"""What is known of the cluster: a cache that is never wrong, only ever a little behind.

`InformerPool` shares one list+watch per question; an informer's `snapshot()` is what a reconcile reads. The promises
are in `steersman.cache.contract`; the machinery is `reflector`, `progress` (its pure part), `store` and `informer`.
"""

from steersman.cache.contract import Caches, Handler, Informer, LabelMatcher, Snapshot, SourceHealth, Subscription
from steersman.cache.pool import InformerPool

__all__ = [
    "Caches",
    "Handler",
    "Informer",
    "InformerPool",
    "LabelMatcher",
    "Snapshot",
    "SourceHealth",
    "Subscription",
]
